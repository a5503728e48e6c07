"""Device work of Nsight Systems exports, with its launches and what NCCL tells of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from rankscope import events
from rankscope.events import Events, Held, Reread
from rankscope.read.device_kinds import device_kinds
from rankscope.read.nsys_columns import PROCESS, Columns, Strings, require
from rankscope.read.nsys_launches import Launches
from rankscope.read.nsys_nccl import OF_NCCL, tells, with_nccl
from rankscope.read.nsys_nvtx import Nvtx
from rankscope.schema import DEVICE_KINDS, DEVICE_WORK, conform, empty, ordered

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

NAMES = ["shortName", "demangledName"]
OWNERS = ["globalPid", "deviceId"]
LOOKED_AT = ["start", "end", "streamId", *OWNERS, *NAMES]
"""What tells whether rows are whole, and of which kind."""

PLACES = pl.Schema(
    {
        "table": pl.String,
        "number": pl.Int64,  # of the piece
        "rows": pl.Int64,
        "first": pl.Int64,  # start in it
    }
)
"""Pieces of tables."""

Piece = tuple[str, int, pl.DataFrame]
"""A table, the number of a piece of it, and its rows."""


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
    few = _few(file, tables)
    broken, kinds, places = 0, list[pl.DataFrame](), list[tuple[object, ...]]()
    for table, number, piece in _pieces(file, tables, LOOKED_AT) if few is None else few:
        whole = _whole(piece)
        broken += piece.height - whole.height
        if whole.height:
            kinds.append(_kinds(whole, table))
            places.append((table, number, whole.height, whole["start"].min()))
    if not places:
        launches = Launches(file, ())
        return DeviceWork(Held(empty(DEVICE_WORK)), empty(DEVICE_KINDS), launches.count, broken)
    named = pl.concat(kinds)
    names = pool.categories(named["id"])
    alike = device_kinds(named.with_columns(name=_named(named["id"], names)))
    launches = Launches(file, alike["process"])
    spread = pl.DataFrame(places, PLACES, orient="row").sort("first")
    rows = int(spread["rows"].sum()) + launches.count
    if few is not None:
        parts = [_operations(piece, table, names) for table, _, piece in few]
        every = ordered(pl.concat(parts, rechunk=True), "start")
        del few, parts
        whole, unread = with_nccl(file, _launched(every, launches), told)
        return DeviceWork(Held(whole), alike, rows, broken, unread)

    def windows() -> Iterator[pl.DataFrame]:
        return (_launched(part, launches) for part in _in_windows(file, names, spread))

    if not tells(file, told):
        return DeviceWork(Reread(windows), alike, rows, broken)
    of_nccl = pl.concat(part.filter(OF_NCCL) for part in windows())
    described, unread = with_nccl(file, of_nccl, told)
    return DeviceWork(Reread(lambda: _with(described, windows())), alike, rows, broken, unread)


def _pieces(file: Columns, tables: list[str], columns: list[str]) -> Iterator[Piece]:
    """Some columns of the tables, piece by piece."""
    for table in tables:
        for number, piece in enumerate(file.pieces(table, columns)):
            yield table, number, piece


def _few(file: Columns, tables: list[str]) -> list[Piece] | None:
    """All pieces of the tables; None where that is too much to hold."""
    few, rows = list[Piece](), 0
    for each in _pieces(file, tables, COLUMNS + EXTRA):
        few.append(each)
        rows += each[2].height
        if rows > events.MOST_HELD:
            return None
    return few


def _in_windows(file: Columns, names: Strings, spread: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Operations in the order of their starts, about `PART_ROWS` at once.

    Where tables are not nearly in that order, as they mostly are, more of them are in memory.
    """
    before = pl.col("rows").cum_sum() - pl.col("rows")
    groups = spread.with_columns(nth=before // events.PART_ROWS).partition_by("nth")
    waiting: list[pl.DataFrame] = []
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        for (table,), places in group.partition_by("table", as_dict=True).items():
            chosen = places["number"].sort().to_list()
            for piece in file.pieces(str(table), COLUMNS + EXTRA, chosen=chosen):
                waiting.append(ordered(_operations(piece, str(table), names), "start"))
        due = waiting
        if following is not None:
            border = following["first"][0]
            counts = [int(each["start"].search_sorted(border, "left")) for each in waiting]
            due = [each.head(count) for each, count in zip(waiting, counts, strict=True)]
            waiting = [each.slice(count) for each, count in zip(waiting, counts, strict=True)]
            waiting = [each for each in waiting if each.height]
        due = [each for each in due if each.height]
        if due:
            yield due[0] if len(due) == 1 else ordered(pl.concat(due, rechunk=True), "start")


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


def _whole(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that have times and an owner."""
    whole = rows.drop_nulls(["start", "end", "streamId", "globalPid"])
    return whole.filter(pl.col("end") >= pl.col("start"))


def _kinds(whole: pl.DataFrame, table: str) -> pl.DataFrame:
    """What DEVICE_KINDS has of rows that are whole, names as their ids."""
    rows = whole.select("end", *OWNERS, id=pl.coalesce(NAMES))
    same = {  # grouping by these as well would cost more than all else
        name: pl.lit(rows[name][0], pl.Int64)
        for name in OWNERS
        if not rows[name].null_count() and rows[name].min() == rows[name].max()
    }
    groups = rows.group_by("id", *(name for name in OWNERS if name not in same))
    return (
        groups.agg(pl.col("end").max())
        .with_columns(**same)
        .select(
            "id",
            "end",
            process=pl.col("globalPid") // PROCESS,
            device="deviceId",
            kind=pl.lit(DEVICE_TABLES[table], DEVICE_WORK["kind"]),
        )
    )


def _operations(rows: pl.DataFrame, table: str, names: Strings) -> pl.DataFrame:
    """What DEVICE_WORK has of the rows that are whole, and their correlation."""
    kind, whole = DEVICE_TABLES[table], _whole(rows)
    return whole.select(
        "start",
        "end",
        "correlationId",
        "bytes",
        name=_named(whole.select(pl.coalesce(NAMES)).to_series(), names),
        process=pl.col("globalPid") // PROCESS,
        kind=pl.lit(kind, DEVICE_WORK["kind"]),
        device="deviceId",
        # a stream number is unique within its context only
        stream=pl.col("contextId").fill_null(0) * 2**32 + pl.col("streamId"),
        graph=(pl.col("graphNodeId").fill_null(0) != 0) | (kind == "graph"),
        grid=pl.col("gridX") * pl.col("gridY") * pl.col("gridZ"),
    )


def _named(ids: pl.Series, names: Strings) -> pl.Series:
    """Names by their ids, "" where there is none."""
    return names.of(ids).fill_null("")
