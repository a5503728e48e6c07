"""Numbers → text for a page, small and whole: columns, not row objects."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Sequence

import numpy as np
import polars as pl

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


def packed(values: pl.Series, unit_ns: int) -> str:
    """A column of times as base64 of deflated int32 in `unit_ns`, byte planes one after another.

    Neighbouring high bytes are alike, so that planes deflate to about the noise in the numbers.
    Null is `UNKNOWN`.
    """
    rounded = (values / unit_ns).round().fill_null(UNKNOWN).to_numpy().astype("<i4")
    planes = np.ascontiguousarray(rounded).view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")


def cells(
    wide: pl.DataFrame, ranks: Sequence[int], iterations: Sequence[int], metrics: Sequence[str]
) -> Document:
    """Every known metric of every rank and iteration, rank by rank; equal columns once.

    Args:
        wide: rank, iteration and `<metric>_ns`.
        ranks: rows of the map.
        iterations: its columns.
        metrics: what to take, where it is known at all.

    Returns:
        `ranks`, `iterations`, `unit_ns`, `median_ns` (the iterations' length), `columns` (metric →
        index) and `packed`.
    """
    grid = pl.DataFrame({"rank": list(ranks)}, schema={"rank": pl.Int64}).join(
        pl.DataFrame({"iteration": list(iterations)}, schema={"iteration": pl.Int64}), how="cross"
    )
    full = grid.join(wide, on=["rank", "iteration"], how="left", maintain_order="left")
    unit = unit_of(full["iteration_ns"])
    places: dict[str, int] = {}
    columns: dict[str, int] = {}
    for name in metrics:
        column = full[f"{name}_ns"]
        if column.null_count() < column.len():
            columns[name] = places.setdefault(packed(column, unit), len(places))
    return {
        "ranks": list(ranks),
        "iterations": list(iterations),
        "unit_ns": unit,
        "median_ns": full["iteration_ns"].median(),
        "columns": columns,
        "packed": list(places),
    }
