"""Device work of Nsight Systems exports, with its launches and what NCCL tells of it."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.read.nsys_columns import PROCESS, Columns, require
from rankscope.read.nsys_nccl import with_nccl
from rankscope.schema import DEVICE_WORK, conform, empty

DEVICE_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "set",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
}
"""Tables of device work → its kind; graphs traced as a whole are a row each, without names."""

LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"


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
    every = pl.concat(
        file.read(table, columns + extra).with_columns(kind=pl.lit(DEVICE_TABLES[table]))
        for table in tables
    )
    work = every.drop_nulls(["start", "end", "streamId", "globalPid"]).filter(
        pl.col("end") >= pl.col("start")
    )
    broken = every.height - work.height
    work = work.with_columns(process=pl.col("globalPid") // PROCESS)
    launches, read = _launches(file, work)
    names = pool.rename({"textId": "nameId", "string": "name"})
    work = (
        work.lazy()
        .join(launches.lazy(), on=["process", "correlationId"], how="left")
        .with_columns(nameId=pl.coalesce("shortName", "demangledName"))
        .join(names.lazy(), on="nameId", how="left")
        .with_columns(
            pl.col("name").fill_null(""),
            device="deviceId",
            # a stream number is unique within its context only
            stream=pl.col("contextId").fill_null(0) * 2**32 + pl.col("streamId"),
            graph=(pl.col("graphNodeId").fill_null(0) != 0) | (pl.col("kind") == "graph"),
            grid=pl.col("gridX") * pl.col("gridY") * pl.col("gridZ"),
        )
        .sort("start")
        .collect()
    )
    described, unread = with_nccl(file, conform(work, DEVICE_WORK), pool)
    return DeviceWork(described, read, broken, unread)


def _launches(file: Columns, work: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Start and thread of the API call that launched each operation of `work`."""
    columns = ["start", "globalTid", "correlationId"]
    if not file.has(LAUNCHES, *columns):
        schema = ["process", "correlationId", "launch", "launch_thread"]
        return pl.DataFrame(schema=dict.fromkeys(schema, pl.Int64)), 0
    calls = file.read(LAUNCHES, columns).drop_nulls()
    launches = (
        calls.lazy()
        .with_columns(process=pl.col("globalTid") // PROCESS)
        .join(work.lazy(), on=["process", "correlationId"], how="semi")
        .sort("start")
        .unique(["process", "correlationId"], keep="first", maintain_order=True)
        .rename({"start": "launch", "globalTid": "launch_thread"})
        .collect()
    )
    return launches, calls.height
