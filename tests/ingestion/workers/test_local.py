"""Mapping over reports: results and errors alike come back, from one process or several."""

import logging
import os
import signal
import sys
import time
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rankscope.errors import ReportBug, ReportError, UnreadableReport
from rankscope.ingestion.workers import local, map_reports
from rankscope.ingestion.workers.local import AHEAD, WorkerPool
from rankscope.measure.report import extract
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile, ReportRows
from rankscope.sources.columns.sqlite_pages import loader
from rankscope.sources.discover import describe, discover
from tests.ingestion.workers.waiting import until
from tests.support import MakeForged, copied, mostly_slow


@pytest.mark.parametrize("jobs", mostly_slow([2, 1, None]))
def test_rows_and_errors_come_back(forged: MakeForged, tmp_path: Path, jobs: int | None) -> None:
    reports = copied(forged("plain", iterations=12).reports, tmp_path)
    reports[2].write_bytes(b"")
    before = [*sys.warnoptions]
    results = dict(map_reports(extract, discover([tmp_path]), ShapingOptions(), jobs))
    assert len(results) == 4
    assert sys.warnoptions == before
    for file, result in results.items():
        if file.path == reports[2]:
            assert isinstance(result, UnreadableReport)
            assert result.hint
        else:
            assert isinstance(result, ReportRows)
            assert f"_{result.ranks[0].rank.identity.rank}." in file.path.name


def broken(file: ReportFile, options: ShapingOptions) -> int:
    if file.path.name == "rank_1":
        raise ZeroDivisionError("of what is in the report")
    return file.bytes


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bug_is_the_error_of_one_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, jobs: int
) -> None:
    files = made(tmp_path, 3)
    with caplog.at_level(logging.INFO, "rankscope"):
        results = dict(map_reports(broken, files, ShapingOptions(), jobs))
    error = results.pop(files[1])
    assert isinstance(error, ReportBug)
    assert "rank_1: " in error.message
    assert "bug in rankscope (ZeroDivisionError)" in error.message
    assert "of what is in the report" not in error.message
    assert sorted(results.values()) == [0, 2]
    assert "Traceback (most recent call last):" in caplog.messages
    assert "ZeroDivisionError: of what is in the report" in caplog.messages


def made(folder: Path, count: int) -> list[ReportFile]:
    """Files as they were found."""
    for number in range(count):
        (folder / f"rank_{number}").write_bytes(b"x" * number)
    return [describe(folder / f"rank_{number}", "nsys-sqlite") for number in range(count)]


def deadly(file: ReportFile, options: ShapingOptions) -> str:
    """A small report kills its reader each time, the largest one the first time."""
    if file.path.name == "rank_1":
        os.kill(os.getpid(), signal.SIGKILL)
    seen = file.path.parent / "seen"
    if file.path.name == "rank_7" and not seen.exists():
        seen.touch()
        os.kill(os.getpid(), signal.SIGSEGV)
    return file.path.name


@pytest.mark.slow
def test_a_report_that_kills_its_reader_twice_is_the_error(tmp_path: Path) -> None:
    files = made(tmp_path, 8)
    results = dict(map_reports(deadly, files, ShapingOptions(), 2))
    assert len(results) == 8
    error = results.pop(files[1])
    assert isinstance(error, ReportError)
    assert "rank_1: " in error.message
    assert "SIGKILL" in error.message
    assert "memory" in error.message
    assert "--jobs 1" in error.hint
    assert all(result == file.path.name for file, result in results.items())


def deadly_when_all_are_submitted(file: ReportFile, options: ShapingOptions) -> str:
    """The largest kills its reader then; the others end only where they are read alone."""
    folder = file.path.parent
    if file.path.name == "rank_19":
        until((folder / "submitted").exists)
        os.kill(os.getpid(), signal.SIGKILL)
    until((folder / "alone").exists)
    return file.path.name


@pytest.mark.slow
def test_few_reports_are_read_alone_for_one_that_kills_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are in progress."""
    alone: list[list[ReportFile]] = []
    each_alone = WorkerPool._each_alone

    def noted(pool: WorkerPool, read: Any, files: list[ReportFile]) -> Any:
        alone.append(files)
        (tmp_path / "alone").touch()
        return each_alone(pool, read, files)

    monkeypatch.setattr(WorkerPool, "_each_alone", noted)
    files = made(tmp_path, 20)
    got = map_reports(deadly_when_all_are_submitted, files, ShapingOptions(), 2)
    (tmp_path / "submitted").touch()
    results = dict(got)
    assert isinstance(results.pop(files[19]), ReportError)
    assert {*results.values()} == {each.path.name for each in files[:19]}
    assert [len(each) for each in alone] == [AHEAD * 2]


def taken_along(file: ReportFile, options: ShapingOptions) -> str:
    """The smaller report kills its reader, and the larger one's with it, which is killed again."""
    with (file.path.parent / f"reads of {file.path.name}").open("a") as reads:
        times = reads.tell()
        reads.write(".")
    if file.path.name == "rank_0":
        until((file.path.parent / "reads of rank_1").exists)
        os.kill(os.getpid(), signal.SIGKILL)
    if times == 0:
        until(lambda: False)
    if times == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return file.path.name


@pytest.mark.slow
def test_a_report_lost_with_another_is_not_blamed_for_one_end_of_its_reader(tmp_path: Path) -> None:
    files = made(tmp_path, 2)
    results = dict(map_reports(taken_along, files, ShapingOptions(), 2))
    assert isinstance(results[files[0]], ReportError)
    assert results[files[1]] == "rank_1"


def ends_at_once(file: ReportFile, options: ShapingOptions) -> None:
    os._exit(1)


@pytest.mark.slow
def test_workers_that_all_end_are_an_error_of_each_report(tmp_path: Path) -> None:
    results = dict(map_reports(ends_at_once, made(tmp_path, 3), ShapingOptions(), 2))
    assert len(results) == 3
    assert all(isinstance(error, ReportError) for error in results.values())


def vanishing(file: ReportFile, options: ShapingOptions) -> int:
    """What happens to reports while they are read."""
    if file.path.name == "rank_0":
        file.path.write_bytes(b"more")
    elif file.path.name == "rank_1":
        os.utime(file.path, (1, 1))  # back in time
    elif file.path.name == "rank_2":
        file.path.unlink()
        file.path.read_bytes()
    elif file.path.name == "rank_3":
        file.path.write_bytes(b"")
        raise UnreadableReport(f"{file.path}: is truncated", hint="copy it again")
    return file.bytes


def test_reports_that_change_while_they_are_read_are_errors(tmp_path: Path) -> None:
    files = made(tmp_path, 5)
    results = dict(map_reports(vanishing, files, ShapingOptions(), 1))
    said = [getattr(results[file], "message", None) for file in files]
    ends = ["changed while it was read"] * 2 + ["vanished while it was read", "changed while"]
    assert all(end in str(text) for end, text in zip(ends, said, strict=False)), said
    assert said[4] is None


def begun(file: ReportFile, options: ShapingOptions) -> int:
    (file.path.parent / "begun" / f"{file.bytes}").touch()
    return file.bytes


@pytest.mark.slow
def test_largest_reports_first_and_no_more_than_are_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "AHEAD_BYTES", 0)
    files = made(tmp_path, 20)
    (tmp_path / "begun").mkdir()
    with closing(WorkerPool(2)) as crew:
        crew.start(files)
        results = crew.map(begun, files, ShapingOptions())
        taken = [got for _, got in islice(results, 3)]
        time.sleep(0.5)  # whoever could, would have gone on
        reached = sorted(int(path.name) for path in (tmp_path / "begun").iterdir())
        assert len(reached) <= len(taken) + 2 * AHEAD
        largest = [*range(20)][-len(reached) - 1 :]  # a worker may have just begun with one
        assert {*reached} <= {*largest}
        assert sorted([*taken, *(got for _, got in results)]) == [*range(20)]


@pytest.mark.slow
def test_workers_begin_before_a_result_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    with closing(WorkerPool(2)) as crew:
        crew.map(begun, made(tmp_path, 20), ShapingOptions())
        until(lambda: len([*(tmp_path / "begun").iterdir()]) == 20)


def reader(file: ReportFile, options: ShapingOptions) -> int:
    return os.getpid()


def test_exports_that_are_read_before_a_worker_has_begun_need_none(tmp_path: Path) -> None:
    exports, pool = made(tmp_path, 9)[1:], WorkerPool(cores=2)
    traces = [replace(file, kind="kineto") for file in exports]
    assert pool._worker_count(exports) == 0
    assert pool._worker_count(traces) == 2


@pytest.mark.slow
def test_this_process_reads_in_place_of_a_worker_where_all_are_small(tmp_path: Path) -> None:
    files = made(tmp_path, 12)
    with closing(WorkerPool(cores=2)) as pool:
        read = dict(pool.map(reader, files, ShapingOptions()))
    assert {*read} == {*files}
    assert len({*read.values()}) == 2
    assert os.getpid() in read.values()
    asked_for = dict(map_reports(reader, files, ShapingOptions(), jobs=2))
    assert os.getpid() not in asked_for.values()


@pytest.mark.slow
def test_only_exports_are_a_reason_to_load_their_compiled_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [file] = made(tmp_path, 1)
    for kind, times in (("kineto", 0), ("nsys-sqlite", 1), ("nsys-report", 4)):
        amount = loader.Amount()
        monkeypatch.setattr(loader, "amount", amount)
        WorkerPool(jobs=1).map(reader, [replace(file, kind=kind)], ShapingOptions())
        assert amount.announced == times * file.bytes


def grown(file: ReportFile, options: ShapingOptions) -> int:
    """More memory than loky takes for innocent, and longer than it goes without a look."""
    if len(HELD) < 2:
        HELD.append(b"x" * (170 * 2**20))
    time.sleep(0.6)
    return os.getpid()


HELD: list[bytes] = []


@pytest.mark.slow
def test_a_worker_that_has_read_a_large_report_reads_on(tmp_path: Path) -> None:
    pytest.importorskip("psutil", reason="without it loky looks at no memory")
    files = made(tmp_path, 8)
    with closing(WorkerPool(2)) as crew:
        crew.start(files)
        workers = [got for _, got in crew.map(grown, files, ShapingOptions())]
    assert len({*workers}) == 2


@pytest.mark.slow
def test_the_traceback_of_a_bug_is_kept_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    error = dict(map_reports(broken, made(tmp_path, 2), ShapingOptions(), jobs=1)).popitem()[1]
    path = tmp_path / "cache/rankscope/errors.log"
    assert isinstance(error, ReportBug)
    assert str(path) in (error.hint or "")
    assert "ZeroDivisionError" in path.read_text("utf-8")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
