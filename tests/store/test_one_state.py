"""Each command answers from one state of a database, whoever writes to it meanwhile."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

import rankscope
from rankscope import api
from rankscope.errors import DatabaseChanged, DatabaseError
from rankscope.history.fleet import collect
from rankscope.store import Database, run_reader
from tests.support import Cli, MakeStored, mostly_slow

COMMANDS = (
    "imbalance --iter-range 5:9 --by kernel --db",
    "imbalance --by iteration --metric load --db",
    "pick-reports --iter-range 5:9 --db",
    "plot timeline --db",
    "plot heatmap --db",
    "report -o r.html --db",
    "export -o t.json --db",
    "export -o t.csv --iter-range 5:9 --db",
    "check --db",
    "diff whole.duckdb",
    "fleet",
    "capture torchrun --for",
)


@pytest.fixture
def db(stored: MakeStored, tmp_path: Path) -> Path:
    """A database that may be changed."""
    return Path(shutil.copy(stored("planted").db, tmp_path / "run.duckdb"))


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["1", "0"])
@pytest.mark.parametrize("command", mostly_slow(COMMANDS))
def test_a_database_that_is_replaced_as_soon_as_it_is_open(
    cli: Cli, db: Path, monkeypatch: pytest.MonkeyPatch, command: str, cache: str
) -> None:
    """Whatever is read afterwards is of the database that was opened."""
    shutil.copy(db, db.with_name("whole.duckdb"))
    expected = cli(*command.split(), db)

    @contextmanager
    def opened(path: Path, *options: float) -> Iterator[tuple[Database, tuple[int, ...]]]:
        with run_reader.opened(path, *options) as found:
            if path == db:
                db.with_name("new").write_text("no database")
                db.with_name("new").replace(db)
            yield found

    monkeypatch.setattr(api, "opened", opened)
    monkeypatch.setattr(collect, "opened", opened)
    monkeypatch.setattr(run_reader, "SMALL_BYTES", 0)
    monkeypatch.setenv("RANKSCOPE_CACHE", cache)
    result = cli(*command.split(), db)
    assert result.code == expected.code == 0, result.err
    assert result.out == expected.out
    assert db.read_text() == "no database"


def test_a_run_learns_that_its_database_is_another(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_reader, "SMALL_BYTES", 0)
    run = rankscope.open_run(db)
    db.touch()
    assert run.compare().verdict.sentence, "what is in memory stays"
    with pytest.raises(DatabaseChanged, match="has changed since it was opened"):
        run.compare().rows()


WRITE = "import sys, duckdb; duckdb.connect(sys.argv[1])"


@pytest.mark.parametrize("write", [False, True])
def test_what_is_opened_twice_stays_locked(db: Path, write: bool) -> None:
    """A process that closes a file loses all its locks on it."""
    with Database.open(db, write=write):
        with Database.open(db, write=write):
            pass
        with pytest.raises(DatabaseError, match="is in use by this process") as refused:
            Database.open(db, write=not write, patience_s=0)
        assert refused.value.hint.startswith("close its other connections")
        done = subprocess.run([sys.executable, "-c", WRITE, db], capture_output=True, check=False)
        assert done.returncode, "another process can write to it"
        assert b"lock" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["md:run.duckdb", ":memory:", "sqlite:run.duckdb"])
def test_names_that_mean_something_else_to_duckdb(cli: Cli, stored: MakeStored, name: str) -> None:
    assert cli("ingest", stored("plain").folder, "--db", name).code == 0
    assert Path(name).is_file()
    assert cli("imbalance", "--db", name).code == 0


def test_a_file_that_duckdb_would_open_in_memory_is_no_database(
    cli: Cli, stored: MakeStored
) -> None:
    stored("plain").run.tables.ranks.write_parquet("ranks.parquet")
    shutil.copy("ranks.parquet", "ranks.duckdb")
    for name in ("ranks.parquet", "ranks.duckdb"):
        cli("imbalance", "--db", name).refused(4, name, "no rankscope database")
        cli("ingest", stored("plain").folder, "--db", name).refused(
            4, name, "no rankscope database"
        )
    with duckdb.connect("others.duckdb") as connection:
        connection.execute("create table things (size int)")
    for words in (("imbalance",), ("ingest", stored("plain").folder, "--rebuild")):
        result = cli(*words, "--db", "others.duckdb")
        result.refused(
            4, "no rankscope database", "name another file", "reports are named without it"
        )
    assert Path("ranks.parquet").read_bytes() == Path("ranks.duckdb").read_bytes()
