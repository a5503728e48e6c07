"""API calls of Nsight Systems exports: those that launched operations, and those that waited.

A process numbers its calls, and an operation has the number of the call that launched it. An
export has more calls than anything else. They are therefore read in chunks, and only the start
and the thread of each are kept, in arrays indexed by the call's number. The calls that wait for the
device are few, and kept whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from rankscope.model.arrays import codes, filled, places, taken
from rankscope.model.device_work import SYNC_CALLS
from rankscope.model.events import BoundedBuffer
from rankscope.model.frames import framed, stacked, with_series
from rankscope.model.intervals import Flags
from rankscope.model.schema import empty
from rankscope.sources.columns.request import Columns
from rankscope.sources.conventions import waits_from
from rankscope.sources.device_faults import captures, launches_kernel, outside_captures
from rankscope.sources.nsys.common import PROCESS, PROCESS_BITS, Strings, without_nulls
from rankscope.util.numbers import NEVER

LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"
COLUMNS = ["start", "globalTid", "correlationId"]
NAMED = ["end", "nameId"]
"""Further columns, by which calls that wait for the device are found."""

SPARSE = 2
"""Calls are indexed by number if the range of numbers is below this multiple of their count."""

CAPTURES = pl.Schema({"process": pl.Int64, "start": pl.Int64, "captures": pl.Int8})
"""Calls that begin or end the capture of a graph (`device_faults.captures`)."""

UNKNOWN = -(2**63)

TWICE = -NEVER
"""In place of the start of calls that share a number."""

Integers = NDArray[np.int64]
Threads = NDArray[np.uint32]


class Numbered(NamedTuple):
    """API calls of a process, in any order. Shape: (n,) each."""

    numbers: Integers
    start: Integers
    thread: Threads  # its id within the process, plus 1


class Calls(Struct, frozen=True):
    """Some API calls of a process. A number that several calls share identifies none of them."""

    low: int  # the lowest number
    numbers: Integers | None  # rising; None: each from the lowest on has a place
    start: Integers  # of each, and `NEVER` for a number without a call, `TWICE` of several
    thread: Threads  # as in `Numbered`, and 0

    @classmethod
    def of(cls, parts: Sequence[Numbered]) -> Calls:
        """Calls in any order."""
        low = min(int(part.numbers.min()) for part in parts)
        places = max(int(part.numbers.max()) for part in parts) - low + 1
        size = sum(part.numbers.size for part in parts)
        if places <= SPARSE * size:
            calls = cls(low, None, np.full(places + 1, NEVER), np.zeros(places + 1, np.uint32))
            for part in parts:
                place = part.numbers - low
                calls.start[place], calls.thread[place] = part.start, part.thread
            if np.count_nonzero(calls.thread) == size:
                return calls
        numbers, start, thread = map(np.concatenate, zip(*parts, strict=True))
        if (numbers[1:] > numbers[:-1]).all() and places > SPARSE * size:
            return cls(low, numbers, np.append(start, NEVER), np.append(thread, np.uint32(0)))
        numbers, order, counts = np.unique(numbers, return_index=True, return_counts=True)
        start = np.where(counts > 1, TWICE, start[order])
        return cls.of([Numbered(numbers, start, thread[order])])

    @property
    def high(self) -> int:
        """The highest number."""
        return self.low + self.start.size - 2 if self.numbers is None else int(self.numbers[-1])

    def find(self, numbers: Integers) -> tuple[Integers, Threads]:
        """Start and thread of the call of each number; `NEVER` and 0 without one, or `TWICE`."""
        place, is_known = _places(numbers, self.low, self.numbers, self.start.size - 1)
        if not is_known.all():
            place[~is_known] = self.start.size - 1
        return self.start[place], self.thread[place]


class _Kernels:
    """The numbers of the calls of a process that launch kernels, and which have no record."""

    def __init__(self, parts: list[NDArray[Any]]) -> None:
        """No records yet; `parts` has the numbers."""
        numbers = np.concatenate(parts).astype(np.int64)
        self._low, places = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
        self._numbers: Integers | None = None
        if places <= SPARSE * numbers.size:
            self._lost = np.zeros(places, np.bool_)
            self._lost[numbers - self._low] = True
        else:  # NumPy takes ten times as long
            self._numbers = pl.Series(numbers).unique().sort().to_numpy()
            self._lost = np.ones(self._numbers.size, np.bool_)

    def record(self, numbers: Integers) -> None:
        """Note that the kernels of some calls have a record."""
        place, is_known = _places(numbers, self._low, self._numbers, self._lost.size)
        self._lost[place if is_known.all() else place[is_known]] = False

    @property
    def lost(self) -> Integers:
        """The numbers of the launches without a record."""
        place = np.flatnonzero(self._lost)
        lost = place + self._low if self._numbers is None else self._numbers[place]
        return np.asarray(lost[lost != 0])


class Launches:
    """The API calls of an export; if they are many, chunks are read when a lookup needs them."""

    def __init__(self, file: Columns, pool: Strings) -> None:
        """Read all calls of an export once; `pool` has its strings."""
        self._file = file
        waiting, capturing = [empty(SYNC_CALLS)], [empty(CAPTURES)]
        few = BoundedBuffer(most=file.limits.held)
        self.count = 0
        kernels: dict[int, list[NDArray[Any]]] = {}  # by process: numbers of their launches
        spans: dict[int, list[tuple[int, int, int]]] = {}
        all_of: dict[int, list[Numbered]] = {}  # by process
        has_calls = file.has(LAUNCHES, *COLUMNS)
        for number, piece in enumerate(file.pieces(LAUNCHES, COLUMNS + NAMED) if has_calls else ()):
            whole = without_nulls(piece, *COLUMNS)
            waits, captured, launching = _by_name(whole, pool)
            waiting.append(waits)
            capturing.append(captured)
            for process, numbers in _launching(whole, launching):
                kernels.setdefault(process, []).append(numbers)
            few.add(piece)
            self.count += whole.height
            for process, calls in _numbered(whole):
                low, high = int(calls.numbers.min()), int(calls.numbers.max())
                spans.setdefault(process, []).append((low, high, number))
                all_of.setdefault(process, []).append(calls)
            if self.count > file.limits.launches:
                all_of.clear()
        self.sync_calls = stacked(waiting)  # SYNC_CALLS
        self.captures = stacked(capturing)  # CAPTURES
        self._kernels = {process: _Kernels(parts) for process, parts in kernels.items()}
        self.of_kernels = sum(part.size for parts in kernels.values() for part in parts)
        self.pieces = few.parts  # COLUMNS and NAMED of all calls; None where they are many
        self._held: dict[int, dict[int, Calls]] = {}  # by the piece they are in, and process
        if self.count <= file.limits.launches:
            whole_of = {process: Calls.of(parts) for process, parts in all_of.items()}
            self._held = {0: whole_of}
            spans = {process: [(each.low, each.high, 0)] for process, each in whole_of.items()}
        self._spans = {key: np.array(each, np.int64).T for key, each in spans.items()}

    def of(self, operations: pl.DataFrame) -> pl.DataFrame:
        """Start and thread of the call that launched each operation.

        A number that several calls of a process share identifies none of them.

        Args:
            operations: `process` and `correlationId` of each.

        Returns:
            launch and launch_thread, null without a record.
        """
        numbers = filled(operations["correlationId"].cast(pl.Int64), UNKNOWN)
        lookups = [
            (process, rows, numbers[rows], self._near(process, numbers[rows]))
            for process, rows in _parted(operations["process"].to_numpy())
            if process in self._spans
        ]
        self._hold({piece for *_, pieces in lookups for piece in pieces})
        launch = np.full(numbers.size, NEVER)
        thread = np.zeros(numbers.size, np.int64)
        for process, rows, called, pieces in lookups:
            start, caller = _only(called, (self._held[piece][process] for piece in pieces))
            launch[rows], thread[rows] = start, caller + np.int64(process * PROCESS - 1)
        columns = framed({"launch": launch, "launch_thread": thread})
        known = pl.Series((launch != NEVER) & (launch != TWICE))
        return columns if known.all() else columns.select(pl.when(known).then(pl.all()))

    def record(self, operations: pl.DataFrame) -> None:
        """Note that operations have a record.

        Args:
            operations: `process` and `correlationId` of each.
        """
        numbers = filled(operations["correlationId"].cast(pl.Int64), UNKNOWN)
        for process, rows in _parted(operations["process"].to_numpy()):
            if process in self._kernels:
                self._kernels[process].record(numbers[rows])

    def unrecorded(self) -> pl.DataFrame:
        """UNRECORDED, once all operations with a possible time have been recorded."""
        lost = {process: kernels.lost for process, kernels in self._kernels.items()}
        process = np.repeat(np.array([*lost], np.int64), [*map(len, lost.values())])
        numbers = np.concatenate([np.empty(0, np.int64), *lost.values()])
        launches = self.of(framed({"process": process, "correlationId": numbers}))
        return outside_captures(with_series(launches, pl.Series("process", process)), self.captures)

    def _near(self, process: int, numbers: Integers) -> list[int]:
        """The pieces that may have calls with some of the numbers."""
        lows, highs, pieces = self._spans[process]
        if pieces.size > 1:
            numbers = np.sort(numbers, kind="stable")  # as they nearly are
            begins, ends = np.searchsorted(numbers, lows), np.searchsorted(numbers, highs, "right")
            pieces = pieces[begins < ends]
        return [int(piece) for piece in pieces]

    def _hold(self, pieces: set[int]) -> None:
        """Hold exactly these pieces: read those that are not held, and drop the others."""
        fresh = sorted(pieces - self._held.keys())
        if fresh:
            read = self._file.pieces(LAUNCHES, COLUMNS, chosen=fresh)
            known = {
                n: {
                    process: Calls.of([calls])
                    for process, calls in _numbered(without_nulls(piece, *COLUMNS))
                }
                for n, piece in zip(fresh, read, strict=True)
            }
            self._held = known | {n: self._held[n] for n in pieces - known.keys()}


def _by_name(calls: pl.DataFrame, pool: Strings) -> tuple[pl.DataFrame, pl.DataFrame, Flags]:
    """What the calls of a chunk do, by their names.

    Returns:
        SYNC_CALLS and CAPTURES among them, and whether each launches a kernel.
    """
    place, first = places(codes(calls[["nameId"]]))
    named = framed({"name": pool.of(taken(calls["nameId"], first))})
    by_name = named.select_seq(
        captures=captures(), launches=launches_kernel(), waits_from=waits_from().fill_null(NEVER)
    )
    capturing, launching, least = (each.to_numpy()[place] for each in by_name)
    owner, start = calls["globalTid"].to_numpy(), calls["start"].to_numpy()
    end = filled(calls["end"], calls["start"] - 1)
    process = owner >> PROCESS_BITS
    owned = framed({"process": process, "thread": owner, "start": start, "end": end})
    captured = with_series(owned[["process", "start"]], pl.Series("captures", capturing))
    waited, kept = np.flatnonzero(end - start >= least), np.flatnonzero(capturing)
    return taken(owned, waited), taken(captured, kept), launching


def _launching(calls: pl.DataFrame, flags: Flags) -> Iterator[tuple[int, NDArray[Any]]]:
    """Of the calls whose flag is set each process and the numbers, small."""
    owners, numbers = (calls[name].to_numpy()[flags] for name in ("globalTid", "correlationId"))
    for process, rows in _parted(owners >> PROCESS_BITS):
        yield process, pl.Series(numbers[rows]).shrink_dtype().to_numpy()


def _parted(owners: Integers) -> Iterator[tuple[int, Integers | slice]]:
    """Each process that owns some of the rows, and which."""
    if not owners.size:
        return
    if (owners == owners[0]).all():
        yield int(owners[0]), slice(None)
        return
    order = np.argsort(owners, kind="stable")
    borders = np.flatnonzero(np.diff(owners[order])) + 1
    for rows in np.split(order, borders):
        yield int(owners[rows[0]]), rows


def _places(
    numbers: Integers, low: int, known: Integers | None, size: int
) -> tuple[Integers, Flags]:
    """The place of each number, from the lowest on or among rising ones, and whether it exists."""
    if known is None:
        place = numbers - low
        return place, place.view(np.uint64) < size
    place = np.minimum(np.searchsorted(known, numbers), size - 1)
    return place, known[place] == numbers


def _numbered(calls: pl.DataFrame) -> Iterator[tuple[int, Numbered]]:
    """Calls of each process."""
    start, thread, number = (calls[name].to_numpy() for name in COLUMNS)
    within = (thread & (PROCESS - 1)).astype(np.uint32) + np.uint32(1)
    for process, rows in _parted(thread >> PROCESS_BITS):
        yield process, Numbered(number[rows], start[rows], within[rows])


def _only(numbers: Integers, parts: Iterable[Calls]) -> tuple[Integers, Threads]:
    """Starts and threads of the only calls of some numbers, as `Calls.find`."""
    results = [calls.find(numbers) for calls in parts]
    if not results:
        return np.full(numbers.size, NEVER), np.zeros(numbers.size, np.uint32)
    start, thread = results[0]
    for begun, caller in results[1:]:
        np.copyto(thread, caller, where=begun != NEVER)
        start = np.where((start != NEVER) & (begun != NEVER), TWICE, np.minimum(start, begun))
    return start, thread
