"""Rows of reports on their way between processes."""

import pickle
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.model.reports import RankRows
from tests.bench.job import simulated

FRAMES = [each for each in RankRows.__struct_fields__ if each not in ("rank", "problems")]


@pytest.mark.parametrize("why", [False, True])
def test_rows_are_the_same_after_pickling(why: bool) -> None:
    [rows] = simulated(ranks=1, iterations=3, collectives=2).reports(Path(), why)
    again = pickle.loads(pickle.dumps(rows))
    assert (again.file, again.facts, again.events) == (rows.file, rows.facts, rows.events)
    [part], [unpickled] = rows.ranks, again.ranks
    assert (unpickled.rank, unpickled.problems) == (part.rank, part.problems)
    for name in FRAMES:
        before, after = getattr(part, name), getattr(unpickled, name)
        assert after.schema == before.schema
        assert after.equals(before)


def test_nulls_and_long_names_survive_pickling() -> None:
    [rows] = simulated(ranks=1, iterations=3, collectives=2).reports(Path())
    [part] = rows.ranks
    odd = pl.DataFrame(
        {"name": [None, "x" * 1000, "é"], "launches": [None, [], [1, None]]},
        schema={"name": pl.String, "launches": pl.List(pl.Int32)},
    )
    assert pickle.loads(pickle.dumps(replace(part, activities=odd))).activities.equals(odd)
