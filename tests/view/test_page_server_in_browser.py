"""The page that `rankscope view` serves, in a real Chromium: it asks its server, and shows it."""

from pathlib import Path
from typing import Any

import pytest

import rankscope
from tests.support import captured
from tests.view.served import Served

pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from tests.output.browser import Shown

pytestmark = pytest.mark.slow


def test_any_cell_is_shown_on_one_clock(chromium: Any, served: Served) -> None:
    shown = Shown(chromium, served.address, "#cell=1/18")
    assert shown.text("#cell-title") == "Rank 1 (node0), iteration 18"
    shown.find("#timeline-cell").click()
    shown.until("return document.querySelector('[data-fill=timeline]').textContent"
                ".startsWith('Iteration 18: ')")  # fmt: skip
    assert shown.ask("return document.getElementById('timeline-ranks').value").startswith("1,")
    assert shown.ask("return document.getElementById('timeline-state').textContent") == ""
    shown.is_quiet(served.address)


def test_ranks_and_iterations_can_be_typed(chromium: Any, served: Served) -> None:
    shown = Shown(chromium, served.address)
    for name, text in (("ranks", "3,0"), ("iteration", "5")):
        field = shown.find(f"#timeline-{name}")
        field.clear()
        field.send_keys(text)
    shown.find("#timeline-controls button[type=submit]").click()
    shown.until("return document.querySelector('[data-fill=timeline]').textContent"
                ".startsWith('Iteration 5: ')")  # fmt: skip
    names = shown.ask(
        "return [...document.querySelectorAll('#timeline-chart .ytick text')]"
        ".map((each) => each.textContent)"
    )
    assert any("rank 3" in name for name in names)
    field = shown.find("#timeline-ranks")
    field.clear()
    field.send_keys("77\n")
    shown.until("return document.getElementById('timeline-state').textContent"
                ".includes('rank 77 is not in this run')")  # fmt: skip


def test_a_range_of_iterations_can_be_typed(chromium: Any, served: Served) -> None:
    shown = Shown(chromium, served.address)
    shown.find("#range-iterations").send_keys("x\n")
    shown.until("return document.getElementById('range-state').textContent.includes('is not A:B')")
    field = shown.find("#range-iterations")
    field.clear()
    field.send_keys("3:9\n")
    shown.until(
        "return location.search === '?iter-range=3%3A9' "
        "&& document.documentElement.dataset.complete"
    )
    assert "6 iterations" in shown.text("[data-fill=facts]")


def test_what_the_thread_did_is_beside_the_median_rank(chromium: Any, tmp_path: Path) -> None:
    run = rankscope.ingest([captured("2023.4/why_fsync")], tmp_path / "why.duckdb", jobs=1)
    slow = run.compare().verdict.iterations[0]
    running = Served(run.db)
    try:
        shown = Shown(chromium, running.address, f"#cell=1/{slow}")
        shown.until("return !document.getElementById('states').hidden")
        assert "fsync" in shown.text("#states-table")
        other = next(i for i in run.compare().selection.numbers if i != slow)
        shown.ask(f"location.hash = '#cell=0/{other}'")
        shown.until(
            "return document.getElementById('states-table').textContent.includes('rank 0 (ms)')"
        )
        shown.is_quiet(running.address)
    finally:
        running.close()
