"""Calls of the host, for reports without ranges and device work: which process, and from when."""

from __future__ import annotations

import polars as pl

from rankscope.sources.nsys.common import PROCESS, Columns

TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "OSRT_API")
"""Tables of calls, the most certain sign of a training process first."""


def busiest(file: Columns) -> dict[int, tuple[int, int]]:
    """The process with most calls → start of its first and end of its last call; may be empty."""
    for table in TABLES:
        if not file.has(table, "start", "end", "globalTid"):
            continue
        calls = file.read(table, ["start", "end", "globalTid"]).drop_nulls()
        spans = (
            calls.group_by(process=pl.col("globalTid") // PROCESS)
            .agg(pl.col("start").min(), pl.col("end").max(), calls=pl.len())
            .sort("calls", "process", descending=[True, False])
        )
        for process, start, end in spans.head(1).select("process", "start", "end").iter_rows():
            return {process: (start, end)}
    return {}
