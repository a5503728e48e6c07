"""Numbers → text for a page, small and whole: columns, not row objects."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence

import numpy as np
import polars as pl

from rankscope.model.metrics import METRICS
from rankscope.output.json_documents import Document

UNKNOWN = -(2**31)
"""What stands for null among packed int32."""

MICROSECOND = 1000

EXACT_CELLS = 100_000
"""Up to so many cells are packed in µs, more of them coarser."""

COARSE = 5000
"""Of many cells times are told to this fraction of the median iteration: finer than any pixel."""


def unit_of(lengths: pl.Series) -> int:
    """The unit, in ns, in which the cells of a map are packed: whole µs.

    Args:
        lengths: `iteration_ns` of all cells.
    """
    middle, longest = lengths.median(), lengths.max()
    if not isinstance(middle, int | float) or not isinstance(longest, int):
        return MICROSECOND
    wanted = middle / COARSE if len(lengths) > EXACT_CELLS else MICROSECOND
    least = longest / -(UNKNOWN + 1)
    return max(1, math.floor(wanted / MICROSECOND), math.ceil(least / MICROSECOND)) * MICROSECOND


def step_of(values: pl.Series) -> float:
    """The step in which values that are not times are packed: 1, or what makes them fit int32."""
    largest = values.cast(pl.Float64).abs().max()
    if values.dtype.is_integer() and isinstance(largest, float) and largest < -UNKNOWN:
        return 1.0
    return (largest if isinstance(largest, float) and largest > 0 else 1.0) / -(UNKNOWN + 1)


def packed(values: pl.Series, unit: float) -> str:
    """A column as base64 of deflated int32 in `unit` (ns of times), byte planes in succession.

    Neighbouring high bytes are alike, so that planes deflate to about the noise in the numbers.
    Null is `UNKNOWN`.
    """
    rounded = (values / unit).round().fill_null(UNKNOWN).to_numpy().astype("<i4")
    planes = np.ascontiguousarray(rounded).view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")


def cells(
    wide: pl.DataFrame, ranks: Sequence[int], iterations: Sequence[int], metrics: Sequence[str]
) -> Document:
    """Every known metric of every rank and iteration, rank by rank; equal columns once.

    Args:
        wide: rank, iteration and the metrics' columns.
        ranks: rows of the map.
        iterations: its columns.
        metrics: what to take, where it is known at all.

    Returns:
        `ranks`, `iterations`, `unit_ns`, `median_ns` (the iterations' length), `columns` (metric →
        index), `steps` (metric that is not a time → what 1 stands for) and `packed`.
    """
    grid = pl.DataFrame({"rank": list(ranks)}, schema={"rank": pl.Int64}).join(
        pl.DataFrame({"iteration": list(iterations)}, schema={"iteration": pl.Int64}), how="cross"
    )
    full = grid.join(wide, on=["rank", "iteration"], how="left", maintain_order="left")
    unit = unit_of(full["iteration_ns"])
    places: dict[str, int] = {}
    columns: dict[str, int] = {}
    steps: dict[str, float] = {}
    for name in metrics:
        column = full[METRICS[name].column]
        if column.null_count() == column.len():
            continue
        if not METRICS[name].is_time:
            steps[name] = step_of(column)
        columns[name] = places.setdefault(packed(column, steps.get(name, unit)), len(places))
    return {
        "ranks": list(ranks),
        "iterations": list(iterations),
        "unit_ns": unit,
        "median_ns": full["iteration_ns"].median(),
        "columns": columns,
        "steps": steps,
        "packed": list(places),
    }
