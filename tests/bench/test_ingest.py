"""The benchmark of ingest works, on reports too small to measure anything."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

import rankscope
from tests.bench import plain, rivals
from tests.bench.beside import beside
from tests.bench.costs import Failed, cost
from tests.bench.growth import with_size
from tests.bench.host_rows import with_host_rows
from tests.bench.reports import large_report, large_reports
from tests.bench.tables import put

pytestmark = pytest.mark.slow

MB = 10**6


def test_rows_of_threads_are_those_of_the_training_thread(tmp_path: Path) -> None:
    report = large_report(1, tmp_path / "report_rank_0.sqlite")
    (tmp_path / "full").mkdir()
    with_host_rows(report, 10_000, tmp_path / "full" / report.name)
    run = rankscope.ingest([tmp_path / "full"], tmp_path / "run.duckdb", jobs=1)
    assert {*run.tables.host_states["state"]} >= {"on_cpu", "off_cpu", "blocked", "cuda_call"}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return large_reports(2, tmp_path_factory.mktemp("bench") / "exports", 3)


def test_large_reports_are_those_of_one_job(reports: list[Path], tmp_path: Path) -> None:
    run = rankscope.ingest(reports, tmp_path / "run.duckdb", jobs=1)
    assert all(1.5 * MB < report.stat().st_size < 2.5 * MB for report in reports)
    assert run.imbalance().verdict.ranks == (2,)
    assert run.imbalance().verdict.cause == "forward"
    assert run.ingested is not None
    read = sum(plain.read(str(report)) for report in reports)
    assert read == sum(plain.frames(str(report)) for report in reports)
    assert 0.99 < run.ingested.events / read <= 1, "both read the same, but for names"


@pytest.mark.parametrize("table", ["KERNEL", "MEMCPY"])
def test_device_work_has_the_call_that_launched_it(reports: list[Path], table: str) -> None:
    """Else a copy is taken for one of an iteration long before, whose window then hides others."""
    with closing(sqlite3.connect(reports[0])) as connection:
        rows = connection.execute(
            f"select w.start > c.start from CUPTI_ACTIVITY_KIND_{table} w "
            "left join CUPTI_ACTIVITY_KIND_RUNTIME c using (correlationId)"
        ).fetchall()
    assert rows
    assert all(launched_before for (launched_before,) in rows)


def test_ways_are_run_side_by_side(reports: list[Path], tmp_path: Path) -> None:
    ways = rivals.of_nsys(tmp_path / "nothing is installed here")
    some = [way for way in ways if "recipe" not in way.name and "frames" not in way.name]
    own, plain, own_of_parquet, absent = beside(some, reports, 1, 1).splitlines()[2:]
    assert "| 1.00 × | 1.00 × |" in own
    assert plain.startswith("| sqlite3 of Python, the same columns | ")
    assert own_of_parquet.startswith("| rankscope ingest, of Parquet | ")
    assert "| 1.00 × | 1.00 × |" in own_of_parquet
    assert absent.startswith("| nsys-ai, its import | – (not installed) |")


def test_tables_of_growth(tmp_path: Path) -> None:
    *_, line = with_size((0.5,), 1, tmp_path).splitlines()
    assert line.split("|")[-2].strip().removesuffix(" MB").isdigit()


def test_what_a_command_costs() -> None:
    burn = "import time\nhold = b'x' * 150_000_000\nwhile time.process_time() < 0.4: pass\nprint(7)"
    took = cost([sys.executable, "-c", burn], {})
    assert json.loads(took.output) == 7
    assert took.seconds >= took.cpu_s >= 0.3
    assert 150 * MB < took.peak_bytes < 300 * MB
    with pytest.raises(Failed, match="no such thing"):
        cost([sys.executable, "-c", "raise SystemExit('no such thing')"], {})


def test_a_table_replaces_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("a\n<!-- x -->\nold\n<!-- /x -->\nb\n")
    put("new", "x", page)
    assert page.read_text() == "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n"
    with pytest.raises(ValueError, match="no place for y"):
        put("new", "y", page)
