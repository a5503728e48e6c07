"""Reports that come in quick succession share a transaction, each still whole or not there."""

from pathlib import Path

import pytest

from rankscope.measure.report import extract
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportRows
from rankscope.sources import discover
from rankscope.store import Database, ReportWriter
from tests.forge import forge, scene


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[ReportRows]:
    folder = tmp_path_factory.mktemp("reports")
    forge(scene("plain", ranks=3, iterations=4), folder)
    return [extract(file, ShapingOptions()) for file in discover.discover([folder])]


def test_the_first_is_written_at_once_and_the_next_soon(
    reports: list[ReportRows], tmp_path: Path
) -> None:
    with Database.create(tmp_path / "run.duckdb") as database:
        coming = ReportWriter(database, "{}", wait_s=600.0)
        seen = []
        for rows in reports:
            coming.add(rows)
            seen.append(database.table("ranks")["rank"].to_list())
        assert seen == [[0], [0], [0]]
        coming.flush()
        assert sorted(database.table("ranks")["rank"]) == [0, 1, 2]
        assert database.table("iterations").height == 3 * 4


def test_many_rows_do_not_wait(reports: list[ReportRows], tmp_path: Path) -> None:
    with Database.create(tmp_path / "run.duckdb") as database:
        coming = ReportWriter(database, "{}", wait_s=600.0, most_rows=10)
        for count, rows in enumerate(reports, start=1):
            coming.add(rows)
            assert database.table("reports").height == count
