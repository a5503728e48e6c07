"""Device work of Nsight Systems exports, with its launches and what NCCL tells of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from rankscope import events
from rankscope.events import Events, Few, Held, Reread
from rankscope.read.device_kinds import device_kinds
from rankscope.read.nsys_columns import PROCESS, Columns, Strings, require
from rankscope.read.nsys_launches import Launches
from rankscope.read.nsys_nccl import OF_NCCL, tells, with_nccl
from rankscope.read.nsys_nvtx import Nvtx
from rankscope.schema import DEVICE_KINDS, DEVICE_WORK, conform, empty

DEVICE_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "set",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
}
"""Tables of device work → its kind; graphs traced as a whole are a row each, without names."""

COLUMNS = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid"]
GRID = ["gridX", "gridY", "gridZ"]
EXTRA = ["contextId", "bytes", "graphNodeId", "shortName", "demangledName", *GRID]

PLACES = pl.Schema(
    {
        "table": pl.String,
        "number": pl.Int64,  # of the piece
        "rows": pl.Int64,
        "first": pl.Int64,  # start in it
    }
)
"""Pieces of tables."""


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Work of the device, and how reading it went."""

    events: Events  # DEVICE_WORK
    kinds: pl.DataFrame  # DEVICE_KINDS
    rows: int = 0  # read, those of launches included
    broken: int = 0  # rows left out
    unread: tuple[str, ...] = ()  # what was there, and could not be read


def device_work(file: Columns, pool: Strings, told: Nvtx) -> DeviceWork:
    """Operations of the device joined with their launches, held where they are few.

    Args:
        file: the export.
        pool: its strings.
        told: its NVTX events.
    """
    tables = [table for table in DEVICE_TABLES if file.has(table)]
    for table in tables:
        require(file, table, *COLUMNS)
    few = Few()
    kinds: list[pl.DataFrame] = [empty(DEVICE_KINDS)]
    places: list[tuple[object, ...]] = []
    broken = 0
    for table in tables:
        for number, piece in enumerate(file.pieces(table, COLUMNS + EXTRA)):
            part = _operations(piece, table, pool)
            broken += piece.height - part.height
            kinds.append(device_kinds(part))
            if part.height:
                places.append((table, number, part.height, part["start"].min()))
            few.add(part)
    alike = device_kinds(pl.concat(kinds))
    launches = Launches(file, alike["process"])
    spread = pl.DataFrame(places, PLACES, orient="row").sort("first")
    rows = int(spread["rows"].sum()) + launches.count
    if not places:
        return DeviceWork(Held(empty(DEVICE_WORK)), alike, rows, broken)
    if few.parts is not None:
        whole = _launched(pl.concat(few.parts).sort("start"), launches)
        whole, unread = with_nccl(file, whole, told)
        return DeviceWork(Held(whole), alike, rows, broken, unread)

    def windows() -> Iterator[pl.DataFrame]:
        return (_launched(part, launches) for part in _in_windows(file, pool, spread))

    if not tells(file, told):
        return DeviceWork(Reread(windows), alike, rows, broken)
    of_nccl = pl.concat(part.filter(OF_NCCL) for part in windows())
    described, unread = with_nccl(file, of_nccl, told)
    return DeviceWork(Reread(lambda: _with(described, windows())), alike, rows, broken, unread)


def _in_windows(file: Columns, pool: Strings, spread: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Operations in the order of their starts, about `PART_ROWS` at once.

    Where tables are not nearly in that order, as they mostly are, more of them are in memory.
    """
    before = pl.col("rows").cum_sum() - pl.col("rows")
    groups = spread.with_columns(nth=before // events.PART_ROWS).partition_by("nth")
    waiting: list[pl.DataFrame] = []
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        fresh = [
            _operations(piece, str(table), pool)
            for (table,), places in group.partition_by("table", as_dict=True).items()
            for piece in file.pieces(
                str(table), COLUMNS + EXTRA, chosen=places["number"].sort().to_list()
            )
        ]
        here = pl.concat([*waiting, *fresh]).sort("start")
        if following is None:
            yield here
            return
        due = here["start"].search_sorted(following["first"][0])
        yield here.slice(0, due)
        waiting = [here.slice(due)]


def _launched(operations: pl.DataFrame, launches: Launches) -> pl.DataFrame:
    """DEVICE_WORK of operations, which NCCL has told nothing of yet."""
    found = launches.of(operations.select("process", "correlationId"))
    return conform(operations.hstack(found), DEVICE_WORK)


def _with(described: pl.DataFrame, parts: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Parts of DEVICE_WORK with what NCCL told of its kernels, which come in the same order."""
    facts = ["communicator", "sequence", "bytes"]
    seen = 0
    for part in parts:
        rows = part.with_row_index("row")
        own = rows.filter(OF_NCCL).select("row")
        told = own.hstack(described.select(facts).slice(seen, own.height))
        seen += own.height
        joined = rows.drop(facts[:2]).join(told, on="row", how="left", suffix="_told")
        size = pl.coalesce("bytes_told", "bytes")
        yield conform(joined.sort("row").with_columns(bytes=size), DEVICE_WORK)


def _operations(rows: pl.DataFrame, table: str, pool: Strings) -> pl.DataFrame:
    """What DEVICE_WORK has of the rows that are whole, and their correlation."""
    kind = DEVICE_TABLES[table]
    whole = rows.drop_nulls(["start", "end", "streamId", "globalPid"]).filter(
        pl.col("end") >= pl.col("start")
    )
    name = pool.of(whole.select(pl.coalesce("shortName", "demangledName")).to_series())
    return whole.select(
        "start",
        "end",
        "correlationId",
        "bytes",
        name=name.fill_null(""),
        process=pl.col("globalPid") // PROCESS,
        kind=pl.lit(kind),
        device="deviceId",
        # a stream number is unique within its context only
        stream=pl.col("contextId").fill_null(0) * 2**32 + pl.col("streamId"),
        graph=(pl.col("graphNodeId").fill_null(0) != 0) | (kind == "graph"),
        grid=pl.col("gridX") * pl.col("gridY") * pl.col("gridZ"),
    )
