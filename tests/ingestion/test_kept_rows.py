"""What `check` extracted is taken over by the `ingest` that follows, and by nobody else."""

import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import rankscope
from rankscope.ingestion import job, kept_rows
from rankscope.ingestion.check import check
from rankscope.measure import report
from rankscope.measure.report import extract
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile, ReportRows
from rankscope.sources.discover import discover, united
from rankscope.store import Database
from tests.support import MakeForged, copied, mostly_nightly, mostly_slow

TABLES = ("ranks", "iterations", "measures", "collectives", "activities", "problems")


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of kept rows, empty."""
    monkeypatch.setattr(kept_rows, "cache_home", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "rows"


@pytest.fixture
def extracted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the reports that were extracted, since the test emptied it."""
    names: list[str] = []

    def noted(file: ReportFile, options: ShapingOptions) -> ReportRows:
        names.append(file.path.name)
        return extract(file, options)

    monkeypatch.setattr(kept_rows, "extract", noted)
    monkeypatch.setattr(report, "extract", noted)
    return names


@pytest.fixture
def folder(forged: MakeForged, tmp_path: Path) -> Path:
    """Two reports, to spoil."""
    copied(forged("plain", iterations=12).reports[:2], tmp_path / "reports")
    return tmp_path / "reports"


def ingest(folder: Path, db: str, **options: Any) -> dict[str, pl.DataFrame]:
    """What is in the new database."""
    run = rankscope.ingest([folder], folder.parent / db, jobs=1, **options)
    with Database.open(run.db) as database:
        return {name: database.table(name) for name in TABLES}


def test_ingest_takes_what_check_extracted(folder: Path, cache: Path, extracted: list[str]) -> None:
    usual = ingest(folder, "usual.duckdb")
    extracted.clear()
    first = check([folder], jobs=1)
    assert len(extracted) == len([*cache.iterdir()]) == 2
    assert check([folder], jobs=1) == first
    assert len(extracted) == 2, "another check takes them, too"
    taken = ingest(folder, "taken.duckdb")
    assert len(extracted) == 2
    for name in TABLES:
        assert_frame_equal(taken[name], usual[name], check_row_order=False)
    assert not [*cache.iterdir()], "what is in a database is not kept"


@pytest.mark.slow
def test_a_folder_is_named_in_another_way(
    folder: Path, cache: Path, extracted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check([folder], jobs=1)
    extracted.clear()
    monkeypatch.chdir(folder.parent)
    done = job.ingest_reports([folder.name], "run.duckdb", jobs=1)
    assert not extracted
    assert {outcome.path.parent for outcome in done.outcomes} == {Path(folder.name)}


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_a_report_that_changed_is_extracted(folder: Path, extracted: list[str]) -> None:
    check([folder], jobs=1)
    reports = sorted(folder.iterdir())
    os.utime(reports[1], ns=(0, 0))
    extracted.clear()
    ingest(folder, "touched.duckdb")
    assert extracted == [reports[1].name]


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("options", mostly_slow([{"rebuild": True}, {"iteration": "whole"}]))
def test_with_other_options_reports_are_extracted(
    folder: Path, extracted: list[str], options: dict[str, Any]
) -> None:
    check([folder], jobs=1)
    extracted.clear()
    ingest(folder, "other.duckdb", **options)
    assert len(extracted) == 2


@pytest.mark.slow
@pytest.mark.parametrize("content", mostly_nightly([b"cbuiltins\nint\n.", b"\x80\x04N.", b""]))
def test_a_damaged_file_is_none(
    folder: Path, cache: Path, extracted: list[str], content: bytes
) -> None:
    check([folder], jobs=1)
    for path in cache.iterdir():
        path.write_bytes(content)
    extracted.clear()
    ingest(folder, "run.duckdb")
    assert len(extracted) == 2
    assert not [*cache.iterdir()]


def test_files_take_little_room_and_are_not_kept_for_ever(folder: Path, cache: Path) -> None:
    check([folder], jobs=1)
    sizes = [path.stat().st_size for path in cache.iterdir()]
    old, unfinished = next(cache.iterdir()), cache / ".unfinished"
    unfinished.mkdir()
    for each in (old, unfinished):
        os.utime(each, (0, 0))
    kept_rows.keeping(2)
    assert len([*cache.iterdir()]) == 1
    shutil.rmtree(cache)
    keeping = kept_rows.keeping(2, most_bytes=2 * min(sizes) - 2)
    for file in united(discover([folder]))[0]:
        keeping(file, ShapingOptions())
    assert not [*cache.iterdir()]


@pytest.mark.slow
def test_rows_of_others_are_not_read(
    folder: Path, cache: Path, extracted: list[str], tmp_path: Path
) -> None:
    check([folder], jobs=1)
    shutil.move(cache, tmp_path / "theirs")
    cache.symlink_to(tmp_path / "theirs")
    extracted.clear()
    check([folder], jobs=1)
    ingest(folder, "run.duckdb")
    assert len(extracted) == 4
    assert len([*(tmp_path / "theirs").iterdir()]) == 2
