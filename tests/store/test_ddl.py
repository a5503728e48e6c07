"""The stored tables: one description each, in SQL and in frames."""

from pathlib import Path

import duckdb
import polars as pl
import pytest

from rankscope.history.fleet.evidence import TABLES as LEDGER
from rankscope.model.compared_tables import COMPARED_TABLES
from rankscope.model.metrics import measured_metrics
from rankscope.model.tables import TABLES
from rankscope.store import Database
from rankscope.store.database import replace_tables
from rankscope.store.ddl import ddl
from tests.store.schema_file import FILE


def test_schema_sql_is_what_databases_are_made_of() -> None:
    assert FILE.read_text("utf-8") == ddl(), "python -m tests.store.schema_file writes it"


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new database."""
    path = tmp_path_factory.mktemp("empty") / "run.duckdb"
    Database.create(path).close()
    return path


@pytest.mark.parametrize("name", TABLES)
def test_a_new_database_has_the_described_columns(name: str, empty: Path) -> None:
    with Database.open(empty) as database:
        assert database.table(name).schema == TABLES[name].schema
        output = database.query(
            f"select column_name, comment from duckdb_columns() where table_name = '{name}'"
        )
    assert dict(output.iter_rows()) == {
        column: described.meaning for column, described in TABLES[name].columns.items()
    }


def test_every_metric_of_one_rank_is_stored() -> None:
    assert {each.column for each in measured_metrics()} <= {*TABLES["measures"].columns}


EVERY = TABLES | COMPARED_TABLES | {f"of a ledger: {name}": each for name, each in LEDGER.items()}


@pytest.mark.parametrize("name", EVERY)
def test_every_number_is_bounded(name: str) -> None:
    for column, described in EVERY[name].columns.items():
        is_number = described.dtype.is_numeric() or described.dtype.is_nested()
        bounded = described.limits or described.dtype == pl.List(pl.Int32)  # which holds no others
        assert bounded or not is_number, column


def test_a_column_that_nobody_described_is_an_error(empty: Path) -> None:
    clocks = pl.DataFrame(schema=COMPARED_TABLES["clocks"].schema | {"nonsense_ns": pl.Int64})
    with duckdb.connect(":memory:") as memory, pytest.raises(ValueError, match="nonsense_ns"):
        replace_tables(memory, {"clocks": clocks})
