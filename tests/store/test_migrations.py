"""Databases of older schemas: what can be kept opens, what cannot is refused by name.

`data/schema_2.duckdb.xz` holds `sample_reports/ddp_4ranks` as the first rankscope of schema 2
ingested it. It must open for as long as the schema version stays.
"""

import lzma
from pathlib import Path

import duckdb
import polars as pl
import pytest

import rankscope
from rankscope.errors import DatabaseError
from rankscope.model.columns import Column
from rankscope.model.tables import TABLES
from rankscope.store import Database
from rankscope.store.tables import TableRequest
from tests.support import SAMPLE, change

OLD = Path(__file__).parent / "data" / "schema_2.duckdb.xz"
NEW = Column(pl.Int64(), "A column that databases did not have", is_nullable=True)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database as an older rankscope wrote it."""
    path = tmp_path / "old.duckdb"
    path.write_bytes(lzma.decompress(OLD.read_bytes()))
    return path


def test_an_older_database_opens_and_says_who_is_slow(old: Path) -> None:
    """Of what the sample is: rank 2 loads late in every fifth iteration."""
    content = old.read_bytes()
    run = rankscope.open_run(old)
    verdict = run.imbalance().verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("periodic", (2,), "load")
    assert verdict.iterations == (2, 7, 12, 17, 22, 27)
    assert run.iterations().height == 4 * 30
    assert old.read_bytes() == content, "reading leaves the file as it is"


def test_an_older_database_takes_new_reports(old: Path) -> None:
    """The reports of the test lie elsewhere, so they are other reports of the same ranks."""
    with duckdb.connect(str(old)) as connection:
        for table in ("reports", "ranks", "problems"):
            connection.execute(
                f"update {table} set path = replace(path, '/profiles', ?)", [str(SAMPLE.resolve())]
            )
    run = rankscope.ingest([SAMPLE], old)
    assert run.sql("select count(*) as n from reports").item() == 4
    assert run.imbalance().verdict.ranks == (2,)


def test_a_new_column_is_null_for_readers_and_added_by_writers(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLES["measures"].columns, "new_count", NEW)
    content = old.read_bytes()
    with Database.open(old) as database:
        rows = database.read(TableRequest("measures", ["rank", "new_count"], ranks=[1]))
        assert rows.height
        assert rows["new_count"].is_null().all()
        assert database.query("select new_count from measures")["new_count"].is_null().all()
    assert old.read_bytes() == content
    Database.open(old, write=True).close()
    with duckdb.connect(str(old)) as connection:
        output = connection.execute(
            "select data_type, comment from duckdb_columns() where column_name = 'new_count'"
        ).fetchall()
        assert output == [("BIGINT", NEW.meaning)]


def test_a_required_column_that_is_missing_is_damage(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    required = Column(pl.Int64(), NEW.meaning)
    monkeypatch.setitem(TABLES["measures"].columns, "new_count", required)
    with pytest.raises(DatabaseError, match=r"old\.duckdb.*measures\.new_count") as refused:
        Database.open(old)
    assert "--rebuild" in refused.value.hint


def test_where_reports_must_be_read_again_they_are_named(old: Path) -> None:
    change(old, "update meta set value = '1' where key = 'schema_version'")
    with pytest.raises(DatabaseError, match=r"old\.duckdb.*version 1") as refused:
        rankscope.open_run(old)
    for rank in range(3):
        assert f"/profiles/report_rank_{rank}.sqlite" in refused.value.message
    assert "1 more" in refused.value.message
    assert "--rebuild" in refused.value.hint


def test_a_wrong_query_of_our_own_is_a_bug_and_no_damage(old: Path) -> None:
    with Database.open(old) as database, pytest.raises(duckdb.BinderException):
        database.read(TableRequest("measures", ["nonsense"]))
