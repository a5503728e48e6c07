"""Transfers that take longer than those like them: METHOD.md#verdict."""

import numpy as np
import polars as pl

from rankscope.judge.transfers import slow_transfers
from tests.support import MS

GROUPS = {0: [0, 1], 1: [2, 3], 2: [0, 2], 3: [1, 3]}
FRAME = pl.DataFrame({"group": [*GROUPS], "members": [*GROUPS.values()]}).with_columns(
    label=pl.lit("world"), on_host=pl.lit(False)
)


def instances(calls: dict[int, int]) -> pl.DataFrame:
    """Ten iterations with so many all-reduces of unknown size of each communicator."""
    return pl.DataFrame(
        [
            {"group": group, "operation": "all_reduce", "iteration": number, "ordinal": ordinal}
            for number in range(10)
            for group, count in calls.items()
            for ordinal in range(count)
        ]
    ).with_columns(bytes=pl.lit(None, pl.Int64))


def slow_groups(calls: dict[int, int], slow: set[int]) -> list[int]:
    rows = instances(calls)
    service = np.where(rows["group"].is_in([*slow]), 2.0, 0.2) * MS
    found = slow_transfers(rows, service, range(10), FRAME)
    return [] if found is None else sorted(found.slow["group"])


def test_one_of_several_communicators_that_do_the_same() -> None:
    assert slow_groups(dict.fromkeys(GROUPS, 4), {3}) == [3]


def test_communicators_that_are_called_differently_often_do_different_things() -> None:
    """Two replicas of two ranks: gradients are more than what a layer exchanges."""
    assert slow_groups({0: 8, 1: 8, 2: 4, 3: 4}, {2, 3}) == []
