"""What device work a report has."""

from __future__ import annotations

import polars as pl

from rankscope.schema import DEVICE_KINDS, conform


def device_kinds(work: pl.DataFrame) -> pl.DataFrame:
    """DEVICE_KINDS of rows that have its columns."""
    alike = [name for name in DEVICE_KINDS if name != "end"]
    return conform(work.group_by(alike).agg(pl.col("end").max()), DEVICE_KINDS)
