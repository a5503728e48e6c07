"""What ranks need beyond the others for the same work, where the work itself varies at random.

Sequences and experts differ in length from iteration to iteration, so that a slow device is latest
only now and then. Its kernels are slower in every iteration. See METHOD.md#verdict.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.judge.causes.context import Tables, sampled
from rankscope.judge.excess import Excess
from rankscope.util.robust import Floats, lower_medians


def same_work(tables: Tables, excess: Excess) -> Excess | None:
    """The excess of kernels over that of the role's median rank with as much work.

    The logarithm of a rank's time in kernels is a slope times that of its amount of work (blocks,
    each kernel's at the price that is usual in the run), plus a constant of its own. The slope is
    that of the changes within ranks (an analysis of covariance): time may grow faster than blocks,
    as in attention, and a rank that always has more to do makes no slope.

    Args:
        tables: of the run (`registry.tables_of`, or `VerdictInputs.tables`).
        excess: of all ranks.

    Returns:
        Excess of which `total` is this, of a sample of the iterations. None where sizes of kernels
        are unknown.
    """
    numbers = sampled(excess.numbers.tolist())
    rows = tables("activities", numbers)
    if rows is None:
        return None
    rows = rows.filter(
        pl.col("kind") == "kernel",
        pl.col("name") != "",
        pl.col("size") > 0,
        pl.col("total_ns") > 0,
    ).select("rank", "iteration", "name", "total_ns", "size")
    if rows.is_empty():
        return None
    cells = (
        rows.cast({"rank": pl.Int64})
        .group_by("rank", "iteration", "name")
        .agg(pl.col("total_ns", "size").sum())
        .with_columns(price=pl.col("total_ns") / pl.col("size"))
        .with_columns(work=pl.col("size") * pl.col("price").median().over("name"))
        .group_by("rank", "iteration")
        .agg(pl.col("total_ns", "work").sum())
    )
    here = np.isin(excess.numbers, numbers)
    shape = (len(excess.ranks), int(here.sum()))
    row = np.searchsorted(excess.ranks, cells["rank"].to_numpy())
    column = np.searchsorted(excess.numbers[here], cells["iteration"].to_numpy())

    def matrix(name: str) -> Floats:
        found = np.full(shape, np.nan)
        found[row, column] = cells[name].to_numpy()
        return found

    kernels, work = matrix("total_ns"), np.log(matrix("work"))
    slower = np.log(kernels) - _slope(work, np.log(kernels)) * work
    total = np.empty(shape)
    for role in np.unique(excess.roles):
        some = excess.roles == role
        usual = lower_medians(kernels[some], 0)
        total[some] = np.expm1(slower[some] - lower_medians(slower[some], 0)) * usual
    return replace(
        excess,
        numbers=excess.numbers[here],
        total=total,
        by_phase=excess.by_phase[:, here],
        value=excess.value[:, here],
        spent=excess.spent[:, here],
        length=excess.length[:, here],
        unit=excess.unit[:, here],
    )


def _slope(x: Floats, y: Floats) -> float:
    """The slope of y over x within ranks; 1 where x hardly changes."""
    known = ~np.isnan(x).all(axis=1)  # some ranks may have no kernels
    x, y = x[known], y[known]
    x, y = x - np.nanmean(x, axis=1, keepdims=True), y - np.nanmean(y, axis=1, keepdims=True)
    spread = float(np.nansum(x * x))
    return float(np.nansum(x * y)) / spread if spread > 1e-6 * x.size else 1.0
