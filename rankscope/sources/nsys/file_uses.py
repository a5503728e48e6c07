"""Files that threads read and wrote, in Nsight Systems exports (2025 and newer).

Read by the schema that NVIDIA documents: no real export with these tables was seen. It leaves open
whether a thread is its id or nsys's key of it, so both are looked for.
"""

from __future__ import annotations

import polars as pl

from rankscope.model.host_events import FILE_USES, Spans
from rankscope.sources.nsys.common import PROCESS, Columns, Strings, without_nulls

EVENTS, OPENED = "OSRT_FILE_ACCESS_EVENTS", "OSRT_FILE_ACCESS_DESCRIPTORS"
EVENT = ["fileAccessId", "threadId", "startedAt", "endedAt"]

BASE_NAME = r"([^/\\]*)[/\\]*$"
"""The end of a path. Its folders may tell of users, and are never kept."""


def file_uses(file: Columns, pool: Strings, spans: Spans) -> dict[int, pl.DataFrame] | None:
    """Thread → FILE_USES that begin in its span; None without the tables."""
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
