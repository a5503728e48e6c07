"""Launches of Nsight Systems exports: which API call started an operation of the device.

A process numbers its calls, and an operation has the number of the call that launched it. An
export has more calls than anything else, so they are looked at piece by piece and none is kept
but those that launched something.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.read.nsys_columns import PROCESS, Columns

LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"
COLUMNS = ["start", "globalTid", "correlationId"]

NUMBER_BITS = 40
"""Of a call's number, which CUPTI keeps in 32; those of several processes fit into one integer."""

UNKNOWN = -(2**63)
NEVER = 2**63 - 1

MOST_CALLS = 1_000_000
"""Calls that are held; of more those that the last question was about."""

SPARSE = 16
"""Numbers lie close together if at least one in so many is there."""

Integers = NDArray[np.int64]

Calls = tuple[Integers, Integers, Integers]
"""Keys, starts and threads of some API calls."""


class Launches:
    """The API calls of an export; where they are many, those are read that may be asked for."""

    def __init__(self, file: Columns, processes: Iterable[int]) -> None:
        """Look once at all calls.

        Args:
            file: the export.
            processes: those that have work on a device.
        """
        self._file = file
        self._processes = np.array(sorted({*processes}), np.int64)
        self._calls: dict[int, Calls] = {}  # by the piece they are in
        self.count = 0
        spans = [(NEVER, UNKNOWN, 0)]
        there = file.has(LAUNCHES, *COLUMNS)
        for number, piece in enumerate(file.pieces(LAUNCHES, COLUMNS) if there else ()):
            whole = piece.drop_nulls()
            self.count += whole.height
            self._calls[number] = calls = self._known(whole)
            # A process numbers its calls as they come: those of a piece lie close together.
            for place in range(self._processes.size):
                keys = calls[0][calls[0] >> NUMBER_BITS == place]
                if keys.size:
                    spans.append((int(keys.min()), int(keys.max()), number))
            if self.count > MOST_CALLS:
                self._calls.clear()
        self._low, self._high, self._numbers = np.array(spans, np.int64).T

    def of(self, operations: pl.DataFrame) -> pl.DataFrame:
        """Start and thread of the call that launched each operation.

        Of several calls with one number the earliest counts.

        Args:
            operations: `process` and `correlationId` of each.

        Returns:
            launch and launch_thread, null without a record.
        """
        keys = _keys(operations, self._processes)
        slots = _Slots(keys[keys >= 0])
        launch, thread = np.full(slots.count + 1, NEVER), np.full(slots.count + 1, UNKNOWN)
        for called, start, caller in map(slots.near, self._near(slots)):
            at = slots.of(called)
            np.minimum.at(launch, at, start)
            first = launch[at] == start
            thread[at[first]] = caller[first]
        launch[launch == NEVER] = UNKNOWN
        launch[-1], thread[-1] = UNKNOWN, UNKNOWN
        at = slots.of(keys)
        found = pl.DataFrame({"launch": launch[at], "launch_thread": thread[at]})
        return found.select(pl.when(pl.all() != UNKNOWN).then(pl.all()))

    def _near(self, slots: _Slots) -> Iterable[Calls]:
        """Calls, among them all that have one of the numbers."""
        numbers = np.unique(self._numbers[slots.between(self._low, self._high)]).tolist()
        fresh = [number for number in numbers if number not in self._calls]
        if fresh:
            pieces = self._file.pieces(LAUNCHES, COLUMNS, chosen=fresh)
            read = [self._known(piece.drop_nulls()) for piece in pieces]
            kept = {number: calls for number, calls in self._calls.items() if number in numbers}
            self._calls = kept | dict(zip(fresh, read, strict=True))
        return [self._calls[number] for number in numbers]

    def _known(self, calls: pl.DataFrame) -> Calls:
        """Calls of the processes."""
        keys = _keys(calls.with_columns(process=pl.col("globalTid") // PROCESS), self._processes)
        known = keys >= 0
        start, thread = (calls[name].to_numpy()[known] for name in ("start", "globalTid"))
        return keys[known], start, thread


class _Slots:
    """A place for each of some keys, and one, the last, for all others."""

    def __init__(self, keys: Integers) -> None:
        self._low, self._high = (int(keys.min()), int(keys.max())) if keys.size else (0, -1)
        span = self._high - self._low + 1
        self._keys = None if span <= SPARSE * keys.size else np.unique(keys)
        self.count = span if self._keys is None else self._keys.size

    def of(self, keys: Integers) -> Integers:
        """The places of keys."""
        if self._keys is None:  # a place for all keys in between is faster than looking for them
            inside = (keys >= self._low) & (keys <= self._high)
            return np.where(inside, keys - self._low, self.count)
        at = np.minimum(np.searchsorted(self._keys, keys), self.count - 1)
        return np.where(self._keys[at] == keys, at, self.count)

    def near(self, calls: Calls) -> Calls:
        """Calls without most of those that have none of the keys: a piece's mostly come sorted."""
        keys = calls[0]
        if self._keys is not None or (keys[1:] < keys[:-1]).any():
            return calls
        begin, end = np.searchsorted(keys, (self._low, self._high + 1))
        return keys[begin:end], calls[1][begin:end], calls[2][begin:end]

    def between(self, low: Integers, high: Integers) -> NDArray[np.bool_]:
        """Whether any key may be in each of some spans, borders included."""
        if self._keys is None:
            return (low <= self._high) & (high >= self._low)
        return np.searchsorted(self._keys, low) < np.searchsorted(self._keys, high, side="right")


def _keys(rows: pl.DataFrame, processes: Integers) -> Integers:
    """Process and number in one; -1 where there is no number, or a process that launched none."""
    process = rows["process"].fill_null(UNKNOWN).to_numpy()
    number = rows["correlationId"].fill_null(-1).to_numpy()
    place = np.searchsorted(processes, process)
    known = (np.append(processes, UNKNOWN)[place] == process) & (process != UNKNOWN)
    known &= (number >= 0) & (number < 2**NUMBER_BITS)
    keys: Integers = np.where(known, place << NUMBER_BITS | number, -1)
    return keys
