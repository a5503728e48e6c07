"""Windows of one session (`nsys profile --capture-range-end=repeat`) are one report."""

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import rankscope
from rankscope.errors import ReportError
from tests.support import MakeForged, MakeStored, asked, edit, sqlite_tables


def window(report: Path, path: Path, begin: int, end: int) -> None:
    """What of a report starts in a time (ns), as a report of its own."""
    path.write_bytes(report.read_bytes())
    for table in sqlite_tables(path):
        columns = {name for _, name, *_ in asked(path, f"pragma table_info({table})")}
        if "start" not in columns or table.startswith("ANALYSIS"):
            continue
        edit(path, f"delete from {table} where start not between ? and ?", begin, end - 1)
        for column in columns & {"start", "end"}:
            edit(path, f'update {table} set "{column}" = "{column}" - ?', begin)
    edit(path, "update ANALYSIS_DETAILS set duration = ?", end - begin)
    edit(path, "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = utcEpochNs + ?", begin)


@pytest.fixture
def folder(forged: MakeForged, tmp_path: Path) -> Path:
    """Steps 0 to 5 and 7 to 11 of a job: two windows of each rank."""
    folder = tmp_path / "windows"
    folder.mkdir()
    for report in forged("plain", iterations=12).reports:
        borders = dict(
            asked(
                report,
                "select coalesce(n.text, s.value), n.start from NVTX_EVENTS n "
                "left join StringIds s on s.id = n.textId where n.eventType = 59",
            )
        )
        [(duration,)] = asked(report, "select duration from ANALYSIS_DETAILS")
        [first, second] = [
            next(start for name, start in borders.items() if name.endswith(f" {step}"))
            for step in (6, 7)
        ]
        window(report, folder / f"{report.stem}.1.sqlite", 0, first - 1000)
        window(report, folder / f"{report.stem}.2.sqlite", second - 1000, duration)
    return folder


@pytest.mark.slow
def test_windows_are_one_run_with_the_numbers_of_the_whole(
    folder: Path, stored: MakeStored, tmp_path: Path
) -> None:
    run = rankscope.ingest([folder], tmp_path / "run.duckdb", jobs=1)
    whole = stored("plain", iterations=12).run
    assert run.compare().facts.iterations == (1, 2, 3, 4, 5, 7, 8, 9, 10, 11)
    numbers = "select rank, iteration, clock, forward_ns, backward_ns, optimizer_ns from measures "
    inside = "where iteration in (2, 3, 4, 8, 9, 10) order by all"
    assert_frame_equal(run.sql(numbers + inside), whole.sql(numbers + inside))
    calls = "select rank, iteration, operation, ordinal, end_ns - arrival_ns from collectives "
    assert_frame_equal(run.sql(calls + inside), whole.sql(calls + inside))
    states = (
        "select rank, iteration, state, sum(total_ns) from host_states where iteration in (8, 9)"
    )
    order = " group by all order by all"
    assert_frame_equal(run.sql(states + order), whole.sql(states + order))
    shown = run.timeline([0, 1], [9]).collectives
    assert shown["wait_ns"].null_count() == 0
    assert pl.Series(run.sql("select windows from reports")["windows"]).null_count() == 0


@pytest.mark.parametrize("named", [True, False])
def test_reports_of_other_sessions_are_no_windows(
    folder: Path, tmp_path: Path, named: bool
) -> None:
    """By the id of the session, which older exports lack; else by how it was started."""
    for path in folder.iterdir():
        if not named:
            edit(path, "delete from META_DATA_CAPTURE where name = 'PROFILING_SESSION_UUID'")
        if path.name.endswith(".2.sqlite"):
            edit(path, "update META_DATA_CAPTURE set value = 'x' where name like '%SESSION_UUID'")
            edit(path, "update TARGET_INFO_SYSTEM_ENV set value = 'x' where name = 'Hostname'")
    with pytest.raises(ReportError, match="of 2 runs"):
        rankscope.ingest([folder], tmp_path / "run.duckdb", jobs=1)


def test_windows_that_overlap_are_refused(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("*.2.sqlite"):
        edit(
            path, "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = utcEpochNs - 10000000000"
        )
    with pytest.raises(ReportError, match="do not follow each other"):
        rankscope.ingest([folder], tmp_path / "run.duckdb", jobs=1)
