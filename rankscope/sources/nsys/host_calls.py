"""Calls in Nsight Systems exports: of the operating system, of CUDA, and the profiler's time."""

from collections import deque
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.model.arrays import filled, known_or, places
from rankscope.model.host_events import Calls, Spans
from rankscope.model.intervals import Times
from rankscope.sources.columns.request import Columns
from rankscope.sources.nsys.common import PROCESS, Strings, without_nulls

CUDA_CALLS, OS_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME", "OSRT_API"
"""Tables of the calls of CUDA's runtime and driver, and of those of the C library."""


def busiest(file: Columns) -> dict[int, tuple[int, int]]:
    """The process with most calls → start of its first and end of its last call; may be empty."""
    for table in (CUDA_CALLS, OS_CALLS):  # the most certain sign of a training process first
        if not file.has(table, "start", "end", "globalTid"):
            continue
        called = file.read(table, ["start", "end", "globalTid"]).drop_nulls()
        spans = (
            called.group_by(process=pl.col("globalTid") // PROCESS)
            .agg(pl.col("start").min(), pl.col("end").max(), calls=pl.len())
            .sort("calls", "process", descending=[True, False])
        )
        for process, start, end in spans.head(1).select("process", "start", "end").iter_rows():
            return {process: (start, end)}
    return {}


PROFILER = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
TIMES = ["start", "end", "globalTid"]

VERSION = r"_v\d+$|_ptsz$"
"""The suffix of CUDA call names in exports."""

UNNAMED = "profiler"

Ids = NDArray[np.uint32]

NO_ID = 2**32 - 1
"""Stands for an id that is missing: above all of them."""


def profiler_time(file: Columns, pool: Strings, spans: Spans) -> dict[int, Calls] | None:
    """Time that the profiler itself took on the threads; None where no table says it."""
    tables = [calls(file, table, pool, spans) for table in PROFILER]
    present = [each for each in tables if each is not None]
    if not present:
        return None
    return {thread: Calls.joined([(0, each[thread]) for each in present]) for thread in spans}


def calls(
    file: Columns,
    table: str,
    pool: Strings,
    spans: Spans,
    held: Sequence[pl.DataFrame] | None = None,
) -> dict[int, Calls] | None:
    """The calls of a table, `held` or read, that overlap the spans, clipped to them.

    None without the table.
    """
    if not file.has(table, *TIMES):
        return None
    kept: dict[int, list[tuple[Times, Times, Ids]]] = {thread: [] for thread in spans}
    only = ("globalTid", [*spans])
    for piece in held or file.pieces(table, [*TIMES, "nameId"], only=only):
        whole = without_nulls(piece, *TIMES)
        start, end, caller = (whole[name].to_numpy() for name in TIMES)
        # Ids of strings are small; a larger one is none.
        ids = filled(whole["nameId"].cast(pl.UInt32, strict=False), NO_ID)
        for thread, (low, high) in spans.items():
            own = (caller == thread) & (end > low) & (start < high) & (end > start)
            times = (np.clip(each[own], low, high) for each in (start, end))
            kept[thread].append((*times, ids[own]))
    return {thread: _named(parts, pool) for thread, parts in kept.items()}


def _named(parts: list[tuple[Times, Times, Ids]], pool: Strings) -> Calls:
    """Calls with names as codes: places among their distinct names. Empties `parts`."""
    columns = deque(map(list, zip(*parts, strict=True)))
    parts.clear()
    # Column by column, so that only one column is in memory twice.
    start, end, ids = (np.concatenate(columns.popleft()) for _ in range(3))
    name, first = places(ids.astype(np.int64))
    known = pl.Series(ids[first], dtype=pl.Int64)
    names = known_or(pool.of(known), UNNAMED).str.replace(VERSION, "")
    return Calls(start, end, name.astype(np.int32), names)
