"""Context switches of Nsight Systems exports: when a thread was on a CPU."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.model.host_events import Spans, Switches
from rankscope.sources.nsys.common import Columns, without_nulls

TABLE = "SCHED_EVENTS"
COLUMNS = ["start", "isSchedIn", "globalTid"]


def switches(file: Columns, spans: Spans) -> dict[int, Switches]:
    """The switches of some threads; a thread without any is left out.

    The state at the beginning of a span is that of the last switch before it.
    """
    if not file.has(TABLE, *COLUMNS):
        return {}
    kept: dict[int, list[pl.DataFrame]] = {thread: [] for thread in spans}
    before: dict[int, pl.DataFrame] = {}
    for piece in file.pieces(TABLE, COLUMNS, only=("globalTid", [*spans])):
        whole = without_nulls(piece, *COLUMNS)
        for thread, (low, high) in spans.items():
            own = whole.filter(pl.col("globalTid") == thread).select(
                "start", pl.col("isSchedIn") != 0
            )
            kept[thread].append(own.filter(pl.col("start").is_between(low, high)))
            earlier = own.filter(pl.col("start") < low)
            if not earlier.is_empty():
                latest = earlier.filter(pl.col("start") == pl.col("start").max()).tail(1)
                known = before.get(thread)
                if known is None or latest["start"].item() >= known["start"].item():
                    before[thread] = latest
    found = {}
    for thread, parts in kept.items():
        first = [before[thread]] if thread in before else []
        rows = pl.concat([*first, *parts])
        parts.clear()
        if rows.is_empty():
            continue
        if not rows["start"].is_sorted():
            rows = rows.sort("start", maintain_order=True)
        at = np.maximum(rows["start"].to_numpy(), spans[thread][0])
        found[thread] = Switches(at, rows["isSchedIn"].to_numpy())
    return found
