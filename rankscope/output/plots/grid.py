"""Ranks by iterations of one metric, brought to a size that a picture can show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.compare.comparison import Analysis
from rankscope.compare.verdict.outliers import LEAST_EXCESS, MAD_FLOOR, lower_median
from rankscope.errors import UsageError
from rankscope.model.metrics import column_of
from rankscope.model.schema import PHASES

Values = npt.NDArray[np.float64]

MOST_ROWS, MOST_COLUMNS = 400, 600
"""Rows and columns that are still told apart on a page."""

DENSE = 0.5
"""Share of the iterations between first and last from which on gaps are drawn as gaps."""

SPIKE = 10
"""Medians of the large excesses from which on one of them is a spike."""

DEFAULTS = ("work", "load", "iteration")


@dataclass(frozen=True, slots=True)
class Grid:
    """Excess over the role's median, a row per rank and a column per iteration.

    Where there are more than a page can show, `per_row` ranks and `per_column` iterations share a
    cell, which holds the one furthest from the median, so that no outlier is lost.
    """

    values: Values  # (rows, columns), ns; NaN is unknown
    flagged: npt.NDArray[np.bool_]  # (rows, columns)
    ranks: tuple[int, ...]  # in the order of rows, per_row to a row
    roles: tuple[str | None, ...]  # of them
    hosts: tuple[str | None, ...]
    iterations: tuple[int, ...]  # in the order of columns, per_column to a column
    per_row: int
    per_column: int
    limit: float  # where the colour scale ends, ns


def metric_of(analysis: Analysis, metric: str | None, defaults: tuple[str, ...] = DEFAULTS) -> str:
    """`metric`, or the first of the defaults that is known.

    Raises:
        UsageError: no rank has it.
    """
    known = [name for name in ([metric] if metric else defaults) if analysis.knows(name)]
    if not known:
        raise UsageError(
            f"--metric {metric or defaults[0]}: unknown on every rank of this run",
            hint="rankscope imbalance shows which metrics there are",
        )
    return known[0]


def excesses(analysis: Analysis, metric: str) -> pl.DataFrame:
    """How far each rank is from its role's median, in each iteration.

    Iterations that some rank lacks (its capture ended early, say) are among them, warm-up and
    what `--iter-range` leaves out are not.

    Returns:
        rank, iteration, role, host, value_ns, excess_ns (null is unknown), length_ns (the role's
        median iteration), flagged (for this phase, if the metric is one), cause.
    """
    numbers = analysis.selection.numbers
    inside = ~pl.col("iteration").is_in([0, *analysis.selection.warmup])
    if analysis.options.iter_range is not None:
        inside &= pl.col("iteration").is_between(numbers[0], numbers[-1])
    value = pl.col(column_of(metric))
    judged = analysis.judged(sorted({metric, "iteration"}))
    several = judged["role"].n_unique() > 1
    role = ["role", "iteration"] if several else ["iteration"]  # one is found sooner than both
    flagged = pl.col("flagged").fill_null(False)
    if metric in PHASES:
        flagged &= pl.col("cause").eq_missing(metric)
    return judged.filter(inside | pl.col("iteration").is_in(numbers)).select(
        "rank",
        "iteration",
        "role",
        "host",
        value_ns=value,
        excess_ns=value - lower_median(value).over(role),
        length_ns=lower_median(pl.col("iteration_ns")).over(role),
        flagged=flagged,
        cause="cause",
    )


def arrange(frame: pl.DataFrame, missing: tuple[int, ...] = ()) -> Grid:
    """`excesses` as a grid: ranks of a role, then of a host, side by side.

    Args:
        frame: what `excesses` returned.
        missing: ranks without a report; they get empty rows unless they are the majority.
    """
    ranks = _rows(frame, missing)
    iterations = _columns(frame)
    shape = (ranks.height, len(iterations))
    known = frame.drop_nulls("excess_ns")
    order = ranks["rank"].arg_sort()
    at = (
        order.to_numpy()[ranks["rank"][order].search_sorted(known["rank"]).to_numpy()],
        np.searchsorted(iterations, known["iteration"].to_numpy()),
    )
    values = np.full(shape, np.nan)
    values[at] = known["excess_ns"].to_numpy()
    per_row, per_column = (
        -(-count // most) for count, most in zip(shape, (MOST_ROWS, MOST_COLUMNS), strict=True)
    )
    values = _blocks(values, per_row, per_column)
    flagged = np.zeros(values.shape, dtype=np.bool_)
    row, column = (each[known["flagged"].to_numpy()] for each in at)
    flagged[row // per_row, column // per_column] = True
    return Grid(
        values=values,
        flagged=flagged,
        ranks=tuple(ranks["rank"]),
        roles=tuple(ranks["role"]),
        hosts=tuple(ranks["host"]),
        iterations=tuple(iterations),
        per_row=per_row,
        per_column=per_column,
        limit=_limit(known),
    )


def worst_cells(frame: pl.DataFrame, most: int = 4, per_rank: int = 2) -> pl.DataFrame:
    """The cells of `excesses` that matter most, no more than `per_rank` of one rank."""
    matters = pl.col("excess_ns") > LEAST_EXCESS * pl.col("length_ns")
    return (
        frame.filter(matters)
        .sort("excess_ns", "rank", "iteration", descending=[True, False, False])
        .filter(pl.int_range(pl.len()).over("rank") < per_rank)
        .head(most)
    )


def _rows(frame: pl.DataFrame, missing: tuple[int, ...]) -> pl.DataFrame:
    """rank, role, host in the order of rows."""
    present = frame.group_by("rank").agg(pl.col("role", "host").first())
    if len(missing) <= present.height:
        nobody = pl.DataFrame(
            {"rank": missing, "role": None, "host": None},
            schema={"rank": pl.Int64, "role": pl.String, "host": pl.String},
        )
        present = pl.concat([present, nobody.select(present.columns)])
    places = present.sort("rank").with_columns(
        pl.col("role", "host").forward_fill().name.suffix("_like")
    )
    return places.sort(
        pl.col("rank").min().over("role_like"),
        pl.col("rank").min().over("role_like", "host_like"),
        "rank",
    ).select("rank", "role", "host")


def _columns(frame: pl.DataFrame) -> list[int]:
    """Iterations in order; those between them that no rank has, where they are few."""
    numbers = frame["iteration"].unique().sort().to_list()
    whole = range(numbers[0], numbers[-1] + 1)
    return [*whole] if len(numbers) >= DENSE * len(whole) else numbers


def _limit(known: pl.DataFrame) -> float:
    """Where the colours end: a typical excess of those that cost most, so that noise stays pale.

    The median of what exceeds 5 % of the iteration, weighted by its square (as if no cell were
    above `SPIKE` medians, so that one spike does not wash out the rest); where nothing does, the
    99th percentile, for then small differences are all there is to see.
    """
    size = known["excess_ns"].abs().cast(pl.Float64)
    large = np.sort(size.filter(size > LEAST_EXCESS * known["length_ns"]).to_numpy())
    if not len(large):
        lengths = known["length_ns"].drop_nulls().to_numpy()
        least = MAD_FLOOR * float(np.median(lengths)) if len(lengths) else 1.0
        return max(size.quantile(0.99) or 0.0, least)
    weight = np.cumsum(np.minimum(large, SPIKE * np.median(large)) ** 2)
    return float(large[np.searchsorted(weight, weight[-1] / 2)])


def _blocks(values: Values, per_row: int, per_column: int) -> Values:
    """`values` with blocks of cells replaced by the one furthest from 0 in each."""
    most, least = values, values
    for axis, per in enumerate((per_row, per_column)):
        starts = np.arange(0, values.shape[axis], per)
        most = np.fmax.reduceat(most, starts, axis=axis)
        least = np.fmin.reduceat(least, starts, axis=axis)
    return np.where(most >= -least, most, least)
