"""A ledger: the answers of the runs without the runs, and no writer loses anything."""

import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest

from rankscope.errors import DatabaseError
from rankscope.history.fleet.collect import Collected, add_to_ledger, merged, read_ledger
from rankscope.history.fleet.evidence import TABLES
from rankscope.history.fleet.fleet import fleet_of
from rankscope.store.ledger import Ledger
from tests.history.fleet.fleets import Plan, fleet
from tests.support import change, in_use

WRITER = """
import sys
from pathlib import Path
from rankscope.history.fleet.collect import add_to_ledger, read_ledger
from tests.history.fleet.fleets import Plan, fleet
from tests.history.fleet.test_ledger import one_by_one
target, part = Path(sys.argv[1]), int(sys.argv[2])
for place, run in enumerate(one_by_one(fleet(Plan("card", 1, jobs=12))[0])):
    if place % 2 == part:
        add_to_ledger(target, run)
"""


def one_by_one(collected: Collected) -> list[Collected]:
    """The evidence of each run."""
    return [
        merged(
            collected.runs.filter(run=run),
            collected.evidence.filter(run=run),
        )
        for run in collected.runs["run"]
    ]


@pytest.fixture
def collected() -> Collected:
    made = fleet(Plan("card", 1))[0]
    return merged(made.runs, made.evidence)


def test_a_run_that_comes_again_replaces_itself(tmp_path: Path, collected: Collected) -> None:
    path = tmp_path / "fleet.duckdb"
    add_to_ledger(path, collected)
    again = one_by_one(collected)[0]
    moved = merged(again.runs.with_columns(db=pl.lit("elsewhere.duckdb")), again.evidence)
    add_to_ledger(path, moved)
    found = read_ledger(path)
    assert found.runs.height == collected.runs.height
    assert found.evidence.height == collected.evidence.height
    assert "elsewhere.duckdb" in found.runs["db"]


@pytest.mark.slow
def test_a_ledger_and_more_runs(tmp_path: Path, collected: Collected) -> None:
    path = tmp_path / "fleet.duckdb"
    runs = one_by_one(collected)
    for run in runs[:20]:
        add_to_ledger(path, run)
    rest = merged(
        pl.concat([each.runs for each in runs[15:]]),
        pl.concat([each.evidence for each in runs[15:]]),
    )
    both = read_ledger(path, rest)
    assert both.runs.equals(collected.runs)
    assert fleet_of(both).suspects == fleet_of(collected).suspects
    assert not both.problems


@pytest.mark.slow
def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "fleet.duckdb"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(part)]) for part in (0, 1)
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    collected = fleet(Plan("card", 1, jobs=12))[0]
    found = read_ledger(path)
    assert found.runs.equals(collected.runs)
    order = ["run", "rank"]
    assert found.evidence.sort(order).equals(collected.evidence.sort(order))


def test_an_older_ledger_takes_new_columns(tmp_path: Path, collected: Collected) -> None:
    path = tmp_path / "fleet.duckdb"
    add_to_ledger(path, collected)
    change(path, "alter table fleet_runs drop column software")
    assert read_ledger(path).runs["software"].null_count() == collected.runs.height
    again = one_by_one(collected)[0]
    named = merged(again.runs.with_columns(software=pl.lit("CUDA 12.4")), again.evidence)
    add_to_ledger(path, named)
    assert read_ledger(path).runs["software"].drop_nulls().to_list() == ["CUDA 12.4"]


def test_other_files_are_refused_and_left_alone(tmp_path: Path, collected: Collected) -> None:
    with pytest.raises(DatabaseError, match="no such ledger"):
        read_ledger(tmp_path / "none.duckdb")
    other = tmp_path / "other.duckdb"
    change(other, "create table mine as select 1 as x")
    with pytest.raises(DatabaseError, match="is no ledger"):
        add_to_ledger(other, collected)
    with duckdb.connect(str(other)) as connection:
        assert connection.sql("select table_name from duckdb_tables()").fetchall() == [("mine",)]
    text = tmp_path / "text.duckdb"
    text.write_text("hello " * 2000)
    with pytest.raises(DatabaseError, match=r"text\.duckdb"):
        add_to_ledger(text, collected)


@pytest.mark.slow
def test_a_wait_that_is_too_long_is_an_error(tmp_path: Path, collected: Collected) -> None:
    path = tmp_path / "fleet.duckdb"
    add_to_ledger(path, collected)
    with in_use(path), pytest.raises(DatabaseError, match="in use"):
        Ledger(path, TABLES, wait_s=0.2).read()
