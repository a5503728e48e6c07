"""Device work of Nsight Systems exports, with its launches and what NCCL tells of it."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.read.nsys_columns import PROCESS, Columns, in_order, require
from rankscope.read.nsys_launches import launches_of
from rankscope.read.nsys_nccl import with_nccl
from rankscope.schema import DEVICE_WORK, conform, empty

DEVICE_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "set",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
}
"""Tables of device work → its kind; graphs traced as a whole are a row each, without names."""


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Work of the device, and how reading it went."""

    frame: pl.DataFrame  # DEVICE_WORK
    launches: int = 0  # rows read
    broken: int = 0  # rows left out
    unread: tuple[str, ...] = ()  # what was there, and could not be read


def device_work(file: Columns, pool: pl.DataFrame) -> DeviceWork:
    """Operations of the device joined with their launches.

    Args:
        file: the export.
        pool: what `strings` gave of it.
    """
    columns = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid"]
    grids = ["gridX", "gridY", "gridZ"]
    extra = ["contextId", "bytes", "graphNodeId", "shortName", "demangledName", *grids]
    tables = [table for table in DEVICE_TABLES if file.has(table)]
    for table in tables:
        require(file, table, *columns)
    if not tables:
        return DeviceWork(empty(DEVICE_WORK))
    names = pool.rename({"textId": "nameId", "string": "name"})
    parts: list[pl.DataFrame] = []
    broken = 0
    for table in tables:
        for piece in file.pieces(table, columns + extra):
            whole = piece.drop_nulls(["start", "end", "streamId", "globalPid"]).filter(
                pl.col("end") >= pl.col("start")
            )
            broken += piece.height - whole.height
            parts.append(_operations(whole, DEVICE_TABLES[table], names))
    work = in_order(parts)
    launches, read = launches_of(file, work.select("process", "correlationId"))
    work = conform(work.hstack(launches), DEVICE_WORK)
    described, unread = with_nccl(file, work, pool)
    return DeviceWork(described, read, broken, unread)


def _operations(rows: pl.DataFrame, kind: str, names: pl.DataFrame) -> pl.DataFrame:
    """What DEVICE_WORK has of rows that are whole, and their correlation."""
    return (
        rows.with_columns(nameId=pl.coalesce("shortName", "demangledName"))
        .join(names, on="nameId", how="left")
        .select(
            "start",
            "end",
            "correlationId",
            "bytes",
            pl.col("name").fill_null(""),
            process=pl.col("globalPid") // PROCESS,
            kind=pl.lit(kind),
            device="deviceId",
            # a stream number is unique within its context only
            stream=pl.col("contextId").fill_null(0) * 2**32 + pl.col("streamId"),
            graph=(pl.col("graphNodeId").fill_null(0) != 0) | (kind == "graph"),
            grid=pl.col("gridX") * pl.col("gridY") * pl.col("gridZ"),
        )
    )
