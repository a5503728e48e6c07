"""Frames as DuckDB takes them in with least work."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

ROW_GROUP = 122_880
"""Rows of a group of DuckDB, which writes a batch of so many at once. It first copies smaller ones
together, such as the rows of a report each: a quarter of all the time that it took."""


def in_row_groups(frame: pl.DataFrame) -> pa.RecordBatchReader:
    """Gives the rows of `frame` once, in batches that fill a group of rows each but for the last.

    They are made one by one: a copy of all rows at once would need as much memory as the frame.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        for part in frame.iter_slices(ROW_GROUP):
            yield from part.rechunk().to_arrow().to_batches()

    return pa.RecordBatchReader.from_batches(frame.clear().to_arrow().schema, batches())
