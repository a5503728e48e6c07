"""What a database cannot hold is refused in one line; what it can hold is answered.

`python -m tests.bench.contents` tries 3,000 changes with every command.
"""

import os
from pathlib import Path
from shutil import copy

import pytest

from rankscope.errors import DatabaseError
from rankscope.model.columns import out_of_bounds
from rankscope.model.compared_tables import COMPARED_TABLES
from rankscope.model.tables import TABLES
from rankscope.store import Database, contents, database
from rankscope.store.connection import MAGIC_AT
from rankscope.store.tables import TableRequest
from tests.bench.contents import Change
from tests.support import (
    ROOT,
    Cli,
    MakeForged,
    MakeStored,
    copied,
    edit,
    mostly_nightly,
    mostly_slow,
    python,
)


@pytest.fixture
def whole(stored: MakeStored) -> Path:
    """A database to copy."""
    return stored("plain").db


SPOILED = {
    "null": ("iterations", "update iterations set start_ns = null where rank = 1"),
    "not finite": ("clocks", "update clocks set drift_ppm = 'nan'"),
    "infinite": ("what_if", "update what_if set gain = 'inf'"),
    "negative": ("measures", "update measures set load_ns = -1 where iteration = 3"),
    "huge": ("collectives", "update collectives set start_ns = -9223372036854775808"),
    "no name": ("activities", "update activities set phase = 'x'"),
    "doubled": ("iterations", "insert into iterations from iterations limit 1"),
    "doubled answer": ("answers", "insert into answers from answers limit 1"),
    "of no rank": ("measures", "update measures set rank = 99 where rank = 1"),
    "of no iteration": ("collectives", "update collectives set iteration = 999"),
    "of no report": ("ranks", "update ranks set path = '/nowhere'"),
    "a rank without iterations": ("iterations", "delete from iterations where rank = 2"),
    "a rank without score": ("scores", "delete from scores where rank = 2"),
    "ends before its start": ("exposed", "update exposed set end_ns = start_ns - 1"),
    "no path": ("reports", "update reports set path = chr(0) || path"),
    "no JSON": ("reports", "update reports set options = '1e999'"),
    "other JSON": ("reports", "update reports set windows = '[1]'"),
    "long lists": (
        "by_iteration",
        "update by_iteration set flagged_ranks = range(1000001) where iteration = 3",
    ),
    "another type": ("rank_iterations", "alter table rank_iterations alter flagged type varchar"),
    "text for a rank": ("ranks", "alter table ranks alter rank type varchar"),
    "no column": ("scores", "alter table scores drop work_ns"),
}
"""What is wrong → the table that is named, and how it came about."""


@pytest.mark.parametrize("what", mostly_slow(SPOILED, 8))
def test_what_a_database_cannot_hold_is_refused(
    cli: Cli, whole: Path, tmp_path: Path, what: str
) -> None:
    table, statement = SPOILED[what]
    loose = f"create or replace table {table} as from {table}"
    db = Change(what, (loose, statement)).made(whole, tmp_path / "run.duckdb")
    cached = table in COMPARED_TABLES or table in ("ranks", "reports", "problems")
    if not cached:
        os.environ["RANKSCOPE_CACHE"] = "0"
    try:
        for command in (("imbalance", "--db"), ("report", "-o", "r.html", "--db")):
            cli(*command, db).refused(4, str(db), "damaged", table if table != "answers" else "")
    finally:
        os.environ.pop("RANKSCOPE_CACHE", None)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("update collectives set bytes = -1 where rank = 1", "collectives.bytes is -1"),
        ("update collectives set rank = 99 where rank = 1", "has rank 99"),
        ("update collectives set iteration = 999 where rank = 1", "has rank 1, iteration 999"),
        ("delete from iterations where rank = 1 and iteration = 5", "has rank 1, iteration 5"),
        ("insert into collectives from collectives limit 1", "twice"),
        ("delete from collectives where rank = 1", ""),
    ],
)
@pytest.mark.parametrize("many", [0, contents.MANY_ROWS])
def test_tables_are_refused_whatever_their_size(
    whole: Path, tmp_path: Path, statement: str, message: str, many: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(contents, "MANY_ROWS", many)
    loose = (f"create or replace table {each} as from {each}" for each in TABLES)
    db = Change("", (*loose, statement)).made(whole, tmp_path / "run.duckdb")
    last = 999 if "999" in message else 7
    for iterations in (None, range(last + 1), [*range(0, last, 5), last]):
        wanted = TableRequest("collectives", iterations=iterations)
        with Database.open(db) as reading:
            if message:
                with pytest.raises(DatabaseError, match=message):
                    reading.read(wanted)
            else:
                assert 1 not in reading.read(wanted)["rank"]


def test_rows_of_a_file_that_took_the_place_of_a_new_one_are_checked(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = Change("", (SPOILED["negative"][1],)).made(whole, tmp_path / "other.duckdb")
    monkeypatch.setattr(database, "take_place", lambda _, target: copy(db, target))
    with (
        Database.create(tmp_path / "run.duckdb") as made,
        pytest.raises(DatabaseError, match="measures"),
    ):
        made.table("measures")


@pytest.mark.parametrize(
    "statement",
    [
        "update activities set count = -1 where iteration = 5",
        "update activities set rank = 99 where iteration = 5",
        "insert into activities from activities where iteration = 5",
    ],
)
def test_the_rows_of_the_iterations_that_are_read_are_checked(
    whole: Path, tmp_path: Path, statement: str
) -> None:
    loose = "create or replace table activities as from activities"
    db = Change("", (loose, statement)).made(whole, tmp_path / "run.duckdb")
    with Database.open(db) as database:
        for numbers in ([3, 4], [4]):
            rows = database.read(TableRequest("activities", iterations=numbers))
            assert {*rows["iteration"]} == {*numbers}
        for wrong in ([4, 5], None):
            with pytest.raises(DatabaseError, match="activities"):
                database.read(TableRequest("activities", iterations=wrong))


def test_the_different_values_that_are_read_are_checked(whole: Path, tmp_path: Path) -> None:
    loose = "create or replace table activities as from activities"
    wrong = "update activities set count = -1 where iteration = 5"
    db = Change("", (loose, wrong)).made(whole, tmp_path / "run.duckdb")
    with Database.open(db) as database:
        kinds = database.read(TableRequest("activities", ["kind"], distinct=True))
        assert kinds["kind"].is_unique().all()
        for request in (
            TableRequest("activities", ["count"], distinct=True),
            TableRequest("activities", ["kind"]),
        ):
            with pytest.raises(DatabaseError, match="count"):
                database.read(request)


@pytest.mark.parametrize(
    "statement",
    [
        "update answers set value = replace(value, '\"ranks\":[]', '\"ranks\":[99]') "
        "where name = 'verdict'",
        "update answers set value = '{}' where name in ('roles', 'metrics')",
        "update answers set value = regexp_replace(value, '\"numbers\":.[0-9,]*', '\"numbers\":[') "
        "where name = 'scope'",
        "delete from by_iteration where iteration = 3",
        "delete from what_if where kind = 'all'",
        "drop table rank_iterations",
        "create or replace table rank_iterations as select * exclude (iteration) "
        "from rank_iterations",
    ],
)
def test_answers_that_contradict_the_tables_are_refused(
    cli: Cli, whole: Path, tmp_path: Path, statement: str
) -> None:
    db = Change("", (statement,)).made(whole, tmp_path / "run.duckdb")
    cli("imbalance", "--db", db).refused(4, str(db), "damaged")


def test_an_ideal_time_of_nothing_divides_nothing(cli: Cli, whole: Path, tmp_path: Path) -> None:
    nothing = "update what_if set time_ns = 0, gain = 1, gain_ns = 1000000 where kind = 'all'"
    db = Change("", (nothing,)).made(whole, tmp_path / "run.duckdb")
    result = cli("imbalance", "--gain", "--db", db)
    assert result.code == 0, result.err
    assert "would take no time" in result.out


def test_a_table_of_too_many_rows_is_refused_before_it_is_read(
    cli: Cli, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "MOST_ROWS", 100_000)
    many = "insert into problems select '/x', 'c', 'm', null from range(100001)"
    db = Change("", (many,)).made(whole, tmp_path / "run.duckdb")
    cli("imbalance", "--db", db).refused(
        4, str(db), "too large", "problems has 100,001 rows", "--ranks"
    )


@pytest.mark.parametrize("place", mostly_nightly([0.02, 0.3, 0.98, 0.5, 0.7], 3))
def test_a_flipped_byte_is_damage(cli: Cli, whole: Path, tmp_path: Path, place: float) -> None:
    db = tmp_path / "run.duckdb"
    content = bytearray(whole.read_bytes())
    for at in range(int(place * len(content)), len(content), 4096):
        content[at] ^= 1
        if at - int(place * len(content)) > 2**18:
            break
    assert content[MAGIC_AT : MAGIC_AT + 4] == b"DUCK"
    db.write_bytes(content)
    for command in (("imbalance", "--db"), ("fleet",), ("check", "--db")):
        result = cli(*command, db)
        assert result.code in (0, 4), result.err
        if result.code:
            result.refused(4, str(db))


def test_rows_of_reports_obey_the_limits_of_the_store(stored: MakeStored) -> None:
    with Database.open(stored("plain").db) as database:
        for name, table in TABLES.items():
            rows = database.table(name)
            assert out_of_bounds(name, rows, table) is None
            for column, described in table.columns.items():
                if described.limits and not described.dtype.is_nested() and rows.height:
                    beyond = rows.with_columns(**{column: described.limits[1] + 1})
                    assert f"{name}.{column} is" in str(out_of_bounds(name, beyond, table))


@pytest.mark.slow
def test_changed_databases_get_clear_answers() -> None:
    """In a process of its own, whose address space is limited; nightly tries all of them."""
    every = os.environ.get("RANKSCOPE_CONTENTS", "150")
    done = python("-m", "tests.bench.contents", every, cwd=ROOT, timeout=3000)
    assert done.code == 0, (done.out[-3000:], done.err[-3000:])


@pytest.mark.parametrize(
    ("what", "statement"),
    mostly_nightly(
        [
            ("activities.size is", "update CUPTI_ACTIVITY_KIND_MEMCPY set bytes = -5"),
            ("activities.size is", "update CUPTI_ACTIVITY_KIND_MEMCPY set bytes = 1 << 61"),
        ]
    ),
)
def test_a_report_with_what_no_database_takes_is_unreadable(
    cli: Cli, forged: MakeForged, tmp_path: Path, what: str, statement: str
) -> None:
    reports = copied(forged("plain").reports, tmp_path / "reports")
    edit(reports[1], statement)
    cli("ingest", "reports", "--jobs", 1).refused(3, reports[1].name, what)
    result = cli("ingest", "reports", "--jobs", 1, "--on-error", "skip", "--db", "some.duckdb")
    assert result.code == 0, result.err
    assert reports[1].name in result.err
