"""Frames as DuckDB takes them in with least work."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

ROW_GROUP = 122_880
"""Rows in a row group of DuckDB, which writes a batch of this size at once. Smaller batches, such
as one per report, are first copied together, which took a quarter of the time of writing."""


def in_row_groups(frame: pl.DataFrame) -> pa.RecordBatchReader:
    """Gives the rows of `frame` once, in batches that fill a group of rows each but for the last.

    They are made one by one: a copy of all rows at once would need as much memory as the frame.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        for part in frame.iter_slices(ROW_GROUP):
            yield from part.rechunk().to_arrow().to_batches()

    return pa.RecordBatchReader.from_batches(frame.clear().to_arrow().schema, batches())
