"""Short columns without expressions: planning one costs more than the work on a thousand rows."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.model.intervals import Flags, Times


def rows_of(frame: pl.DataFrame, flags: Flags) -> pl.DataFrame:
    """The rows whose flag is set, one for each row."""
    if flags.all():
        return frame
    kept = pl.Series(flags, dtype=pl.Boolean)
    return pl.DataFrame([each.filter(kept) for each in frame.get_columns()])


Rows = TypeVar("Rows", pl.DataFrame, pl.Series)


def taken(rows: Rows, places: NDArray[np.integer]) -> Rows:
    """The rows at some places, in their order."""
    return rows[pl.Series(places.astype(np.uint32))]


def with_series(frame: pl.DataFrame, *columns: pl.Series) -> pl.DataFrame:
    """The frame with these columns, which replace those of the same names."""
    return pl.DataFrame({each.name: each for each in (*frame.get_columns(), *columns)})


def is_null(values: pl.Series) -> Flags:
    """Whether each value is null."""
    nulls = values.null_count()
    if nulls in (0, len(values)):
        return np.full(len(values), nulls > 0)
    return values.is_null().to_numpy()


def filled(values: pl.Series, replacement: int | pl.Series) -> Times:
    """Integers, each null replaced."""
    return (values.fill_null(replacement) if values.has_nulls() else values).to_numpy()


def known_if(values: pl.Series, flags: Flags) -> pl.Series:
    """The values whose flag is set; the others become null."""
    return values.zip_with(pl.Series(flags), pl.Series([None], dtype=values.dtype))
