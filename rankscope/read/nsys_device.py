"""Device work of Nsight Systems exports, with its launches and what NCCL tells."""

from __future__ import annotations

import polars as pl

from rankscope.read.nsys_columns import PROCESS, Columns, require
from rankscope.schema import DEVICE_WORK, conform, empty

DEVICE_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "set",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
}
"""Tables of device work → its kind; graphs traced as a whole are a row each, without names."""

LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"

NCCL_TABLE = "NCCL_GPU_OPERATIONS"
NCCL_COLUMNS = {
    "communicator": ("commHash", "commId", "communicatorHash", "communicatorId", "communicator"),
    "sequence": ("seqNumber", "seqNum", "sequenceNumber", "sequence"),
    "message": ("size", "bytes", "messageSize", "msgSize"),
}
"""What NCCL tells of its operations in exports of 2026 → spellings of the column."""


def device_work(file: Columns, pool: pl.DataFrame) -> tuple[pl.DataFrame, int, int]:
    """Operations of the device joined with their launches; launches read; rows broken.

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
        return empty(DEVICE_WORK), 0, 0
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
    return conform(_with_nccl(file, conform(work, DEVICE_WORK)), DEVICE_WORK), read, broken


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


def _with_nccl(file: Columns, work: pl.DataFrame) -> pl.DataFrame:
    """DEVICE_WORK with communicator, sequence number and size of NCCL's kernels where told.

    An operation belongs to the NCCL kernel of its process that starts nearest to it, if they
    overlap. A kernel that runs several (a group) has no sequence number of its own.
    """
    if not file.has(NCCL_TABLE, "start", "end"):
        return work
    found = {
        what: next((name for name in names if file.has(NCCL_TABLE, name)), names[0])
        for what, names in NCCL_COLUMNS.items()
    }
    owners = ["globalTid", "globalPid"]
    told = file.read(NCCL_TABLE, ["start", "end", *owners, *found.values()])
    hashes = file.read(NCCL_TABLE, [], [found["communicator"]])  # a number, or spelled out
    operations = (
        told.with_columns(
            process=pl.coalesce(owners) // PROCESS,
            communicator=pl.coalesce(
                hashes.to_series(), pl.col(found["communicator"]).cast(pl.String)
            ),
        )
        .drop_nulls(["start", "end", "process"])
        .rename({found["sequence"]: "sequence", found["message"]: "message", "end": "until"})
        .select("start", "until", "process", "communicator", "sequence", "message")
        .sort("start")
    )
    kernels = work.with_row_index("row").filter(pl.col("name").str.contains("^nccl")).sort("start")
    facts = (
        operations.join_asof(
            kernels.select("row", "process", "end", "start", begin="start"),
            on="start",
            by="process",
            strategy="nearest",
            check_sortedness=False,
        )
        .filter((pl.col("start") < pl.col("end")) & (pl.col("begin") < pl.col("until")))
        .group_by("row")
        .agg(
            pl.when(pl.col("communicator").n_unique() == 1).then(pl.col("communicator").first()),
            pl.when(pl.len() == 1).then(pl.col("sequence").first()),
            pl.when(pl.col("message").is_not_null().all()).then(pl.col("message").sum()),
        )
    )
    return (
        work.drop("communicator", "sequence")
        .with_row_index("row")
        .join(facts, on="row", how="left", maintain_order="left")
        .with_columns(bytes=pl.coalesce("message", "bytes"))
    )
