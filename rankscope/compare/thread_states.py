"""States of training threads in an iteration, and the rank to compare a rank with."""

from collections.abc import Collection, Sequence

import polars as pl

from rankscope.compare.comparison import Comparison
from rankscope.model.kinds import HostState
from rankscope.model.metrics import column_of
from rankscope.util.robust import lower_median

MOST_NAMES = 6
"""Most names with a part of their own in a state; the others share one."""


def work_excess(comparison: Comparison) -> pl.DataFrame:
    """rank, iteration, role, value (the judged metric), excess (over the role's median)."""
    metric = comparison.outliers.metric or "work"
    value = pl.col(column_of(metric))
    rows = comparison.rows([metric]).select("rank", "iteration", "role", value=value)
    usual = lower_median(pl.col("value")).over("role", "iteration")
    return rows.with_columns(excess=pl.col("value") - usual).sort("rank", "iteration")


def median_peers(work: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """The lower median of the other ranks of the role, for each cell that has one.

    Args:
        work: the result of `work_excess`.
        cells: rank, iteration.

    Returns:
        rank, iteration, peer.
    """
    own = cells.select("rank", "iteration").join(
        work.select("rank", "iteration", "role"), on=["rank", "iteration"]
    )
    others = work.drop_nulls("value").select("iteration", "role", "value", peer="rank")
    middle = (pl.len() - 1) // 2
    return (
        own.join(others, on=["iteration", "role"], nulls_equal=True)
        .filter(pl.col("peer") != pl.col("rank"))
        .sort("rank", "iteration", "value", "peer")
        .group_by("rank", "iteration", maintain_order=True)
        .agg(pl.col("peer").get(middle))
    )


def thread_states(
    comparison: Comparison,
    ranks: Sequence[int],
    iterations: Sequence[int],
    phases: Collection[str],
) -> pl.DataFrame:
    """The parts of iterations by what the training thread did.

    Args:
        ranks: ranks of the run.
        iterations: iteration numbers.
        phases: the phases of the rows of HOST_STATES to sum.

    Returns:
        rank, iteration, state, name, total_ns; per iteration in the order of `HostState`, largest
        names first; minor names together under an empty name. No rows where nothing is recorded.
    """
    states = comparison.tables.read("host_states", ranks=ranks, iterations=iterations)
    rows = states.filter(pl.col("phase").is_in([*map(str, phases)]))
    cell = ["rank", "iteration"]
    order = {str(state): place for place, state in enumerate(HostState)}
    state_place = pl.col("state").replace_strict(order, default=len(order), return_dtype=pl.Int64)
    sums = rows.group_by(*cell, "state", "name").agg(pl.col("total_ns").sum())
    rank_in_state = pl.col("total_ns").rank("ordinal", descending=True).over(*cell, "state")
    return (
        sums.with_columns(
            name=pl.when(rank_in_state <= MOST_NAMES).then("name").otherwise(pl.lit(""))
        )
        .group_by(*cell, "state", "name")
        .agg(pl.col("total_ns").sum())
        .filter(pl.col("total_ns") > 0)
        .sort(*cell, state_place, "total_ns", "name", descending=[False, False, False, True, False])
    )
