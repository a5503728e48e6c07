"""Tables of a run, loaded in part and in narrow types."""

import shutil
from pathlib import Path

import duckdb
import polars as pl
import pytest

from rankscope.match.renumbering import renumbered, with_shifts
from rankscope.model.columns import OF_SUMS
from rankscope.model.tables import PER_RANK
from rankscope.store import Database
from rankscope.store.run_reader import DatabaseReader
from rankscope.store.tables import LoadedTables, RunTables, TableRequest, narrowed
from tests.support import MakeStored


def test_numbers_of_iterations_may_be_huge() -> None:
    """They are read off names: a step may be numbered by anything."""
    frame = pl.DataFrame({"rank": [3], "iteration": [10**18], "ordinal": [0], "clock": ["gpu"]})
    assert narrowed(frame).rows() == frame.rows()


def test_sums_are_the_same_from_a_file_from_memory_and_with_other_numbers(
    stored: MakeStored, tmp_path: Path
) -> None:
    db = Path(shutil.copy(stored("plain").db, tmp_path / "run.duckdb"))
    with Database.open(db) as database:
        reader = DatabaseReader.of(database, Database.state(db))
        rows = database.table("activities")
        request = TableRequest("activities", ["rank", "kind"], sums=["total_ns", "count"])
        sums = database.read(request).sort("rank", "kind")
        assert sums["total_ns"].sum() == rows["total_ns"].sum() > 0
        assert LoadedTables({"activities": rows}).read(request).sort("rank", "kind").equals(sums)
        shifts = {rank: 3 * rank for rank in rows["rank"].unique()}
        shifted = renumbered(RunTables("", reader), shifts).reader
        assert shifted.read(request).sort("rank", "kind").equals(sums)
        some = TableRequest("activities", ["kind"], iterations=range(4, 9), sums=["total_ns"])
        ends = LoadedTables({"activities": with_shifts(rows, shifts)}).read(some).sort("kind")
        assert shifted.read(some).sort("kind").equals(ends)
        assert 0 < ends["total_ns"].sum() < rows["total_ns"].sum()


def test_a_table_that_stays_loaded_is_one_chunk() -> None:
    frame = pl.DataFrame({"rank": [0, 1], "iteration": [1, 2]})
    parts = pl.concat([frame[:1], frame[1:]], rechunk=False)
    loaded = RunTables("", LoadedTables({"iterations": parts})).iterations
    assert parts.n_chunks() == 2
    assert (loaded.rows(), loaded.n_chunks()) == (frame.rows(), 1)


@pytest.mark.parametrize("name", PER_RANK)
def test_all_that_has_iterations_is_renumbered(name: str) -> None:
    frame = pl.DataFrame({"rank": [1, 1, 0, 0], "iteration": [1, 2, 1, 2]})
    loaded = LoadedTables({name: frame, "ranks": frame[1:3]})
    shifted = renumbered(RunTables("", loaded), {1: 4})
    assert shifted.read(name, iterations=[2, 5]).rows() == [(0, 2), (1, 5)]
    assert shifted.read(name, ["iteration"], ranks=[1]).rows() == [(5,), (6,)]
    assert shifted.read(name, ranks=[]).is_empty()


def test_sums_that_no_run_has_are_no_error(stored: MakeStored, tmp_path: Path) -> None:
    db = Path(shutil.copy(stored("plain").db, tmp_path / "run.duckdb"))
    with duckdb.connect(str(db)) as connection:
        connection.execute(
            "insert into activities select row.* replace ('n' || i as name, 2**53 as total_ns) "
            "from (from activities limit 1) as row, range(1100) as numbers(i)"
        )
    with Database.open(db) as database:
        sums = database.read(TableRequest("activities", ["rank"], sums=["total_ns"]))
    assert sums["total_ns"].max() == OF_SUMS[1]
