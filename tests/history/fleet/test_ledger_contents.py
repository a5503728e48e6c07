"""What no ledger can hold is refused in one line; what it can hold is answered."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from rankscope.history.fleet.collect import add_to_ledger, merged, read_ledger
from rankscope.history.fleet.evidence import TABLES
from rankscope.store import contents
from tests.bench.contents import Change, column_values, loose
from tests.history.fleet.fleets import Plan, fleet
from tests.support import Cli


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger to copy."""
    path = tmp_path_factory.mktemp("ledger") / "whole.duckdb"
    made = fleet(Plan("card", 1, jobs=6))[0]
    add_to_ledger(path, merged(made.runs, made.evidence))
    return path


SPOILED = {
    "null": ("runs", "update fleet_runs set ranks = null"),
    "negative": ("evidence", "update fleet_evidence set guilty = -1"),
    "huge": ("evidence", "update fleet_evidence set cost_ns = 9223372036854775807"),
    "more guilty than compared": ("evidence", "update fleet_evidence set guilty = iterations + 1"),
    "a run twice": ("runs", "insert into fleet_runs from fleet_runs limit 1"),
    "a rank twice": ("evidence", "insert into fleet_evidence from fleet_evidence limit 1"),
    "another type": ("runs", "alter table fleet_runs alter ranks type varchar"),
    "no column": ("evidence", "alter table fleet_evidence drop guilty"),
}
"""What is wrong → the table that is named, and how it came about."""


@pytest.mark.parametrize("what", SPOILED)
def test_what_a_ledger_cannot_hold_is_refused(
    cli: Cli, whole: Path, tmp_path: Path, what: str
) -> None:
    table, statement = SPOILED[what]
    path = Change(what, (statement,)).made(whole, tmp_path / "fleet.duckdb")
    cli("fleet", "--store", path).refused(4, str(path), "damaged", f"fleet_{table}", "--store")


def test_a_ledger_of_too_many_rows_is_not_read(
    cli: Cli, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "MOST_ROWS", 2)
    cli("fleet", "--store", whole).refused(4, str(whole), "too large")


def test_a_damaged_ledger_is_named(cli: Cli, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "fleet.duckdb"
    content = bytearray(whole.read_bytes())
    for at in range(4096 * 3, len(content), 997):
        content[at] ^= 1
    path.write_bytes(content)
    cli("fleet", "--store", path).refused(4, str(path), "--store")


def changes() -> Iterator[Change]:
    """A change of each column of a ledger's tables to each value that it should not have."""
    for name, table in TABLES.items():
        stored = f"fleet_{name}"
        for column, described in table.columns.items():
            for value in column_values(described):
                update = f'update {stored} set "{column}" = {value}'
                for where in ("rowid = 0", "true"):
                    yield Change(f"{column} = {value}", (loose(stored), f"{update} where {where}"))
        yield Change(f"{name} without rows", (f"delete from {stored}",))
        yield Change(f"{name} without a row", (f"delete from {stored} where rowid = 0",))


@pytest.mark.slow
def test_a_changed_ledger_gets_a_clear_answer(cli: Cli, whole: Path, tmp_path: Path) -> None:
    refused = 0
    for number, change in enumerate(changes()):
        path = change.made(whole, tmp_path / "fleet.duckdb")
        more = ("--html", "f.html") if number % 5 == 0 else ("--prometheus", "f.prom")
        output = cli("fleet", "--store", path, *more)
        if output.code:
            output.refused(4, str(path))
            refused += 1
    assert refused > 50


def test_a_copy_of_it_is_the_same(whole: Path, tmp_path: Path) -> None:
    """Nothing of a whole one is refused, nor of one that lacks what may be null."""
    path = Path(shutil.copy(whole, tmp_path / "older.duckdb"))
    with duckdb.connect(str(path)) as connection:
        for name, table in TABLES.items():
            for column in (each for each, output in table.columns.items() if output.is_nullable):
                connection.execute(f'alter table fleet_{name} drop "{column}"')
    older, now = read_ledger(path), read_ledger(whole)
    assert (older.runs.height, older.evidence.height) == (now.runs.height, now.evidence.height)
    assert older.runs.schema == now.runs.schema
