"""A database from somebody else reads no file, loads nothing, and replaces none of our tables."""

import os
import re
from pathlib import Path

import duckdb
import pytest

import rankscope
from rankscope import store
from rankscope.errors import DatabaseError, UsageError
from rankscope.store import Database
from rankscope.store.tables import TableRequest, read_table
from tests.support import Cli, MakeStored, change, mostly_nightly, mostly_slow

COMMANDS = (
    ("imbalance",), ("pick-reports",), ("plot", "heatmap"), ("export", "-o", "t.json"),
    ("report", "-o", "r.html"), ("ingest", "reports"), ("check",), ("view",),
    ("watch", "reports"),
)  # fmt: skip
NAMING = (("fleet",), ("diff",), ("capture", "torchrun", "--for"))
"""Commands that name databases without `--db`; all of them are other ways to the same door."""
SECRET = "not for the world"
LITTLE = {"memory_limit": "16MB"}


@pytest.mark.parametrize(
    "table", mostly_slow(["ranks", "reports", "rank_iterations", "activities"])
)
def test_a_view_in_place_of_a_table_is_refused(
    cli: Cli, db: Path, tmp_path: Path, stored: MakeStored, table: str
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    with duckdb.connect(str(db)) as connection:
        connection.execute(f"create table kept as select * from {table}")
        connection.execute(f"drop table {table}")
        path = "(select content from read_text('secret'))"
        columns = f"select * replace ({path} as path)" if table == "ranks" else "select *"
        connection.execute(f"create view {table} as {columns} from kept")
    (tmp_path / "reports").symlink_to(stored("plain").folder)
    for command in COMMANDS:
        result = cli(*command, "--db", db)
        result.refused(4, table, "view")
        assert SECRET not in result.out + result.err
    for command in NAMING:
        result = cli(*command, db, *([db] if command == ("diff",) else []))
        result.refused(4, table, "view")
        assert SECRET not in result.out + result.err


MACROS = (
    "strlen(x) as 0", "contains(a, b) as false", "hash(x) as random()", "count(x) as 4",
    "count_star() as 4", '"+"(a, b) as 99', '"||"(a, b) as null', "lower(x) as 'bigint'",
    "current_setting(x) as true", "list_count(x) as 0", "nothing() as table select 1",
    *(f"duckdb_{of}() as table select null as {of[:-1]}_name, null as column_name, "
      "null as data_type, null as column_default, 'main' as schema_name, false as internal "
      "where false" for of in ("views", "columns", "functions", "databases", "tables")),
)  # fmt: skip
"""Functions of DuckDB, as a file may define them anew."""


def test_macros_of_a_file_are_not_run(cli: Cli, db: Path, stored: MakeStored) -> None:
    """Neither where it is checked, nor for answers; a file that holds some is not written to."""
    expected = cli("imbalance", "--db", db, "--format", "json")
    with duckdb.connect(str(db)) as connection:
        for macro in MACROS:
            connection.execute(f"create macro {macro}")
        assert connection.execute("select 1 + 1, strlen('abc')").fetchall() == [(99, 0)]
    assert cli("imbalance", "--db", db, "--format", "json") == expected
    assert rankscope.open_run(db).sql("select strlen('abc') as n").item() == 3
    content, reports = db.read_bytes(), stored("plain").folder
    cli("ingest", reports, "--db", db, "--label", "mine").refused(4, "macro")
    assert db.read_bytes() == content


def test_macros_hide_nothing_from_the_door(cli: Cli, db: Path) -> None:
    with duckdb.connect(str(db)) as connection:
        connection.execute(f"update ranks set world_size = {2**40}")
        connection.execute("create table kept as from activities")
        for macro in MACROS:
            connection.execute(f"create macro {macro}")
    cli("imbalance", "--db", db).refused(4, "ranks.world_size")
    with duckdb.connect(str(db)) as connection:
        connection.execute("drop table activities")
        connection.execute("create view activities as from kept")
    for command in (("imbalance", "--db"), ("fleet",), ("diff", db), ("ingest", ".", "--db")):
        (db.parent / "r.sqlite").write_bytes(b"")
        cli(*command, db).refused(4, "activities", "view")


def test_a_column_that_is_computed_is_refused(cli: Cli, db: Path) -> None:
    with duckdb.connect(str(db)) as connection:
        columns = connection.execute("select * exclude (cpu) from ranks").description
        listed = ", ".join(f'"{name}" {kind}' for name, kind, *_ in columns)
        computed = "cpu varchar generated always as (repeat('x', rank * 10000000))"
        connection.execute(f"create table computed ({listed}, {computed})")
        connection.execute("insert into computed select * exclude (cpu) from ranks")
        connection.execute("drop table ranks")
        connection.execute("alter table computed rename to ranks")
    for command in (("imbalance", "--db"), ("fleet",)):
        cli(*command, db).refused(4, "ranks.cpu")


def test_columns_have_no_order(cli: Cli, db: Path) -> None:
    """A file may have more of them, and in any order."""
    expected = cli("imbalance", "--db", db, "--all", "--format", "json")
    with duckdb.connect(str(db)) as connection:
        tables = connection.execute("select table_name from duckdb_tables()").fetchall()
        for (name,) in tables:
            more = f"select 1 as extra, * from {name}"
            connection.execute(f"create or replace table {name} as {more}")
    assert cli("imbalance", "--db", db, "--all", "--format", "json") == expected


def test_a_view_in_a_ledger_is_refused(cli: Cli, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "fleet.duckdb")) as connection:
        for name in ("runs", "evidence"):
            connection.execute(f"create view fleet_{name} as select 1 as run")
    cli("fleet", "--store", "fleet.duckdb").refused(4, "no ledger")


def test_one_function_opens_databases() -> None:
    """Another way would miss the settings that close a connection to the outside.

    Import contracts keep DuckDB inside of the store.
    """
    opening = re.compile(
        r"\bduckdb\.(connect|sql|execute|query)|from duckdb|duckdb (as|\.)|import_module|\battach ",
        re.IGNORECASE,
    )
    sources = Path(store.__file__).parent.glob("*.py")
    assert [each.name for each in sources if opening.search(each.read_text())] == ["connection.py"]


@pytest.mark.parametrize(
    ("column", "value"), [("world_size", 2**40), ("world_size", 0), ("rank", -1)]
)
def test_numbers_of_ranks_that_no_job_has(cli: Cli, db: Path, column: str, value: int) -> None:
    change(db, f"update ranks set {column} = {value} where rank = 3")
    for command in (("imbalance", "--db"), ("fleet",), ("report", "-o", "r.html", "--db")):
        cli(*command, db).refused(4, f"ranks.{column} is {value}")


@pytest.mark.parametrize("value", mostly_nightly(["{", "1e999", "[1, 2]", "null", ""], 2))
def test_cached_answers_that_are_none(cli: Cli, db: Path, value: str) -> None:
    change(db, "update answers set value = ? where name = 'verdict'", value)
    for command in (("imbalance", "--db"), ("fleet",), ("pick-reports", "--db")):
        cli(*command, db).refused(4, "damaged", "answers")


@pytest.mark.parametrize("version", mostly_nightly(["²", "-1", "٣", "1e3", ""], 2))
def test_a_version_that_is_no_number(cli: Cli, db: Path, version: str) -> None:
    change(db, "update meta set value = ? where key = 'schema_version'", version)
    cli("imbalance", "--db", db).refused(4, "schema version")


QUERIES = {
    "read_text": "select content from read_text('{secret}')",
    "read_csv": "select * from read_csv('{secret}')",
    "copy": "copy ranks to '{secret}.csv'",
    "attach": "attach '{secret}.duckdb'",
    "load": "load '{secret}'",
    "install": "install httpfs",
    "a setting": "set enable_external_access = true",
    "unlocking": "set lock_configuration = false",
    "glob": "select * from glob('{secret}*')",
    "a view": "select * from spy",
}


@pytest.mark.parametrize("how", mostly_slow(QUERIES, 4))
def test_queries_reach_nothing_outside(db: Path, tmp_path: Path, how: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    with duckdb.connect(str(db)) as connection:
        connection.execute(f"create view spy as select content from read_text('{secret}')")
        assert SECRET in str(connection.execute("select * from spy").fetchall()), "it works"
    run = rankscope.open_run(db)
    with pytest.raises(UsageError) as refused:
        run.sql(QUERIES[how].format(secret=secret))
    assert SECRET not in refused.value.message
    assert [*tmp_path.glob("secret*")] == [secret]


@pytest.mark.parametrize("write", [False, True])
def test_every_connection_is_closed_to_the_outside(db: Path, tmp_path: Path, write: bool) -> None:
    with Database.open(db, write=write) as database:
        if write:
            database.shrink_cache()
        for setting in ("enable_external_access", "autoload_known_extensions",
                        "autoinstall_known_extensions"):  # fmt: skip
            assert database.query(f"select current_setting('{setting}') as v").item() is False
        assert database.query("select current_setting('lock_configuration') as v").item() is True


def test_reading_keeps_little_and_queries_may_have_more(db: Path) -> None:
    def limit(database: Database) -> str:
        output = database._connection.execute("select current_setting('memory_limit')").fetchall()
        return str(output[0][0])

    with Database.open(db) as reading, Database.open(db) as asking:
        before = limit(reading)
        assert before.endswith("MiB"), before
        for _ in range(2):
            assert asking.query("select count(*) c from ranks").item() == 4
        assert limit(asking).endswith("GiB")
    with Database.open(db) as reading:
        assert limit(reading) == before, "what a query had is not kept"
        with Database.open(db) as second:
            assert second.query("select 1 as one").item() == 1


def test_what_exceeds_the_memory_is_read_where_nothing_can_be_put_aside(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with duckdb.connect(str(db)) as connection:
        connection.execute(
            "insert into activities select row.* replace ('n' || i || repeat('x', 60) as name) "
            "from (from activities limit 1) as row, range(300000) as numbers(i)"
        )
    db.with_name(f"{db.name}.tmp").write_text("stands where DuckDB would put it aside")
    monkeypatch.setattr(store.connection, "TO_READ", store.connection.TO_READ | LITTLE)
    wanted = TableRequest("activities", ["name"], distinct=True)
    with Database.open(db) as database, pytest.raises(duckdb.Error):
        read_table(database._connection, wanted)
    with Database.open(db) as database:
        assert database.read(wanted).height >= 300_000


def test_a_fifo_is_no_database(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.duckdb")
    for command in (("imbalance",), ("ingest", "."), ("ingest", ".", "--rebuild")):
        (tmp_path / "r.sqlite").write_bytes(b"")
        cli(*command, "--db", "run.duckdb").refused(4, "run.duckdb", "regular file")
    for naming in (("fleet", "run.duckdb"), ("diff", "run.duckdb", "run.duckdb"),
                   ("capture", "torchrun", "--for", "run.duckdb")):  # fmt: skip
        cli(*naming).refused(4, "run.duckdb", "regular file")


@pytest.mark.parametrize(
    "command",
    ["imbalance --db", "fleet", "fleet --store", "check --db", "capture torchrun --for",
     "diff l.duckdb", "diff --baseline l.duckdb"],
)  # fmt: skip
def test_a_link_to_itself_is_no_database(cli: Cli, tmp_path: Path, command: str) -> None:
    (tmp_path / "l.duckdb").symlink_to("l.duckdb")
    result = cli(*command.split(), "l.duckdb")
    assert result.code in (2, 4), result.err
    result.refused(result.code, "l.duckdb")


def test_a_database_that_exists_by_now_is_taken(stored: MakeStored, db: Path) -> None:
    with Database.create(db) as database:
        assert database.table("ranks").height == 4, "nothing was overwritten"
    assert [each.name for each in db.parent.iterdir()] == [db.name], "nothing is left beside it"


def test_creation_says_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="no folder"):
        Database.create(tmp_path / "no" / "run.duckdb")
