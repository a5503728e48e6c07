"""A fleet's map and page: what the simulated fleet did, harmless, and the same in a browser."""

import base64
import hashlib
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.history.fleet.collect import merged
from rankscope.history.fleet.fleet import Fleet, fleet_of
from rankscope.history.fleet.sentences import cost_text
from rankscope.output.html.fleet_page import (
    MOST_ROWS,
    MOST_RUNS,
    _names,
    fleet_map,
    legend,
    render_fleet,
)
from tests.history.fleet.fleets import HOURS, Plan, fleet
from tests.output.test_html import HOSTILE, Page
from tests.support import mostly_nightly


@pytest.fixture(scope="module")
def answer() -> Fleet:
    """50 hosts of 8 GPUs, 30 jobs; a slow card moves."""
    return fleet_of(fleet(Plan("moved", 1))[0])


def hostile(answer: Fleet) -> Fleet:
    """The same fleet with names that want to be markup."""
    name = "".join(HOSTILE)
    return replace(
        answer,
        sentence=f"{name} {answer.sentence}",
        next=f"{answer.next} {name}",
        hardware=answer.hardware.with_columns(host=pl.lit(name), name=pl.lit(name)),
        runs=answer.runs.with_columns(db=pl.lit(f"{name}.duckdb"), software=pl.lit(name)),
    )


def test_the_map_has_the_evidence_of_each_run() -> None:
    answer = fleet_of(fleet(Plan("card", 1))[0])
    found = fleet_map(answer)
    assert found.hardware["suspect"].to_list() == [True] + [False] * (MOST_ROWS - 1)
    [suspect] = answer.suspects
    assert f">{suspect.id} ({suspect.host})</th>" in render_fleet(answer).decode()
    own = answer.rows.filter(kind="gpu", id=suspect.id)
    place = {run: column for column, run in enumerate(answer.runs["run"])}
    first = {column: cost for (row, column), cost in found.costs.items() if row == 0}
    assert first.keys() == {place[run] for run in own["run"]}
    guilty = {column for column, cost in first.items() if cost is not None}
    assert guilty == {place[run] for run in own.filter("guilty")["run"]}
    assert len(guilty) == suspect.guilty
    assert sum(filter(None, first.values())) == suspect.cost_ns
    assert found.runs["start_ns"].is_sorted()
    named = answer.hardware.filter(pl.col("guilty") > 0).height
    assert found.more_rows == named - MOST_ROWS > 0


@pytest.mark.slow
def test_runs_in_which_nobody_is_compared_are_blind(answer: Fleet) -> None:
    collected = fleet(Plan("moved", 1))[0]
    blind = collected.runs["run"][3]
    evidence = collected.evidence.with_columns(
        iterations=pl.when(run=blind).then(0).otherwise("iterations")
    )
    found = fleet_of(merged(collected.runs, evidence))
    assert fleet_map(found).blind == {3}
    assert ">run without a comparison<" in render_fleet(found).decode()
    assert not fleet_map(answer).blind


def test_many_runs_are_the_latest_ones(answer: Fleet) -> None:
    many = pl.concat(
        [answer.runs.with_columns(run=pl.format("{}-{}", "run", pl.lit(k))) for k in range(9)]
    )
    found = fleet_map(replace(answer, runs=many))
    assert found.runs.height == MOST_RUNS
    assert found.more_runs == many.height - MOST_RUNS
    assert "earlier runs." in render_fleet(replace(answer, runs=many)).decode()


@pytest.mark.parametrize(
    ("cost_ns", "text"),
    [
        (0, "0 rank-seconds"),
        (HOURS // 60, "1 rank-minutes"),
        (90 * HOURS // 60, "1.5 rank-hours"),
        (1250 * HOURS, "1,250 rank-hours"),
    ],
)
def test_costs_have_a_readable_unit(cost_ns: int, text: str) -> None:
    assert cost_text(cost_ns) == text


def test_the_page_holds_the_answer(answer: Fleet) -> None:
    text = render_fleet(answer).decode()
    page = Page(text)
    assert escape(answer.sentence) in text
    assert len(text) < 150_000
    hardware, runs = page.data["tables"]
    columns = [each["name"] for each in hardware["columns"]]
    rows = dict(zip(columns, hardware["values"], strict=True))
    assert rows["id"] == answer.hardware["id"].to_list()
    assert rows["suspect"] == answer.hardware["suspect"].to_list()
    assert rows["guilty"] == answer.hardware["guilty"].to_list()
    assert len(runs["values"][0]) == answer.runs.height
    named = dict(zip([each["name"] for each in runs["columns"]], runs["values"], strict=True))
    [suspect] = answer.suspects
    listed = [suspect.id in (each or "").split(", ") for each in named["named"]]
    assert sum(listed) == suspect.guilty
    found = fleet_map(answer)
    cells = [at for tag, at in page.tags if tag == "td" and "cost-" in (at.get("class") or "")]
    assert len(cells) == len(found.named)
    assert sum(suspect.id in (at["title"] or "") for at in cells) == suspect.guilty


def test_the_page_is_harmless_and_whole(answer: Fleet) -> None:
    text = render_fleet(hostile(answer)).decode()
    page = Page(text)
    [policy] = [at["content"] for _, at in page.tags if at.get("http-equiv")]
    digest = base64.b64encode(hashlib.sha256(page.scripts[-1].encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert not {name for _, at in page.tags for name in at if name.startswith("on")}
    links = [at[name] for _, at in page.tags for name in ("href", "src") if name in at]
    assert all((each or "").startswith("#") for each in links)
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_fleet_that_compared_nobody_has_a_page() -> None:
    collected = fleet(Plan("none", 1))[0]
    blind = collected.evidence.with_columns(iterations=0 * pl.col("iterations"))
    text = render_fleet(fleet_of(merged(collected.runs, blind))).decode()
    assert "No run has compared any hardware." in text


def test_equal_costs_are_one_level(answer: Fleet) -> None:
    costs = fleet_map(answer)
    equal = replace(costs, costs={place: 10**9 for place in costs.costs})
    assert [text for _, text in legend(equal)[:2]] == [
        "named, cost up to 1 rank-seconds", "compared, not named",
    ]  # fmt: skip


@pytest.mark.slow
def test_it_works_in_a_browser(chromium: Any, answer: Fleet, tmp_path: Path) -> None:
    from tests.output.browser import Shown

    path = tmp_path / "fleet.html"
    path.write_bytes(render_fleet(answer))
    shown = Shown(chromium, path)
    assert shown.text("#sentence") == answer.sentence
    assert shown.text(".class") == "1 suspect"
    assert shown.text(".fleet th.suspect").startswith("GPU-0314 (n11)")
    cells = "[...document.querySelectorAll('#table-hardware tbody td:nth-child(2)')]"
    assert (
        shown.ask(f"return {cells}.map((each) => each.textContent)")
        == answer.hardware["id"].head(12).to_list()
    )
    runs = "#table-hardware thead th:nth-child(8) button"
    shown.ask(f"document.querySelector('{runs}').click()")
    most = answer.hardware["runs"].max()
    assert shown.text("#table-hardware tbody tr td:nth-child(8)") == str(most)
    fill = "return getComputedStyle(document.querySelector('.fleet .cost-2')).backgroundColor"
    assert shown.ask(fill) == "rgb(138, 45, 4)"
    assert not shown.ask("return !document.getElementById('failed').hidden")
    shown.is_quiet()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "theme"),
    mostly_nightly([(400, "dark"), (1280, "light"), (400, "light"), (1280, "dark")]),
)
def test_it_fits_every_screen_and_theme(
    chromium: Any, answer: Fleet, tmp_path: Path, width: int, theme: str
) -> None:
    from tests.output.browser import Shown, screen

    path = tmp_path / "fleet.html"
    path.write_bytes(render_fleet(hostile(answer)))
    with screen(chromium, width, theme):
        shown = Shown(chromium, path)
        shown.fits(width, theme)
        assert not shown.ask("return document.querySelectorAll('img').length")
        assert "<script>alert(1)</script>" in shown.text("#table-hardware")
        cut = (
            "return [...document.querySelectorAll('.fleet th')].filter("
            "(each) => each.scrollWidth > each.clientWidth + 1).length"
        )
        assert shown.ask(cut) == 0, "no label is cut"
        shown.is_quiet()


def test_labels_of_similar_names_differ() -> None:
    piece = {"kind": "host", "host": None, "slot": None}
    shown = {_names({**piece, "id": f"gpu-a100-rack1-node{number}"})[0] for number in (15, 16)}
    assert shown == {"host gpu-a10…1-node15", "host gpu-a10…1-node16"}
