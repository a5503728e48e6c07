"""The numbers of a page as compact text: packed columns instead of row objects."""

import base64
import math
import zlib
from collections.abc import Sequence

import numpy as np
import polars as pl

from rankscope.model.metrics import METRICS
from rankscope.output.documents.common import Document
from rankscope.output.excess_scale import scale_of, with_excess

UNKNOWN = -(2**31)
"""The packed int32 that means null."""

MICROSECOND = 1000
"""ns per µs."""

EXACT_CELLS = 100_000
"""Most cells whose packed times have a unit of 1 µs; with more cells the unit is coarser."""

COARSE = 5000
"""With more cells the unit is 1/COARSE of the median iteration, which is finer than a pixel."""


def unit_of(lengths: pl.Series) -> int:
    """The unit of the packed times in ns; a multiple of 1 µs.

    Args:
        lengths: `iteration_ns` of all cells.
    """
    middle, longest = lengths.median(), lengths.max()
    if not isinstance(middle, int | float) or not isinstance(longest, int):
        return MICROSECOND
    target = middle / COARSE if len(lengths) > EXACT_CELLS else MICROSECOND
    least = longest / -(UNKNOWN + 1)  # the longest iteration fits into an int32
    return max(1, math.floor(target / MICROSECOND), math.ceil(least / MICROSECOND)) * MICROSECOND


def step_of(values: pl.Series) -> float:
    """The packing step of values that are not times: 1, or more where int32 is too small."""
    largest = values.cast(pl.Float64).abs().max()
    if values.dtype.is_integer() and isinstance(largest, float) and largest < -UNKNOWN:
        return 1.0
    return (largest if isinstance(largest, float) and largest > 0 else 1.0) / -(UNKNOWN + 1)


def packed(values: pl.Series, unit: float) -> str:
    """A column as base64 of deflated int32 byte planes, in multiples of `unit` (ns for times).

    The lowest bytes of all values come first, then the second lowest, and so on: neighbouring
    high bytes are equal, so the planes compress well. Null is `UNKNOWN`.
    """
    rounded = (values / unit).round().fill_null(UNKNOWN).to_numpy().astype("<i4")
    planes = np.ascontiguousarray(rounded).view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")


def cells(
    table: pl.DataFrame, ranks: Sequence[int], iterations: Sequence[int], metrics: Sequence[str]
) -> Document:
    """The cells of the map: every known metric of every rank and iteration.

    Args:
        table: `Comparison.rows` with flags: rank, iteration, role, the columns of the metrics,
            flagged, cause.
        metrics: names of metrics; those that are unknown in all cells are left out.

    Returns:
        `ranks`, `iterations`, `unit_ns`, `packed` (one text per distinct column, rank by rank, see
        `packed`), `columns` (metric → index into
        `packed`), `medians` (one per text of `packed`: what excess is measured from, an iteration
        each, role by role in the order of their lowest ranks), `steps` (metric that is not a time
        → the value of 1 in its packed column), `scales` (metric → linear part and end of the
        colour scale of its excess, see `ExcessScale`) and `ticks` (metric → values at which that
        scale has ticks); both in ms, or in the metric's unit.
    """
    grid = pl.DataFrame({"rank": list(ranks)}, schema={"rank": pl.Int64}).join(
        pl.DataFrame({"iteration": list(iterations)}, schema={"iteration": pl.Int64}), how="cross"
    )
    full = grid.join(table, on=["rank", "iteration"], how="left", maintain_order="left")
    unit = unit_of(full["iteration_ns"])
    by_role = _medians_grid(table, ranks, iterations)
    places: dict[str, int] = {}
    medians: list[str] = []
    columns: dict[str, int] = {}
    steps: dict[str, float] = {}
    scales: dict[str, list[float]] = {}
    ticks: dict[str, list[float]] = {}
    for name in metrics:
        column = full[METRICS[name].column]
        if column.null_count() == column.len():
            continue
        if not METRICS[name].is_time:
            steps[name] = step_of(column)
        excess = with_excess(table, name)
        scale = scale_of(excess)
        divisor = 1e6 if METRICS[name].is_time else 1.0
        scales[name] = [scale.linear / divisor, scale.limit / divisor]
        ticks[name] = scale.ticks(divisor)
        step = steps.get(name, unit)
        columns[name] = places.setdefault(packed(column, step), len(places))
        if len(medians) < len(places):
            middle = excess.group_by("role", "iteration").agg(
                median=(pl.col("value") - pl.col("excess")).drop_nulls().first()
            )
            rows = by_role.join(
                middle, on=["role", "iteration"], how="left", nulls_equal=True,
                maintain_order="left",
            )  # fmt: skip
            medians.append(packed(rows["median"], step))
    return {
        "ranks": list(ranks),
        "iterations": list(iterations),
        "unit_ns": unit,
        "columns": columns,
        "steps": steps,
        "scales": scales,
        "ticks": ticks,
        "packed": list(places),
        "medians": medians,
    }


def _medians_grid(
    table: pl.DataFrame, ranks: Sequence[int], iterations: Sequence[int]
) -> pl.DataFrame:
    """role, iteration: every pair, roles in the order of their lowest ranks."""
    order = pl.DataFrame({"rank": list(ranks)}, schema={"rank": pl.Int64})
    of_ranks = table.group_by("rank").agg(pl.col("role").first())
    roles = order.join(of_ranks, on="rank", how="left", maintain_order="left").select("role")
    numbers = pl.DataFrame({"iteration": list(iterations)}, schema={"iteration": pl.Int64})
    return roles.unique(maintain_order=True).join(numbers, how="cross", maintain_order="left_right")
