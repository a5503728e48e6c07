"""Rows of a file are checked once, as long as nothing shows that it may have changed since."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from rankscope.model.tables import TABLES
from rankscope.store import Database, checked, contents, door
from tests.support import MakeStored

Reading = Callable[[], bool]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of what was checked; nothing was."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rankscope" / "checked" / "files.json"


@pytest.fixture
def db(stored: MakeStored, tmp_path: Path, memory: Path) -> Path:
    """A database of somebody else."""
    return Path(shutil.copy(stored("plain").db, tmp_path / "run.duckdb"))


@pytest.fixture
def checks(db: Path, monkeypatch: pytest.MonkeyPatch) -> Reading:
    """Reads a table, and says whether its rows were checked."""
    seen: list[Any] = []

    def check_rows(*given: Any) -> None:
        seen.append(given[1])
        contents.check_rows(*given)

    monkeypatch.setattr(door, "check_rows", check_rows)

    def reading() -> bool:
        seen.clear()
        with Database.open(db) as database:
            database.table("measures")
        return "measures" in seen

    return reading


def replaced(db: Path, _: Path) -> None:
    """Another file of the same size, as old as the first."""
    of = db.stat()
    shutil.copy(db, db.with_name("other"))
    os.utime(db.with_name("other"), ns=(of.st_atime_ns, of.st_mtime_ns))
    db.with_name("other").replace(db)


def changed(db: Path, _: Path) -> None:
    """Something was written, and its time set back."""
    of = db.stat()
    first = db.read_bytes()[:1]
    with db.open("r+b") as file:
        file.write(first)
    os.utime(db, ns=(of.st_atime_ns, of.st_mtime_ns))


def no_json(_: Path, memory: Path) -> None:
    """A file that was cut."""
    memory.write_bytes(memory.read_bytes()[:-1])


def writable_by_others(_: Path, memory: Path) -> None:
    """A folder that others may have written to."""
    memory.parent.chmod(0o777)


def linked(_: Path, memory: Path) -> None:
    """A folder of somebody else."""
    moved = memory.parent.rename(memory.parents[2] / "moved")
    memory.parent.symlink_to(moved)


def test_rows_are_checked_once(checks: Reading, db: Path) -> None:
    assert [checks(), checks()] == [True, False]
    linked = db.with_name("linked")
    linked.symlink_to(db)
    with Database.open(linked) as database:
        assert "measures" in database.known.checked


@pytest.mark.parametrize("since", [replaced, changed, no_json, writable_by_others, linked])
def test_they_are_checked_again_after(
    checks: Reading, db: Path, memory: Path, since: Callable[[Path, Path], None]
) -> None:
    checks()
    since(db, memory)
    assert checks()


def test_each_version_of_the_code_remembers_what_it_checked_itself(
    checks: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks()
    with monkeypatch.context() as other:
        other.setattr(checked, "source_digest", lambda *_: "other code")
        assert [checks(), checks()] == [True, False]
    assert not checks()


def test_they_are_checked_each_time_where_no_folder_can_be_made(
    checks: Reading, monkeypatch: pytest.MonkeyPatch, db: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(db / "cache"))
    assert [checks(), checks()] == [True, True]


def test_some_rows_of_a_table_are_not_the_table(checks: Reading, db: Path) -> None:
    with Database.open(db) as database:
        door.check_table(database._connection, "measures", database.known, [3])
    assert checks()


def test_what_was_changed_while_it_was_read_is_checked_again(checks: Reading, db: Path) -> None:
    with Database.open(db) as database:
        database.table("measures")
        changed(db, db)
    assert checks()


def test_what_a_writer_wrote_is_not_checked_again(db: Path, checks: Reading) -> None:
    with Database.open(db, write=True) as database:
        database.table("measures")
        database.note("name", "value")
        database.checkpoint()
    assert not checks()
    new = db.with_name("new.duckdb")
    with Database.create(new) as database:
        database.checkpoint()
    with Database.open(new) as database:
        assert {*TABLES} <= {*database.known.checked}


def test_a_file_that_took_the_place_of_a_written_one_is_checked(db: Path, checks: Reading) -> None:
    with Database.open(db, write=True) as database:
        database.table("measures")
        replaced(db, db)
        database.checkpoint()
    assert checks()


def test_a_file_with_a_log_of_changes_is_checked(db: Path, checks: Reading) -> None:
    checks()
    log = db.with_name(db.name + ".wal")
    log.touch()
    assert checks()
    with Database.open(db, write=True) as database:
        database.table("measures")
        database.note("name", "value")  # is in the log until it is written into the file
        assert log.exists()
    log.unlink(missing_ok=True)
    assert checks()


def test_what_was_remembered_first_is_forgotten(
    db: Path, checks: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked, "MOST_FILES", 2)
    checks()
    checked.remember("one", ["ranks"])
    assert not checks()
    checked.remember("two", ["ranks"])
    assert checked.remembered("one") == ["ranks"]
    assert checks()


def test_a_file_that_is_no_run_is_not_remembered(tmp_path: Path, memory: Path) -> None:
    duckdb.connect(tmp_path / "other.duckdb").close()
    Database.check_replaceable(tmp_path / "other.duckdb")
    assert not memory.exists()
