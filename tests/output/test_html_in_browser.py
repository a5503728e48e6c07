"""The page in a real Chromium, opened from disk: it draws, listens, loads nothing, and hostile
names stay text. Skipped where there is no Chromium with its driver."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rankscope
from rankscope.api import picks_of
from rankscope.compare.timeline import timeline, with_last_to_arrive
from rankscope.output.html.lanes import ShownTimeline
from rankscope.output.html.page import render_page
from rankscope.output.html.page_text import Origin
from tests.support import ROOT, MakeStored, Stored, copied, mostly_nightly, renamed

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver import ActionChains, Keys

from tests.output.browser import Shown, screen

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def written(run: rankscope.Run, path: Path, **options: Any) -> Path:
    analysis = run.compare(rankscope.Options(**options))
    picks = picks_of(analysis, None)
    worst = [picks.picks[0].worst.iteration]
    ranks = with_last_to_arrive(analysis, [each.rank for each in picks.picks], worst)
    detail = ShownTimeline(timeline(analysis, ranks, worst))
    origin = Origin(run.db, path, "rankscope")
    path.write_bytes(render_page(analysis, analysis.imbalance(), picks, detail, origin))
    return path


@pytest.fixture(scope="module")
def sample_page(sample: Stored, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(sample.run, tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture
def shown(chromium: Any, sample_page: Path) -> Shown:
    """The sample's page, freshly opened."""
    return Shown(chromium, sample_page)


def test_it_opens_from_disk_and_tells_the_verdict(shown: Shown, sample: Stored) -> None:
    assert shown.text("#sentence") == sample.analysis().verdict.sentence
    assert shown.text("[data-fill=class]") == "periodic"
    tops = "return [...document.querySelectorAll('.figures > div')].map((each) => each.offsetTop)"
    assert min(Counter(shown.ask(tops)).values()) > 2, "no row of figures is nearly empty"
    assert shown.picked == "2/2"
    for chart in ("heat", "cell-chart", "phases-chart", "timeline-chart"):
        assert shown.ask(f"return document.querySelectorAll('#{chart} .main-svg').length"), chart
    assert shown.ask("return document.querySelectorAll('[data-fill=commands] code').length") >= 4
    shown.is_quiet()


def test_a_click_picks_the_cell_under_it(shown: Shown) -> None:
    shown.point(row=1, column=17, rows=4, columns=29).click().perform()
    shown.until("return document.documentElement.dataset.picked === '1/18'")
    shown.until("return document.getElementById('cell-title').textContent.includes('iteration 18')")
    assert shown.text("#cell-title") == "Rank 1 (node0), iteration 18"
    assert "flagged: backward" in shown.text("#cell-words")
    tip = shown.until("return document.getElementById('tip').textContent")
    assert tip.startswith("Rank 1 (node0), iteration 18\nwork ")
    shown.is_quiet()


def test_the_keyboard_reaches_every_cell(shown: Shown) -> None:
    heat = shown.find("#heat")
    for keys, cell in (
        (Keys.ARROW_RIGHT, "2/3"), (Keys.ARROW_UP, "1/3"), (Keys.END, "1/29"), (Keys.HOME, "1/1"),
        (Keys.ARROW_LEFT, "1/1"), (Keys.SHIFT + Keys.ARROW_RIGHT, "1/11"), (Keys.PAGE_DOWN, "3/11"),
    ):  # fmt: skip
        heat.send_keys(keys)
        shown.until(f"return document.documentElement.dataset.picked === '{cell}'")
    for name, value in (("rank", 0), ("iteration", 29)):
        field = shown.find(f"#cell-{name}")
        field.clear()
        field.send_keys(str(value), Keys.ENTER if name == "iteration" else "")
    shown.until("return document.documentElement.dataset.picked === '0/29'")
    shown.find("#map-table summary").click()
    shown.until("return document.querySelector('#map-table .picked-cell')")
    shown.is_quiet()


def test_dragging_zooms_and_a_double_click_shows_all(shown: Shown) -> None:
    labels = "[...document.querySelectorAll('#heat .xtick text')].map((e) => +e.textContent)"
    before = shown.ask(f"return {labels}")
    start = shown.point(1, 8, 4, 29).move_by_offset(10, 0).click_and_hold()
    start.move_by_offset(220, 4).release().perform()
    shown.until(f"return {labels}[0] === 10")
    assert shown.ask(f"return {labels}") == [10, 11, 12, 13, 14]
    shown.double_click("#heat .nsewdrag")
    shown.until(f"return {labels}.length === {len(before)}")
    assert shown.ask(f"return {labels}") == before
    shown.is_quiet()


def test_a_double_click_shows_the_whole_timeline(shown: Shown) -> None:
    span = "document.getElementById('timeline-chart').layout.xaxis.range.map(Number)"
    whole = shown.ask(f"return {span}")
    shown.find("#timeline-chart").send_keys("+")
    shown.until(f"return {span}[0] > {whole[0]}")
    shown.double_click("#timeline-chart .nsewdrag")
    shown.until(f"return {span}[0] === {whole[0]}")
    assert shown.ask(f"return {span}") == whole
    shown.is_quiet()


def test_other_metrics_orders_and_iterations(shown: Shown) -> None:
    for control in (
        "#metric option[value=load]", "#mode option[value=value]", "#order option[value=score]",
        "#phases-of option[value=picked]", "#marks",
    ):  # fmt: skip
        shown.find(control).click()
    shown.until("return document.getElementById('cell-words').textContent.startsWith('load ')")
    first = "document.querySelector('#heat .ytick text').textContent"
    shown.until(f"return {first} === '2'")  # most loading on top
    shown.is_quiet()


def test_tables_sort_and_pick(shown: Shown) -> None:
    cells = "[...document.querySelectorAll('#table-ranks tbody th')]"
    column = f"return {cells}.map((e) => +e.textContent)"
    assert shown.ask(column)[0] == 2  # most work first
    head = shown.find("#table-ranks thead th button")
    shown.ask("arguments[0].click()", head)
    assert shown.ask(column) == [0, 1, 2, 3]
    assert shown.ask("return arguments[0].parentNode.ariaSort", head) == "ascending"
    shown.ask("arguments[0].click()", head)
    assert shown.ask(column) == [3, 2, 1, 0]
    shown.ask("document.querySelector('#table-flagged tbody tr:nth-child(1) th button').click()")
    shown.until("return document.documentElement.dataset.picked === '1/18'")
    shown.is_quiet()


def test_names_from_reports_stay_text(chromium: Any, tmp_path: Path) -> None:
    """Hosts and kernels; only kernels of the timeline reach a chart."""
    folder = ROOT / "sample_reports" / "gpu_simulated_4ranks"
    reports = copied(sorted(folder.glob("*.sqlite")), tmp_path / "<img src=x onerror=alert(3)>")
    for report in reports:
        renamed(report, HOSTILE, HOSTILE)
    run = rankscope.ingest(reports, tmp_path / "run.duckdb")
    shown = Shown(chromium, written(run, tmp_path / "page.html"))
    assert HOSTILE in shown.text("#table-ranks")
    data = shown.ask("return document.getElementById('data').textContent")
    assert HOSTILE in shown.ask("return JSON.stringify(JSON.parse(arguments[0]).timeline)", data)
    shown.find("#order option[value=host]").click()
    shown.point(0, 0, 1, 1).perform()
    assert not shown.ask("return document.querySelectorAll('img[src=x], svg script').length")
    assert shown.ask("return document.querySelectorAll('script').length") == 3
    shown.is_quiet()


def test_the_address_leads_to_the_picked_cell(
    chromium: Any, shown: Shown, sample_page: Path
) -> None:
    assert shown.ask("return location.hash") == "", "nothing was picked"
    shown.find("#heat").send_keys(Keys.ARROW_RIGHT)
    shown.until("return location.hash === '#cell=2/3'")
    shown.find("#metric option[value=load]").click()
    shown.find("#mode option[value=value]").click()
    shown.until("return location.hash === '#cell=2/3&metric=load&show=value'")
    again = Shown(chromium, sample_page, "#cell=1/18&metric=backward")
    assert again.picked == "1/18"
    assert again.ask("return document.getElementById('metric').value") == "backward"
    assert "iteration 18" in again.text("#cell-title")
    again.ask("location.hash = '#cell=3/7&show=value'")
    again.until("return document.documentElement.dataset.picked === '3/7'")
    assert again.ask("return document.getElementById('mode').value") == "value"
    wrong = Shown(chromium, sample_page, "#cell=99/1&metric=<b>&show=nothing")
    assert wrong.picked == "2/2"
    wrong.is_quiet()


def test_every_chart_listens_to_the_keyboard(shown: Shown) -> None:
    chart = shown.find("#phases-chart")
    chart.send_keys(Keys.ARROW_RIGHT)
    shown.until("return document.documentElement.dataset.picked === '3/2'")
    chart.send_keys(Keys.SHIFT + Keys.ARROW_LEFT)
    shown.until("return document.documentElement.dataset.picked === '0/2'")
    shown_range = "document.getElementById('timeline-chart').layout.xaxis.range"
    span = f"({shown_range}[1] - {shown_range}[0])"
    whole = shown.ask(f"return {span}")
    shown.find("#timeline-chart").send_keys("+")
    shown.until(f"return Math.abs({span} - {whole} / 2) < 1e-6")
    shown.find("#timeline-chart").send_keys("0")
    shown.until(f"return Math.abs({span} - {whole}) < 1e-6")
    reached = set()
    shown.ask("document.querySelector('a').focus()")  # after blur, Tab goes on from where it was
    for _ in range(400):
        ActionChains(shown.browser).send_keys(Keys.TAB).perform()
        at = shown.ask("const e = document.activeElement; return e.id || e.tagName")
        if at == "BODY":
            break
        reached.add(at)
    assert {"metric", "mode", "order", "marks", "heat", "cell-rank", "phases-of"} <= reached
    assert {"phases-chart", "timeline-chart", "BUTTON", "SUMMARY"} <= reached
    shown.is_quiet()


def test_values_beyond_the_scale_have_triangles(chromium: Any, sample_page: Path) -> None:
    """The scales are changed in the page's data, so the same page has values beyond them."""
    shown = Shown(chromium, sample_page)
    marks = "document.querySelector('#heat').data[2].x"
    assert shown.ask(f"return {marks}") == []
    text = sample_page.read_text("utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    linear, end = data["cells"]["scales"]["work"]
    before = json.dumps([linear, end], separators=(",", ":"))

    def scaled(linear: float, end: float) -> Shown:
        changed = sample_page.with_name(f"to_{end}.html")
        changed.write_text(text.replace(f'"work":{before}', f'"work":[{linear},{end}]'), "utf-8")
        return Shown(chromium, changed)

    assert scaled(linear, end * (1 - 1e-5)).ask(f"return {marks}") == [], (
        "the largest is rounded up"
    )
    clipped = scaled(5.0, 20.0)
    found = clipped.ask(f"return {marks}")
    assert len(found) == 7, "six slow loads, and iteration 18"
    assert "beyond 20.0" in clipped.text("#heat")


def test_tables_keep_their_first_column_on_a_narrow_screen(shown: Shown) -> None:
    with screen(shown.browser, 400):
        table = "document.getElementById('table-ranks')"
        shown.ask(f"{table}.parentNode.scrollLeft = 300")
        left = shown.ask(
            f"const cell = {table}.querySelector('tbody th').getBoundingClientRect();"
            f"return cell.left - {table}.parentNode.getBoundingClientRect().left"
        )
        assert abs(left) < 2
        tall = shown.ask(
            "const rows = [...document.querySelectorAll('tbody tr')];"
            "return Math.max(...rows.map((row) => row.offsetHeight))"
        )
        assert tall < 120, "no cell is a column of single letters"


@pytest.mark.parametrize(
    ("width", "theme"),
    mostly_nightly([(400, "dark"), (1280, "light"), (400, "light"), (1280, "dark")], 2),
)
def test_it_fits_every_screen_and_theme(shown: Shown, width: int, theme: str) -> None:
    """And no title of an axis is cut or covers a tick."""
    odd = (
        "const box = (each) => each.getBoundingClientRect();"
        "return [...document.querySelectorAll('.js-plotly-plot')].flatMap((chart) => {"
        " const all = (what) => [...chart.querySelectorAll(what)].map(box);"
        " const below = Math.max(...all('.xtick text').map((tick) => tick.bottom));"
        " const right = Math.min(...all('.ytick text').map((tick) => tick.left), Infinity);"
        " return [...all('.xtitle').map((title) => title.top < below - 3),"
        "  ...all('.ytitle').map((title) => title.right > right + 1),"
        "  ...all('.xtitle, .ytitle, .cbtitle text').map("
        "   (title) => title.left < box(chart).left - 1"
        "   || title.right > box(chart).right + 1)]"
        "})"
    )
    with screen(shown.browser, width, theme):
        shown.again()
        shown.fits(width, theme)
        found = shown.ask(odd)
        assert len(found) > 10
        assert not any(found)


@pytest.mark.parametrize("width", mostly_nightly([400, 1280]))
def test_charts_follow_the_width_of_the_window(shown: Shown, width: int) -> None:
    """As after a phone was turned: each chart has its own place and no text over it."""
    boxes = (
        "return [...document.querySelectorAll('.js-plotly-plot')].map((chart) => ["
        "chart.getBoundingClientRect(), chart.querySelector('.main-svg').getBoundingClientRect()])"
    )
    with screen(shown.browser, 1700 - width) as resize:
        shown.again()
        resize(width)
        shown.until(f"{boxes}.every(([own, svg]) => Math.abs(own.width - svg.width) < 2)")
        assert len(shown.ask(boxes)) == 4
        for own, svg in shown.ask(boxes):
            assert own["height"] >= svg["height"] - 1
            assert svg["right"] <= width


def test_a_run_of_one_rank_has_a_page(chromium: Any, stored: MakeStored, tmp_path: Path) -> None:
    job = stored("plain", ranks=1)
    shown = Shown(chromium, written(job.run, tmp_path / "page.html"))
    assert shown.text("[data-fill=class]") == "inconclusive"
    assert shown.ask("return document.getElementById('mode').value") == "value"
    shown.is_quiet()
