"""Events of a thread in Nsight Systems exports: scheduling, calls, samples, file accesses."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from rankscope.model.host_events import FILE_USES, Calls, HostEvents, Spans, Switches, ThreadEvents
from rankscope.sources.columns.request import Columns
from rankscope.sources.nsys.common import PROCESS, Strings, without_nulls
from rankscope.sources.nsys.host_calls import CUDA_CALLS, OS_CALLS, calls, profiler_time
from rankscope.sources.nsys.samples import samples

SWITCHES = "SCHED_EVENTS"
SWITCH = ["start", "isSchedIn", "globalTid"]


EVENTS, OPENED = "OSRT_FILE_ACCESS_EVENTS", "OSRT_FILE_ACCESS_DESCRIPTORS"
EVENT = ["fileAccessId", "threadId", "startedAt", "endedAt"]

BASE_NAME = r"([^/\\]*)[/\\]*$"
"""The end of a path. Its folders may contain names of users, and are never kept."""


def switches(file: Columns, spans: Spans) -> dict[int, Switches]:
    """The switches of some threads; a thread without any is left out.

    The state at the beginning of a span is that of the last switch before it.
    """
    if not file.has(SWITCHES, *SWITCH):
        return {}
    kept: dict[int, list[pl.DataFrame]] = {thread: [] for thread in spans}
    before: dict[int, pl.DataFrame] = {}
    for piece in file.pieces(SWITCHES, SWITCH, only=("globalTid", [*spans])):
        whole = without_nulls(piece, *SWITCH)
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
    by_thread = {}
    for thread, parts in kept.items():
        first = [before[thread]] if thread in before else []
        rows = pl.concat([*first, *parts])
        parts.clear()
        if rows.is_empty():
            continue
        if not rows["start"].is_sorted():
            rows = rows.sort("start", maintain_order=True)
        at = np.maximum(rows["start"].to_numpy(), spans[thread][0])
        by_thread[thread] = Switches(at, rows["isSchedIn"].to_numpy())
    return by_thread


def file_uses(file: Columns, pool: Strings, spans: Spans) -> dict[int, pl.DataFrame] | None:
    """Thread → FILE_USES that begin in its span; None without the tables (nsys 2025 and newer).

    Read by the schema that NVIDIA documents: no real export with these tables was seen. It leaves
    open whether a thread is its id or nsys's key of it, so both are looked for.
    """
    if not (file.has(EVENTS, *EVENT) and file.has(OPENED, "fileAccessId", "filePath")):
        return None
    keys = {thread: [thread, thread % PROCESS] for thread in spans}
    wanted = sorted({key for each in keys.values() for key in each})
    kept: dict[int, list[pl.DataFrame]] = {thread: [] for thread in spans}
    columns = [*EVENT, "apiCallId", "bytesProcessed"]
    for piece in file.pieces(EVENTS, columns, only=("threadId", wanted)):
        whole = without_nulls(piece, *EVENT)
        for thread, (low, high) in spans.items():
            kept[thread].append(
                whole.filter(
                    pl.col("threadId").is_in(keys[thread]),
                    pl.col("startedAt").is_between(low, high, closed="left"),
                    pl.col("endedAt") >= pl.col("startedAt"),
                )
            )
    opened = file.read(OPENED, ["fileAccessId"], ["filePath"]).drop_nulls()
    names = opened.unique("fileAccessId", keep="first").select(
        "fileAccessId", file=pl.col("filePath").str.extract(BASE_NAME)
    )
    return {thread: _named(pl.concat(parts), names, pool) for thread, parts in kept.items()}


def _named(rows: pl.DataFrame, names: pl.DataFrame, pool: Strings) -> pl.DataFrame:
    return (
        rows.with_columns(call=pool.of(rows["apiCallId"]).fill_null(""))
        .join(names, on="fileAccessId", how="left", maintain_order="left")
        .select(
            start="startedAt",
            end="endedAt",
            call="call",
            file=pl.col("file").fill_null(""),
            bytes=pl.when(pl.col("bytesProcessed") >= 0).then("bytesProcessed"),
        )
        .match_to_schema(FILE_USES)
    )


def host_events(
    file: Columns, pool: Strings, launches: Sequence[pl.DataFrame] | None = None
) -> HostEvents:
    """Reads the events of some threads from the export, once per call.

    Args:
        launches: chunks of its API calls; None where they are to be read.
    """

    def read(spans: Spans) -> dict[int, ThreadEvents]:
        scheduled = switches(file, spans)
        called = calls(file, OS_CALLS, pool, spans)
        cuda = calls(file, CUDA_CALLS, pool, spans, launches)
        sampled = samples(file, pool, spans)
        profiler = profiler_time(file, pool, spans)
        files = file_uses(file, pool, spans)
        return {
            thread: ThreadEvents(
                switches=scheduled.get(thread),
                os_calls=None if called is None else called[thread],
                cuda_calls=None if cuda is None else cuda[thread],
                samples=None if sampled is None else sampled[thread],
                profiler=Calls.none() if profiler is None else profiler[thread],
                files=None if files is None else files[thread],
            )
            for thread in spans
        }

    return read
