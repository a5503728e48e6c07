"""How long collectives transfer and wait, by communicator."""

import polars as pl
import pytest

from rankscope.compare.collective_rows import by_collective
from rankscope.match.waits import WaitedCollectives

CALLS = WaitedCollectives(
    rows=pl.DataFrame(
        {
            "rank": [0, 1],
            "arrival_ns": [10, 15],
            "end_ns": [30, 30],
            "wait": [5, 0],
            "instance": [0, 0],
        }
    ),
    shared=pl.DataFrame(
        {
            "group": [0],
            "operation": ["all_reduce"],
            "iteration": [3],
            "ordinal": [0],
            "transfer": [15],
            "last": [1],
        }
    ),
    streams=pl.DataFrame(
        {
            "rank": [0, 1],
            "place": [0, 0],
            "communicator": [7, 7],
            "label": ["a", "a"],
            "group": [0, 0],
        }
    ),
    groups=pl.DataFrame({"group": [0], "label": ["a"], "members": [2]}),
)


def test_the_exposed_part_of_transfers_is_a_mean_of_ranks() -> None:
    """Rank 0 transfers from 15 to 30: 7 ns of it are exposed, and none of what it waits before."""
    exposed = pl.DataFrame({"rank": [0, 0], "start_ns": [0, 28], "end_ns": [20, 40]})
    [row] = by_collective(CALLS, [3], exposed).iter_rows(named=True)
    assert (row["transfer_ns"], row["wait_ns"]) == (15, 2)
    assert row["exposed_ns"] == pytest.approx(7 / 2)


def test_the_exposed_part_is_told_if_it_is_asked_for() -> None:
    assert "exposed_ns" not in by_collective(CALLS, [3]).columns
