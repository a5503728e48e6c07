"""Reports that arrive one after the other, in windows, half-written, again after a restart."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

import rankscope
from rankscope.ingestion import preflight
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile
from rankscope.sources.same_job import Capture
from rankscope.watch import windows as databases
from rankscope.watch.arrivals import OLD_S
from tests.support import edit, in_use
from tests.watch.arriving import HOUR_NS, RANKS, SLOW, Windows, announced, arrive, classes, watcher


def test_reports_come_one_after_the_other(folder: Path, db: Path, windows: Windows) -> None:
    watch = watcher(folder, db)
    assert announced(watch) == []
    assert not db.exists()
    for report in windows[0][:-1]:
        arrive([report], folder)
        assert announced(watch) == [], "the window is not complete"
    arrive(windows[0][-1:], folder)
    [first] = announced(watch)
    assert classes([first]) == [(1, "balanced", True)]
    assert first.comparison.facts.ranks == (0, 1, 2)
    assert announced(watch) == []
    assert announced(watcher(folder, db)) == [], "known after a restart"


@pytest.mark.slow
def test_a_half_written_report_is_not_read(folder: Path, tmp_path: Path, windows: Windows) -> None:
    whole = windows[1][SLOW].read_bytes()
    arrive(windows[1][:SLOW], folder)
    part = folder / windows[1][SLOW].name
    part.write_bytes(whole[: len(whole) // 2])
    slow = watcher(folder, tmp_path / "patient.duckdb", settle_s=60)
    poll = slow.poll()
    assert (poll.taken, poll.growing, poll.problems) == (0, RANKS, ())
    hasty = watcher(folder, tmp_path / "hasty.duckdb")
    poll = hasty.poll()
    assert poll.taken == SLOW
    [warning] = poll.problems
    assert part.name in warning.message
    assert hasty.failed == 1
    assert announced(hasty) == [], "it is warned of once"
    part.write_bytes(whole)
    assert classes(announced(hasty)) == [(1, "persistent", True)]
    assert hasty.failed == 0


@pytest.mark.slow
def test_a_report_is_complete_when_it_rests(
    folder: Path, db: Path, tmp_path: Path, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr("rankscope.watch.arrivals.time.monotonic", lambda: now)
    [report] = arrive(windows[0][:1], folder)
    watch = watcher(folder, db, settle_s=10)
    assert watch.poll().growing == 1
    now += 9
    assert watch.poll().growing == 1
    with report.open("ab") as file:
        file.write(b"\0" * 4096)
    now += 9
    assert watch.poll().growing == 1, "it changed meanwhile"
    now += 10
    assert watch.poll().growing == 0
    old = time.time() - OLD_S - 11
    os.utime(report, (old, old))
    again = watcher(folder, tmp_path / "again.duckdb", settle_s=10)
    assert again.poll().growing == 0, "old files need no second look"


@pytest.mark.slow
def test_each_window_has_a_database(
    folder: Path, db: Path, tmp_path: Path, windows: Windows
) -> None:
    watch = watcher(folder, db)
    arrive(windows[0], folder)
    assert classes(announced(watch)) == [(1, "balanced", True)]
    mixed = arrive(windows[1], folder, "b_")[:-1] + arrive(windows[2], folder, "c_")
    (folder / f"b_{windows[1][-1].name}").unlink()
    assert classes(announced(watch)) == [(3, "persistent", True)], "2 waits for its last rank"
    arrive(windows[1][-1:], folder, "b_")
    assert classes(announced(watch)) == [(2, "persistent", True)]
    assert announced(watcher(folder, db)) == []
    for number, reports in zip((1, 2, 3), windows, strict=True):
        path = db.with_stem(f"run-{number}") if number > 1 else db
        run = rankscope.open_run(path)
        assert run.tables.ranks["rank"].to_list() == [0, 1, 2]
        assert len({*run.tables.ranks["path"]}) == len(reports)
    assert len(mixed) == 5
    assert len([*tmp_path.glob("*.duckdb")]) == 3


@pytest.mark.slow
def test_reports_that_are_overwritten_each_hour(
    folder: Path, db: Path, tmp_path: Path, windows: Windows
) -> None:
    watch = watcher(folder, db)
    found = []
    for reports in windows:
        for some in (reports[:1], reports[1:]):
            arrive(some, folder)
            found += announced(watch)
    assert classes(found) == [
        (1, "balanced", True),
        (2, "persistent", True),
        (3, "persistent", False),
    ]
    assert [each.previous is None for each in found] == [True, False, False]
    assert sorted(each.name for each in tmp_path.glob("*.duckdb")) == [
        "run-2.duckdb", "run-3.duckdb", "run.duckdb",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_window_without_all_ranks_is_compared_in_the_end(
    folder: Path, db: Path, windows: Windows
) -> None:
    arrive(windows[1][1:], folder)
    watch = watcher(folder, db)
    assert announced(watch) == []
    assert announced(watcher(folder, db), once=True) == []
    poll = watcher(folder, db).poll(once=True)
    assert poll.waiting == ("window 1 has 2 of 3 ranks: its verdict waits for more",)
    for report in folder.iterdir():
        old = time.time() - 400
        os.utime(report, (old, old))
    late = announced(watcher(folder, db), once=True)
    assert [each.comparison.facts.ranks for each in late] == [(1, 2)]
    arrive(windows[1][:1], folder)
    complete = watcher(folder, db)
    assert [each.window for each in announced(complete)] in ([], [1]), "if it changed"
    latest = complete.latest()
    assert latest is not None
    assert latest[1].verdict.ranks == (SLOW,)
    assert latest[1].facts.ranks == (0, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("by_s", [-86_400, 86_400])
def test_a_clock_that_is_set_while_it_watches(
    folder: Path, db: Path, windows: Windows, monkeypatch: pytest.MonkeyPatch, by_s: int
) -> None:
    """Patience is time that passes; a clock that is set back or ahead does not change it."""
    arrive(windows[1][1:], folder)
    watch, now, on_the_wall = (
        watcher(folder, db),
        time.monotonic(),
        time.time(),
    )
    monkeypatch.setattr("rankscope.watch.watcher.time.monotonic", lambda: now)
    assert announced(watch) == []
    monkeypatch.setattr("rankscope.watch.watcher.time.time", lambda: on_the_wall + by_s)
    assert announced(watch) == []
    now += 301
    assert [each.comparison.facts.ranks for each in announced(watch)] == [(1, 2)]


@pytest.mark.slow
def test_reports_of_tomorrow_keep_no_verdict_back(folder: Path, db: Path, windows: Windows) -> None:
    for report in arrive(windows[1][1:], folder):
        os.utime(report, (time.time() + 86_400,) * 2)
    found = announced(watcher(folder, db), once=True)
    assert [each.comparison.facts.ranks for each in found] == [(1, 2)]


@pytest.mark.slow
def test_an_export_beside_its_report_is_no_other_window(
    folder: Path, db: Path, windows: Windows
) -> None:
    watch = watcher(folder, db)
    arrive(windows[0], folder)
    assert len(announced(watch)) == 1
    arrive(windows[0], folder, "copy_")
    assert announced(watch) == []
    assert len([*watch.windows]) == 1


@pytest.mark.slow
def test_a_database_in_use_is_waited_for(folder: Path, db: Path, windows: Windows) -> None:
    watch = watcher(folder, db)
    arrive(windows[0], folder)
    assert len(announced(watch)) == 1
    with in_use(db):
        arrive(windows[1], folder)
        again = watcher(folder, db)
        [warning] = again.poll().problems
        assert "in use" in warning.message
        assert again.poll().problems == ()
    assert classes(announced(again)) == [(2, "persistent", True)]


@pytest.mark.slow
def test_a_report_that_vanishes_is_a_warning(
    folder: Path, db: Path, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    [gone] = arrive(windows[0][:1], folder)
    captures = preflight.captures

    def late(*given: Any) -> Any:
        found = captures(*given)
        gone.unlink(missing_ok=True)
        return found

    monkeypatch.setattr("rankscope.watch.watcher.captures", late)
    watch = watcher(folder, db)
    [warning] = watch.poll().problems
    assert gone.name in warning.message
    arrive(windows[0], folder)
    monkeypatch.setattr("rankscope.watch.watcher.captures", captures)
    assert classes(announced(watch)) == [(1, "balanced", True)]


@pytest.mark.slow
def test_a_database_that_is_removed_is_made_again(folder: Path, db: Path, windows: Windows) -> None:
    watch = watcher(folder, db)
    arrive(windows[0], folder)
    assert len(announced(watch)) == 1
    db.unlink()
    assert classes(announced(watch)) == [(1, "balanced", True)]


def test_captures_without_times_go_by_the_times_of_their_files(tmp_path: Path) -> None:
    """As PyTorch traces, whose times are known once their events are read."""
    windows = databases.Windows(tmp_path / "run.duckdb", ShapingOptions().to_json())
    minute = 60 * 10**9
    reports = [
        (
            ReportFile(path, "kineto", 1, hour * HOUR_NS + late * minute),
            Capture(path, (rank,), 2, None, None, None),
        )
        for rank, hour, late in ((0, 0, 0), (0, 1, 0), (1, 1, 2), (1, 0, 3))
        for path in [tmp_path / f"rank{rank}.{hour}.json"]
    ]
    placed = [windows.windows_of([each]) for each in reports]
    assert [[window.number for window, _ in each] for each in placed] == [[1], [2], [2], [1]]
    again = databases.Windows(tmp_path / "run.duckdb", ShapingOptions().to_json())
    at_once = {
        window.number: {file.path.name for file in files}
        for window, files in again.windows_of(reports)
    }
    assert at_once == {1: {"rank0.0.json", "rank1.0.json"}, 2: {"rank0.1.json", "rank1.1.json"}}


@pytest.mark.slow
def test_two_jobs_in_one_folder_have_windows_of_their_own(
    folder: Path, db: Path, windows: Windows
) -> None:
    for number in (1, 2):
        for report in arrive(windows[number], folder, f"job{number}_"):
            start = "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = utcEpochNs - ?"
            edit(report, start, number * HOUR_NS)
    watch = watcher(folder, db)
    poll = watch.poll()
    assert [{path.name[:4] for path in each.taken} for each in watch.windows] == [
        {"job1"},
        {"job2"},
    ]
    assert [each.code for each in poll.problems] == ["several-jobs"]
