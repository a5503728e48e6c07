"""One metric as a grid of ranks by iterations, reduced to a size that a picture can show."""

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from rankscope.compare.comparison import Comparison
from rankscope.errors import UsageError
from rankscope.judge.levels import MUCH
from rankscope.output.excess_scale import MAP_METRICS, ExcessScale, scale_of, with_excess

Values = npt.NDArray[np.float64]

MOST_ROWS, MOST_COLUMNS = 400, 600
"""Most rows and columns that a reader can tell apart on a page; more are merged into blocks."""

DENSE = 0.5
"""Least share of the iterations between first and last that makes the others drawn as gaps."""


class Grid(Struct, frozen=True):
    """Excess over the role's median, a row per rank and a column per iteration.

    If there are more ranks or iterations than a page can show, `per_row` ranks and `per_column`
    iterations share a cell. The cell holds the value furthest from the median, so that no outlier
    is lost.
    """

    values: Values  # (rows, columns), in the metric's unit; NaN is unknown
    flagged: npt.NDArray[np.bool_]  # (rows, columns)
    ranks: tuple[int, ...]  # in the order of the rows, per_row to a row
    roles: tuple[str | None, ...]  # in the order of `ranks`
    hosts: tuple[str | None, ...]  # in the order of `ranks`
    iterations: tuple[int, ...]  # in the order of the columns, per_column to a column
    per_row: int
    per_column: int
    scale: ExcessScale


def metric_of(comparison: Comparison, metric: str | None) -> str:
    """`metric`, or without one the first known of `MAP_METRICS`.

    Raises:
        UsageError: the metric is unknown on every rank.
    """
    known = [name for name in ([metric] if metric else MAP_METRICS) if comparison.knows(name)]
    if not known:
        raise UsageError(
            f"--metric {metric or MAP_METRICS[0]}: unknown on every rank of this run",
            hint="rankscope imbalance shows which metrics are known",
        )
    return known[0]


def excesses(comparison: Comparison, metric: str) -> pl.DataFrame:
    """The excess of each rank over its role's median, in each iteration.

    Iterations that some ranks lack (for example because a capture ended early) are included.
    Warm-up and iterations outside `--iter-range` are not.

    Returns:
        A row per rank and iteration: rank, iteration, role, host, value, excess (null: unknown),
        scale (the median iteration of the role; of a metric that is not a time, its own median),
        flagged (if the metric is a phase: flagged for this phase), cause, compared (selected, so
        complete on every rank). Value, excess and scale are in the metric's unit.
    """
    numbers = comparison.selection.numbers
    inside = ~pl.col("iteration").is_in([0, *comparison.selection.warmup])
    if comparison.options.iter_range is not None:
        inside &= pl.col("iteration").is_between(numbers[0], numbers[-1])
    judged = comparison.rows(sorted({metric, "iteration"}), all_iterations=True, flags=True)
    rows = with_excess(judged.filter(inside | pl.col("iteration").is_in(numbers)), metric)
    columns = ("rank", "iteration", "role", "host", "value", "excess", "scale", "flagged", "cause")
    return rows.select(*columns, compared=pl.col("iteration").is_in(numbers))


def arrange(frame: pl.DataFrame, missing: tuple[int, ...] = ()) -> Grid:
    """`excesses` as a grid; the ranks of a role, and in it of a host, are side by side.

    Args:
        missing: ranks without a report. They have empty rows unless they are the majority.
    """
    ranks = _rows(frame, missing)
    iterations = _columns(frame)
    shape = (ranks.height, len(iterations))
    known = frame.drop_nulls("excess")
    order = ranks["rank"].arg_sort()
    cells = (
        order.to_numpy()[ranks["rank"][order].search_sorted(known["rank"]).to_numpy()],
        np.searchsorted(iterations, known["iteration"].to_numpy()),
    )
    values = np.full(shape, np.nan)
    values[cells] = known["excess"].to_numpy()
    per_row, per_column = (
        -(-count // most) for count, most in zip(shape, (MOST_ROWS, MOST_COLUMNS), strict=True)
    )
    values = _blocks(values, per_row, per_column)
    flagged = np.zeros(values.shape, dtype=np.bool_)
    row, column = (each[known["flagged"].to_numpy()] for each in cells)
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
        scale=scale_of(frame.filter("compared")),
    )


def worst_cells(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of `excesses` with the largest excess: at most 4, and at most 2 of a rank.

    If any cell is flagged, only flagged ones.
    """
    matters = pl.col("excess") > MUCH * pl.col("scale")
    if frame["flagged"].any():
        matters &= pl.col("flagged")
    return (
        frame.filter(matters)
        .sort("excess", "rank", "iteration", descending=[True, False, False])
        .filter(pl.int_range(pl.len()).over("rank") < 2)
        .head(4)
    )


def _rows(frame: pl.DataFrame, missing: tuple[int, ...]) -> pl.DataFrame:
    """rank, role and host, in the order of the rows."""
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
    """Iterations in order, with those that no rank has if they are few."""
    numbers = frame["iteration"].unique().sort().to_list()
    whole = range(numbers[0], numbers[-1] + 1)
    return [*whole] if len(numbers) >= DENSE * len(whole) else numbers


def _blocks(values: Values, per_row: int, per_column: int) -> Values:
    """`values` reduced to blocks; each block holds its value furthest from 0."""
    most, least = values, values
    for axis, per in enumerate((per_row, per_column)):
        starts = np.arange(0, values.shape[axis], per)
        most = np.fmax.reduceat(most, starts, axis=axis)
        least = np.fmin.reduceat(least, starts, axis=axis)
    return np.where(most >= -least, most, least)
