"""Device work of Nsight Systems exports, with its launches and NCCL's description."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.model.arrays import codes, filled, known_or, places, rows_of, taken
from rankscope.model.device_work import DeviceClock, DeviceWork, InMemoryWork, device_kinds
from rankscope.model.events import StreamedEvents
from rankscope.model.frames import framed, stacked, with_series
from rankscope.model.intervals import in_order
from rankscope.model.schema import DEVICE_KINDS, DEVICE_WORK, OPERATION, conform, empty, ordered
from rankscope.sources.columns.request import Columns
from rankscope.sources.conventions import Vocabulary, short_name
from rankscope.sources.device_faults import LATE_NS, moved_by, wrong_clocks
from rankscope.sources.nsys.common import PROCESS, Strings, require, without_nulls
from rankscope.sources.nsys.launches import Launches
from rankscope.sources.nsys.nccl import OF_NCCL, with_nccl
from rankscope.sources.nsys.nvtx import Nvtx
from rankscope.util.numbers import NEVER

DEVICE_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "set",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
}
"""Tables of device work → its kind; a graph traced as a whole is one row without a name."""

COLUMNS = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid"]
GRID = ["gridX", "gridY", "gridZ"]
EXTRA = ["contextId", "bytes", "graphNodeId", "shortName", "demangledName", *GRID]

NAMES = ["shortName", "demangledName"]
OWNERS = ["globalPid", "deviceId"]

PLACES = pl.Schema(
    {
        "table": pl.String,
        "number": pl.Int64,  # of the piece
        "rows": pl.Int64,
        "first": pl.Int64,  # start in it
    }
)
"""Pieces of tables."""

KINDS = pl.Schema(
    [
        *(("id", pl.Int64()), ("full", pl.Int64())),
        *(each for each in DEVICE_KINDS.items() if each[0] not in ("name", "operation")),
    ]
)
"""DEVICE_KINDS before names and operations are looked up."""

KNOWN = pl.Schema(
    {"id": pl.Int64(), "full": pl.Int64(), "name": pl.Categorical(), "operation": OPERATION}
)
"""Name and operation by the ids of a kernel's short and whole name."""

NAMELESS = "the table StringIds is missing or empty, so that kernels have no names"

Piece = tuple[str, int, pl.DataFrame]
"""A table, the number of a piece of it, and its rows."""


def device_work(
    file: Columns,
    pool: Strings,
    nvtx_events: Nvtx,
    launches: Launches,
    words: Vocabulary,
    duration_ns: int | None = None,
) -> DeviceWork:
    """Operations of the device joined with their launches, in memory if they are few.

    Args:
        duration_ns: of the capture; what ends long after it is left out.
    """
    until = NEVER if duration_ns is None else duration_ns + LATE_NS
    tables = [table for table in DEVICE_TABLES if file.has(table)]
    for table in tables:
        require(file, table, *COLUMNS)
    names = _Names(pool, words)
    if launches.of_kernels > file.limits.held:  # there are about as many operations
        return _StreamedWork(file, tables, names, launches, nvtx_events, until)
    rows = recorded = 0
    parts = [with_series(empty(DEVICE_WORK), pl.Series("correlationId", dtype=pl.Int64))]
    for table, _, piece in _pieces(file, tables, COLUMNS + EXTRA):
        whole = _whole(piece, until)
        rows += piece.height
        if rows > file.limits.held:
            return _StreamedWork(file, tables, names, launches, nvtx_events, until)
        ids = _ids(whole)
        names.learn(ids)
        done = _operations(whole, ids, table, names)
        parts.append(with_series(_launched(done, launches), done["correlationId"]))
        recorded += whole.height
    work_in_order = _in_one(parts)
    runs_all = launches.captures.is_empty()  # what a graph captures does not run
    launched = launches.of_kernels if runs_all else 0
    moved = wrong_clocks(work_in_order, launches.sync_calls, launched)
    work_in_order = moved_by(work_in_order, moved)
    launches.record(work_in_order)
    work, unread = with_nccl(file, work_in_order[DEVICE_WORK.names()], nvtx_events)
    return InMemoryWork(
        work,
        rows=recorded + launches.count,
        broken=rows - recorded,
        unread=unread + names.missing if tables else (),
        sync_calls=launches.sync_calls,
        unrecorded=launches.unrecorded(),
        moved=moved,
    )


class _StreamedWork:
    """Work of the device in narrow pieces, which are kept or, if they are too many, read again."""

    def __init__(
        self,
        file: Columns,
        tables: list[str],
        names: _Names,
        launches: Launches,
        nvtx_events: Nvtx,
        until: int,
    ) -> None:
        """Reads nothing, unless the export describes NCCL's kernels: then these are read."""
        self._file, self._tables, self._launches = file, tables, launches
        self._names, self._until = names, until
        self._reading = self._read()
        self._kept: list[pl.DataFrame] | None = []
        self._seen: _Survey | None = None
        self._moved: dict[int, DeviceClock] | None = None
        self._all_read = False
        self._described: pl.DataFrame | None = None  # NCCL's kernels, as NCCL tells of them
        self.unread = names.missing
        if not nvtx_events.of_nccl.is_empty():
            of_nccl = pl.concat(part.filter(OF_NCCL) for part in self.parts())
            self._described, unread = with_nccl(file, of_nccl, nvtx_events)
            self.unread += unread

    @property
    def whole(self) -> pl.DataFrame:
        """All of it, in memory."""
        return stacked(self.parts())

    @property
    def kinds(self) -> pl.DataFrame:
        """DEVICE_KINDS."""
        kinds = self._survey.kinds
        return device_kinds(
            kinds.with_columns(
                name=self._names.of(kinds["id"]), operation=self._names.operations(kinds["full"])
            )
        )

    @property
    def rows(self) -> int:
        """The number of rows that were read, including those of launches."""
        return int(self._survey.places["rows"].sum()) + self._launches.count

    @property
    def broken(self) -> int:
        """The number of rows left out."""
        return self._survey.broken

    @property
    def unrecorded(self) -> pl.DataFrame:
        """UNRECORDED."""
        self._read_all()
        return self._launches.unrecorded()

    @property
    def moved(self) -> dict[int, DeviceClock]:
        """Process → its device's clock if wrong, by the first part, if one process has all work."""
        self._read_all()
        return self._moved or {}

    def _read_all(self) -> None:
        if not self._all_read:
            deque(self.parts(), maxlen=0)

    @property
    def sync_calls(self) -> pl.DataFrame:
        """SYNC_CALLS."""
        return self._launches.sync_calls

    def first_look(self) -> Iterator[pl.DataFrame]:
        """All work; in the order of the tables if it is too much to be kept."""
        if self._described is None and self._launches.of_kernels > self._file.limits.kept:
            return chain([empty(DEVICE_WORK)], map(self._launched, self._pieces()))
        return self.parts()

    def parts(self) -> Iterator[pl.DataFrame]:
        """DEVICE_WORK in the order of the starts."""
        if self._survey.places.is_empty():
            return iter([empty(DEVICE_WORK)])
        parts = self._on_host_time()
        return parts if self._described is None else _with(self._described, parts)

    def _on_host_time(self) -> Iterator[pl.DataFrame]:
        """Work with possible times, each a record of its launch."""
        for part in self._in_order():
            work = self._launched(part)
            if self._moved is None:
                alone = self._survey.kinds["process"].n_unique() == 1
                self._moved = wrong_clocks(work, self.sync_calls) if alone else {}
            if self._all_read:
                yield moved_by(work, self._moved)
                continue
            whole = moved_by(with_series(work, part["correlationId"]), self._moved)
            self._launches.record(whole[["process", "correlationId"]])
            yield whole.drop("correlationId")
        self._all_read = True

    def map(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> StreamedEvents:
        """The rows after `change`, which is applied at every read."""
        return StreamedEvents(lambda: map(change, self.parts()))

    @property
    def _survey(self) -> _Survey:
        if self._seen is None:
            deque(self._pieces(), maxlen=0)
        assert self._seen is not None
        return self._seen

    def _pieces(self) -> Iterator[pl.DataFrame]:
        """Narrow rows of each piece that has any; kept by the first pass while they are few."""
        if self._kept is None:
            yield from self._read()
            return
        yield from [*self._kept]
        for rows in self._reading:
            if self._kept is not None:
                self._kept.append(rows)
                if sum(map(len, self._kept)) > self._file.limits.kept:
                    self._kept = None
            yield rows

    def _in_order(self) -> Iterator[pl.DataFrame]:
        """Narrow rows in the order of their starts, about `Limits.part_rows` at once."""
        if self._kept is None:
            return _in_windows(self._chosen, self._survey.places, self._file.limits.part_rows)
        if len(self._kept) > 1 or not self._kept[0]["start"].is_sorted():
            self._kept.append(_in_one(self._kept))
        return self._kept[0].iter_slices(self._file.limits.part_rows)

    def _chosen(self, table: str, numbers: list[int]) -> Iterator[pl.DataFrame]:
        """Narrow rows of some pieces of a table, read again."""
        for piece in self._file.pieces(table, COLUMNS + EXTRA, chosen=numbers):
            yield self._narrow(_whole(piece, self._until), table)

    def _read(self) -> Iterator[pl.DataFrame]:
        """Narrow rows of each piece that has any; the last step stores the survey."""
        broken, kinds, places = 0, [empty(KINDS)], list[tuple[object, ...]]()
        for table, number, piece in _pieces(self._file, self._tables, COLUMNS + EXTRA):
            whole = _whole(piece, self._until)
            broken += piece.height - whole.height
            if whole.height:
                kinds.append(_kinds(whole, table))
                self._names.learn(kinds[-1][["id", "full"]])
                places.append((table, number, whole.height, whole["start"].min()))
                yield self._narrow(whole, table)
        spread = pl.DataFrame(places, PLACES, orient="row").sort("first")
        self._seen = _Survey(stacked(kinds), spread, broken)

    def _narrow(self, whole: pl.DataFrame, table: str) -> pl.DataFrame:
        """Columns of DEVICE_WORK and the correlation, in the smallest types that hold them."""
        rows = _operations(whole, _ids(whole), table, self._names)
        return framed(each.shrink_dtype() if each.dtype.is_integer() else each for each in rows)

    def _launched(self, narrow: pl.DataFrame) -> pl.DataFrame:
        """DEVICE_WORK of narrow rows, without NCCL's description."""
        return _launched(narrow, self._launches)


class _Survey(Struct, frozen=True):
    """The survey of all work in the report."""

    kinds: pl.DataFrame  # KINDS; several rows may be alike
    places: pl.DataFrame  # PLACES
    broken: int


class _Names:
    """Names of operations by their ids, as categories, and what kernels of a name communicate."""

    def __init__(self, pool: Strings, words: Vocabulary) -> None:
        """Start without names; `pool` has the strings."""
        self._pool, self._words = pool, words
        self._known = empty(KNOWN)
        self._names = self._operations = pool.of_values(*self._known[["id", "name"]])

    @property
    def missing(self) -> tuple[str, ...]:
        """The message that operations have no names, if so."""
        return (NAMELESS,) if self._pool.is_empty else ()

    def learn(self, ids: pl.DataFrame) -> None:
        """Make some names available: `id` of the short, `full` of the whole name."""
        known = {*self._known[["id", "full"]].iter_rows(), (None, None)}  # copies have no names
        distinct = taken(ids, places(codes(ids))[1])
        unknown = rows_of(distinct, np.array([each not in known for each in distinct.iter_rows()]))
        if unknown.is_empty():
            return
        texts = {"name": self._pool.of(unknown["id"]), "full": self._pool.of(unknown["full"])}
        named = framed(texts).with_columns_seq(short_name())
        operation = self._words.operations(named)["operation"]
        fresh = with_series(unknown, named["name"].cast(KNOWN["name"]), operation)
        self._known = learnt = stacked([self._known, fresh])
        self._names = self._pool.of_values(learnt["id"], learnt["name"])
        self._operations = self._pool.of_values(learnt["full"], learnt["operation"])

    def of(self, ids: pl.Series) -> pl.Series:
        """Names of ids that were learnt; "" for ids without a name."""
        return known_or(self._names.of(ids), "")

    def operations(self, full: pl.Series) -> pl.Series:
        """OPERATION of kernels by the ids of their whole names; null for computation."""
        return self._operations.of(full)


def _pieces(file: Columns, tables: list[str], columns: list[str]) -> Iterator[Piece]:
    """Some columns of the tables, in chunks."""
    for table in tables:
        for number, piece in enumerate(file.pieces(table, columns)):
            yield table, number, piece


def _in_windows(
    chosen: Callable[[str, list[int]], Iterable[pl.DataFrame]],
    spread: pl.DataFrame,
    part_rows: int,
) -> Iterator[pl.DataFrame]:
    """Narrow rows in the order of their starts, about `part_rows` at once.

    Tables are mostly close to that order; the farther they are from it, the more memory it takes.
    """
    before = pl.col("rows").cum_sum() - pl.col("rows")
    groups = spread.with_columns(nth=before // part_rows).partition_by("nth")
    waiting: list[pl.DataFrame] = []
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        for (table,), own in group.partition_by("table", as_dict=True).items():
            for rows in chosen(str(table), own["number"].sort().to_list()):
                waiting.append(ordered(rows, "start"))
        due = waiting
        if following is not None:
            border = following["first"][0]
            counts = [int(each["start"].search_sorted(border, "left")) for each in waiting]
            due = [each.head(count) for each, count in zip(waiting, counts, strict=True)]
            waiting = [each.slice(count) for each, count in zip(waiting, counts, strict=True)]
            waiting = [each for each in waiting if each.height]
        due = [each for each in due if each.height]
        if due:
            yield due[0] if len(due) == 1 else _in_one(due)


def _in_one(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all in the order of their starts. Empties `frames`.

    Works column by column, so that only one column is in memory twice.
    """
    place = in_order(np.concatenate([each["start"].to_numpy() for each in frames]))
    order = pl.Series(place.astype(np.uint32))
    columns = deque(zip(*frames, strict=True))
    frames.clear()

    def following() -> pl.Series:
        parts: list[pl.Series] = [*columns.popleft()]
        if len({str(each.dtype) for each in parts}) == 1:
            return pl.concat(parts, rechunk=True)[order]
        alike = pl.concat([each.to_frame() for each in parts], how="vertical_relaxed", rechunk=True)
        return alike.to_series()[order]

    return framed(following() for _ in range(len(columns)))


def _launched(operations: pl.DataFrame, launches: Launches) -> pl.DataFrame:
    """DEVICE_WORK of operations, without NCCL's description: `_with` adds that."""
    rows = operations.hstack(launches.of(operations[["process", "correlationId"]]))
    return conform(rows, DEVICE_WORK, optional=("communicator", "sequence"), drop_others=True)


def _with(described: pl.DataFrame, parts: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Chunks of DEVICE_WORK with NCCL's description of its kernels, which has the same order."""
    facts = ["operation", "communicator", "bytes"]
    done = 0
    for part in parts:
        rows = part.with_row_index("row")
        own = rows.filter(OF_NCCL).select("row")
        descriptions = own.hstack(described.select(facts).slice(done, own.height))
        done += own.height
        joined = rows.join(
            descriptions, on="row", how="left", maintain_order="left", suffix="_nccl"
        )
        combined = (pl.coalesce(f"{name}_nccl", name).alias(name) for name in facts)
        yield conform(joined.with_columns(combined), DEVICE_WORK, drop_others=True)


def _whole(rows: pl.DataFrame, until: int) -> pl.DataFrame:
    """The rows that have possible times, the last of them at `until` ns, and an owner."""
    whole = without_nulls(rows, "start", "end", "streamId", "globalPid")
    lasts = (whole["end"] >= whole["start"]) & (whole["end"] <= until)
    return whole if lasts.all() else whole.filter(lasts)


def _kinds(whole: pl.DataFrame, table: str) -> pl.DataFrame:
    """KINDS of valid rows."""
    rows = with_series(whole[["end", *OWNERS]], *_ids(whole))
    grouped = rows.group_by(pl.exclude("end")).agg(pl.col("end").max())
    process, kind = pl.col("globalPid") // PROCESS, pl.lit(DEVICE_TABLES[table])
    owned = grouped.with_columns(process=process, device="deviceId", kind=kind)
    return conform(owned, KINDS, drop_others=True)


def _ids(rows: pl.DataFrame) -> pl.DataFrame:
    """`id` of the short name and `full` of the whole name; where one is missing, the other."""
    short, whole = (rows[name] for name in NAMES)
    return framed({"id": known_or(short, whole), "full": known_or(whole, short)})


def _operations(whole: pl.DataFrame, ids: pl.DataFrame, table: str, names: _Names) -> pl.DataFrame:
    """The columns of DEVICE_WORK that valid rows have themselves, and their correlation."""
    kind = DEVICE_TABLES[table]
    return framed(
        {
            **{name: whole[name] for name in ("start", "end", "correlationId", "bytes")},
            "name": names.of(ids["id"]),
            "operation": names.operations(ids["full"]),
            "process": whole["globalPid"].to_numpy() // PROCESS,
            "kind": pl.Series([kind], dtype=DEVICE_WORK["kind"]).new_from_index(0, whole.height),
            "device": whole["deviceId"],
            "context": filled(whole["contextId"], 0).astype(np.uint32),
            "stream": whole["streamId"].to_numpy().astype(np.uint32),
            "graph": (filled(whole["graphNodeId"], 0) != 0) | (kind == "graph"),
            "grid": whole["gridX"] * whole["gridY"] * whole["gridZ"],
        }
    )
