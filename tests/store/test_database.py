"""The DuckDB file: commented, versioned, whole or not at all."""

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import rankscope
from rankscope.compare.stages import compare
from rankscope.errors import DatabaseError, UsageError
from rankscope.model.metrics import METRICS
from rankscope.model.options import Options
from rankscope.store import Database
from tests.support import SAMPLE, Cli, MakeStored, Stored, change


def test_every_table_and_column_is_explained(sample: Stored) -> None:
    tables = sample.run.sql("select table_name, comment from duckdb_tables()")
    assert {"reports", "ranks", "iterations", "measures", "rank_iterations"} <= {
        *tables["table_name"]
    }
    assert tables.filter(tables["comment"].is_null()).is_empty()
    columns = sample.run.sql(
        "select table_name, column_name, comment from duckdb_columns() where not internal"
    )
    bare = columns.filter(columns["comment"].is_null())
    assert bare.is_empty(), bare.rows()


def test_rank_iterations_is_the_wide_table(sample: Stored) -> None:
    table = sample.run.sql("select * from rank_iterations order by rank, iteration")
    promised = [
        "rank",
        "iteration",
        *(each.column for each in METRICS.values()),
        "flagged",
        "cause",
    ]
    assert {*promised} <= {*table.columns}
    computed = compare(sample.run.tables, Options())  # not from this very table
    assert computed.table is not None
    assert table.equals(computed.rank_iterations().select(table.columns))
    assert table.height == 4 * 30


def test_times_are_integers(sample: Stored) -> None:
    types = sample.run.sql(
        "select distinct data_type from duckdb_columns() where suffix(column_name, '_ns')"
    )
    assert types["data_type"].to_list() == ["BIGINT"]


def test_queries_cannot_write(db: Path) -> None:
    run = rankscope.open_run(db)
    for query in ("delete from measures", "create table t (i int)", "drop table ranks"):
        with pytest.raises(UsageError, match="query failed"):
            run.sql(query)
    assert run.sql("select count(*) n from ranks")["n"].item() == 4


def test_a_wrong_query_says_which_tables_there_are(db: Path) -> None:
    with pytest.raises(UsageError) as refused:
        rankscope.open_run(db).sql("select * from nonsense")
    assert "rank_iterations" in refused.value.hint
    assert "\n" not in refused.value.message


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"gone\.duckdb") as refused:
        rankscope.open_run(tmp_path / "gone.duckdb")
    assert "ingest" in refused.value.hint
    assert not (tmp_path / "gone.duckdb").exists()


@pytest.mark.parametrize("version", ["99", "0", "nonsense"])
def test_a_database_of_another_version(db: Path, version: str) -> None:
    change(db, "update meta set value = ? where key = 'schema_version'", version)
    with pytest.raises(DatabaseError, match=r"run\.duckdb.*version") as refused:
        rankscope.open_run(db)
    assert ("newer rankscope" in refused.value.hint) == (version == "99")
    with duckdb.connect(str(db)) as connection:  # let go of
        assert connection.execute("select count(*) from ranks").fetchone() == (4,)


def test_a_folder_in_its_place(tmp_path: Path, cli: Cli) -> None:
    with pytest.raises(DatabaseError, match=str(tmp_path)):
        rankscope.open_run(tmp_path)
    for path in (".", "/"):  # folders without a name
        cli("imbalance", "--db", path).refused(4, f"{path}: is a folder")
        cli("ingest", SAMPLE, "--db", path).refused(4, f"{path}: is a folder")


def test_readers_do_not_lock_each_other_out(db: Path) -> None:
    with Database.open(db) as one, Database.open(db) as other:
        assert one.table("ranks").equals(other.table("ranks"))


def _fail_halfway(database: Database) -> None:
    with database.transaction():
        database._connection.execute("delete from ranks")
        raise RuntimeError("on purpose")


def test_a_transaction_that_fails_leaves_nothing(db: Path) -> None:
    with Database.open(db, write=True) as database:
        with pytest.raises(RuntimeError, match="on purpose"):
            _fail_halfway(database)
        assert database.table("ranks").height == 4


SPILLING = """
import sys, time
from pathlib import Path
from rankscope.store.connection import connect
connection = connect(Path(sys.argv[1]), read_only=True)
connection.execute("set memory_limit = '64MB'")
connection.execute(
    "create temp table t as select hash(range) a, hash(range + 1) b, hash(range + 2) c "
    "from range(6000000)"
)
print("spilled", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_what_did_not_fit_into_the_memory_of_a_killed_process_is_removed(
    stored: MakeStored, tmp_path: Path
) -> None:
    """By the next one that writes to the file, and not as long as its process lives."""
    db = Path(shutil.copy(stored("plain").db, tmp_path / "run.duckdb"))
    process = subprocess.Popen(
        [sys.executable, "-c", SPILLING, db], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "spilled\n"
    folder = tmp_path / "run.duckdb.tmp"
    there = {*folder.iterdir()}
    assert there
    assert rankscope.open_run(db).imbalance().verdict.sentence
    with pytest.raises(DatabaseError, match="in use"):
        Database.open(db, write=True, patience_s=0)
    assert {*folder.iterdir()} == there
    process.kill()
    process.communicate()
    Database.open(db, write=True).close()
    assert [*tmp_path.iterdir()] == [db]
