"""Iterations compared with each other: normal, or slow and why."""

import polars as pl
import pytest

from rankscope.compare.iteration_clusters import by_iteration
from rankscope.model.kinds import PARTS, PHASES
from tests.support import MS, MakeStored, inputs_of

NUMBERS = tuple(range(1, 21))
USUAL = dict.fromkeys(PARTS, 0) | {
    "load": 5, "forward": 20, "backward": 40, "optimizer": 5, "other": 1,
    "exposed_communication": 9,
}  # fmt: skip
"""Part → its usual length, ms."""


def run(more: dict[tuple[int, int | None, str], float], without: int | None = None) -> pl.DataFrame:
    """Clusters of four ranks; `more`: (iteration, rank or None for all, part) → ms on top.

    `without`: a rank that has no report, so that waits are unknown.

    Where one rank works longer the others wait for it.
    """
    rows = []
    for i in NUMBERS:
        own = {
            rank: {
                part: usual
                + sum(ms for (at, who, what), ms in more.items()
                      if at == i and what == part and who in (rank, None))
                for part, usual in USUAL.items()
            }
            for rank in range(4)
        }  # fmt: skip
        longest = max(sum(parts.values()) for parts in own.values())
        for rank, parts in own.items():
            waited = longest - sum(parts.values())
            parts["exposed_communication"] += waited
            rows.append(
                {"rank": rank, "iteration": i, "role": "all", "iteration_ns": round(longest * MS)}
                | {f"{part}_ns": round(ms * MS) for part, ms in parts.items()}
                | {"wait_ns": round(waited * MS)}
                | {"work_ns": round((longest - parts["exposed_communication"]) * MS)}
            )
    chosen = pl.DataFrame(rows)
    if without is not None:
        unknown = pl.lit(None, pl.Int64).alias("wait_ns")
        chosen = chosen.filter(pl.col("rank") != without).with_columns(unknown)
    return by_iteration(chosen, inputs_of(chosen).flags, NUMBERS, "work")


def clusters(frame: pl.DataFrame) -> dict[int, str]:
    return {i: output for i, output in frame.select("iteration", "cluster").iter_rows()
            if output != "normal"}  # fmt: skip


def test_without_phases_it_is_work_that_is_slow() -> None:
    chosen = pl.concat(
        pl.DataFrame({"rank": [0, 1], "iteration": i, "iteration_ns": ms * MS, "work_ns": ms * MS})
        for i, ms in ((0, 20), (1, 20), (2, 21), (3, 20), (4, 50))
    ).with_columns(
        pl.lit(0).alias("exposed_communication_ns"),
        pl.lit(0).alias("wait_ns"),
        *(pl.lit(None, pl.Int64).alias(f"{part}_ns") for part in PHASES if part != "other"),
        other_ns="work_ns",
    )
    output = by_iteration(chosen, None, (0, 1, 2, 3, 4), "work")
    assert clusters(output) == {4: "slow: work of all ranks"}


def test_all_alike_is_normal() -> None:
    output = run({})
    assert output["iteration"].to_list() == [*NUMBERS]
    assert {*output["cluster"]} == {"normal"}
    assert {*output["iteration_ns"]} == {80 * MS}
    assert {*output["spread_ns"]} == {0}
    assert output["cause"].null_count() == output.height


def test_the_reason_is_a_rank_where_one_rank_is_it() -> None:
    output = run({(4, 2, "load"): 30, (11, 1, "backward"): 25})
    assert clusters(output) == {4: "slow: load of rank 2", 11: "slow: backward of rank 1"}
    row = output.filter(iteration=4).row(0, named=True)
    assert (row["slowest_rank"], row["cause"], row["flagged_ranks"]) == (2, "load", [2])
    assert row["spread_ns"] == 30 * MS


@pytest.mark.parametrize("part", [part for part in PARTS if part != "exposed_communication"])
def test_the_reason_is_a_part_where_all_ranks_are_slow(part: str) -> None:
    assert clusters(run({(7, None, part): 30})) == {7: f"slow: {part} of all ranks"}


def test_a_slow_network_is_transfer_of_all_ranks() -> None:
    output = run({(9, None, "exposed_communication"): 30})
    assert clusters(output) == {9: "slow: transfer of all ranks"}
    assert output.filter(iteration=9)["flagged_ranks"].null_count() == 1


def test_ranks_may_wait_for_one_without_a_report() -> None:
    output = run({(9, 2, "backward"): 30, (12, None, "load"): 30}, without=2)
    assert clusters(output) == {
        9: "slow: waiting or transfer of all ranks",
        12: "slow: load of all ranks",
    }


def test_a_little_longer_is_normal() -> None:
    assert clusters(run({(7, None, "forward"): 3, (8, 1, "forward"): 2})) == {}


def test_an_iteration_with_a_flagged_rank_is_not_normal() -> None:
    """However little it is longer: the verdict speaks of it."""
    assert clusters(run({(8, 1, "forward"): 6})) == {8: "slow: forward of rank 1"}


def test_a_rank_that_explains_little_is_not_the_reason() -> None:
    output = run({(5, None, "forward"): 40, (5, 3, "load"): 8})
    assert clusters(output) == {5: "slow: forward of all ranks"}
    assert output.filter(iteration=5)["flagged_ranks"].to_list() == [[3]]


@pytest.mark.slow
def test_planted_iterations_are_the_slow_ones(stored: MakeStored) -> None:
    output = stored("planted", kind="periodic", where="forward").run.imbalance().iterations
    planted = {i: "slow: forward of rank 3" for i in (5, 10, 15, 20, 25)}
    slow = clusters(output)
    assert planted.items() <= slow.items()
    assert len(slow) <= len(planted) + 1, "noise of 3 % seldom stands out"


def test_without_flags_nobody_is_named() -> None:
    chosen = pl.DataFrame(
        {"rank": [0, 1], "iteration": [1, 1], "iteration_ns": [5, 5], "work_ns": [3, 4]}
        | {f"{part}_ns": [1, 1] for part in PARTS}
        | {"wait_ns": [0, 0]}
    )
    (row,) = by_iteration(chosen, None, (1,), "work").to_dicts()
    assert (row["flagged_ranks"], row["cause"], row["cluster"]) == (None, None, "normal")
