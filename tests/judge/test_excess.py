"""The excess of ranks over their role, by phase: METHOD.md#verdict."""

import numpy as np
import polars as pl
import pytest

from rankscope.judge.excess import excess_of
from tests.judge.made import excess
from tests.support import MS


@pytest.mark.parametrize(
    ("loads", "found"),
    [
        ([30], [30.0, 5.0]),
        ([30, 0], [30.0, 5.0]),
        ([30, 0, 0], [30.0, 5.0]),
        ([20, 30], [20.0, 5.0]),
    ],
)
def test_a_phase_that_few_ranks_know_has_what_the_others_do_not_explain(
    loads: list[int], found: list[float]
) -> None:
    """Rank 0 also needs 5 ms more in backward; the load of the last of four ranks is unknown."""
    rows = [
        (rank, "all", i, load, 50 + 5 * (rank == 0), (load or 0) + 50 + 5 * (rank == 0), 150)
        for rank, load in enumerate([*loads, *[None] * (4 - len(loads))])
        for i in range(6)
    ]
    names = ["rank", "role", "iteration", "load_ns", "backward_ns", "work_ns", "iteration_ns"]
    wide = pl.DataFrame(rows, schema=names, orient="row").with_columns(pl.col("^.*_ns$") * MS)
    one = excess_of(wide, "work")
    load, backward = (one.phases.index(each) for each in ("load", "backward"))
    assert [one.by_phase[0, 0, at] / MS for at in (load, backward)] == found
    assert one.over[0, 0].sum() == one.total[0, 0] == sum(found) * MS
    beside = one.beside("load")
    assert beside.total[0, 0] == 5 * MS
    assert one.beside("backward").total[0, 0] == found[0] * MS


def test_a_phase_that_few_ranks_know_has_no_more_than_its_time() -> None:
    """Medians do not add up: the usual rank works 90 ms, with 60 forward and 60 backward."""
    rows = [
        (rank, "all", 0, load, forward, backward, (load or 0) + forward + backward, 200)
        for rank, (load, forward, backward) in enumerate(
            [(30, 60, 60), (None, 60, 30), (None, 30, 60), (None, 60, 60)]
        )
    ]
    names = ["rank", "role", "iteration"]
    names += [f"{each}_ns" for each in ("load", "forward", "backward", "work", "iteration")]
    wide = pl.DataFrame(rows, schema=names, orient="row").with_columns(pl.col("^.*_ns$") * MS)
    one = excess_of(wide, "work")
    assert one.total[0, 0] == 60 * MS
    assert one.by_phase[0, 0, one.phases.index("load")] == 30 * MS


def test_transfers_take_as_long_in_an_iteration_with_twice_the_work() -> None:
    """Work takes half of an iteration, so this one is longer by half."""
    late = np.zeros((4, 5))
    late[:, 2] = 50.0
    late[0] += 15.0
    assert excess(late).share[0].round(6).tolist() == [0.15, 0.15, 0.1, 0.15, 0.15]


def test_long_iterations_of_unknown_work_change_no_other() -> None:
    late = np.zeros((4, 5))
    late[0], late[:, 2:] = 15.0, np.nan
    assert excess(late, np.array([100.0, 100, 300, 300, 300])).share[0, :2].tolist() == [0.15, 0.15]
