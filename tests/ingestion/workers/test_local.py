"""Mapping over reports: results and errors alike come back, from one process or several."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from rankscope.errors import UnreadableReport
from rankscope.ingestion.workers import map_reports
from rankscope.ingestion.workers.local import AHEAD, WorkerPool, available_cores
from rankscope.measure.report import extract
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile, ReportRows
from rankscope.sources.discover import discover
from tests.support import Forged, copied


@pytest.mark.parametrize("jobs", [1, 2, None])
def test_rows_and_errors_come_back(
    forged: Callable[..., Forged], tmp_path: Path, jobs: int | None
) -> None:
    reports = copied(forged("plain", iterations=12).reports, tmp_path)
    reports[2].write_bytes(b"")
    results = dict(map_reports(extract, discover([tmp_path]), ShapingOptions(), jobs))
    assert len(results) == 4
    for file, result in results.items():
        if file.path == reports[2]:
            assert isinstance(result, UnreadableReport)
            assert result.hint
        else:
            assert isinstance(result, ReportRows)
            assert f"_{result.ranks[0].rank.identity.rank}." in file.path.name


def test_bugs_are_not_swallowed(forged: Callable[..., Forged]) -> None:
    def broken(*_: object) -> ReportRows:
        raise ZeroDivisionError

    files = discover([forged("plain", iterations=12).folder])
    with pytest.raises(ZeroDivisionError):
        list(map_reports(broken, files, ShapingOptions(), 1))


def begun(file: ReportFile, options: ShapingOptions) -> int:
    (file.path / f"{file.bytes}").touch()
    return file.bytes


def test_largest_reports_first_and_no_more_than_are_taken_in(tmp_path: Path) -> None:
    files = [ReportFile(tmp_path, "nsys-sqlite", size, 0) for size in range(20)]
    with closing(WorkerPool(2)) as crew:
        crew.start(files)
        results = crew.map(begun, files, ShapingOptions())
        taken = [got for _, got in islice(results, 3)]
        time.sleep(0.5)  # whoever could, would have gone on
        reached = sorted(int(path.name) for path in tmp_path.iterdir())
        assert len(reached) <= len(taken) + 2 * AHEAD
        assert reached == [*range(20)][-len(reached) :]
        assert sorted([*taken, *(got for _, got in results)]) == [*range(20)]


def test_cores_are_those_this_process_may_use() -> None:
    import os

    assert 1 <= available_cores() <= (os.cpu_count() or 1)


def grown(file: ReportFile, options: ShapingOptions) -> int:
    """More memory than loky takes for innocent, and longer than it goes without a look."""
    if len(HELD) < 2:
        HELD.append(b"x" * (170 * 2**20))
    time.sleep(0.6)
    return os.getpid()


HELD: list[bytes] = []


def test_a_worker_that_has_read_a_large_report_reads_on() -> None:
    pytest.importorskip("psutil", reason="without it loky looks at no memory")
    files = [ReportFile(Path(str(number)), "nsys-sqlite", 0, 0) for number in range(8)]
    with closing(WorkerPool(2)) as crew:
        crew.start(files)
        workers = [got for _, got in crew.map(grown, files, ShapingOptions())]
    assert len({*workers}) == 2
