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

Integers = NDArray[np.int64]

Calls = tuple[Integers, Integers, Integers]
"""Keys, starts and threads of some API calls, by key and start."""


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
        launch, thread = np.full((2, keys.size), UNKNOWN)
        for called, start, caller in self._near(keys):
            at = np.minimum(np.searchsorted(called, keys), called.size - 1)
            hit = np.flatnonzero(called[at] == keys)
            at = at[hit]
            earlier = (launch[hit] == UNKNOWN) | (start[at] < launch[hit])
            launch[hit[earlier]], thread[hit[earlier]] = start[at[earlier]], caller[at[earlier]]
        found = pl.DataFrame({"launch": launch, "launch_thread": thread})
        return found.select(pl.when(pl.all() != UNKNOWN).then(pl.all()))

    def _near(self, keys: Integers) -> Iterable[Calls]:
        """Calls, among them all that have one of the keys."""
        keys = np.sort(keys)
        begins, ends = np.searchsorted(keys, self._low), np.searchsorted(keys, self._high, "right")
        numbers = np.unique(self._numbers[begins < ends]).tolist()
        fresh = [number for number in numbers if number not in self._calls]
        if fresh:
            pieces = self._file.pieces(LAUNCHES, COLUMNS, chosen=fresh)
            read = [self._known(piece.drop_nulls()) for piece in pieces]
            kept = {number: calls for number, calls in self._calls.items() if number in numbers}
            self._calls = kept | dict(zip(fresh, read, strict=True))
        return [self._calls[number] for number in numbers]

    def _known(self, calls: pl.DataFrame) -> Calls:
        """Calls of the processes by key, the earliest of each first."""
        keys = _keys(calls.with_columns(process=pl.col("globalTid") // PROCESS), self._processes)
        start, thread = calls["start"].to_numpy(), calls["globalTid"].to_numpy()
        if (keys[1:] > keys[:-1]).all() and (keys[:1] >= 0).all():  # as nsys writes them
            return keys, start, thread
        order = np.lexsort((start, keys))
        order = order[np.searchsorted(keys, 0, sorter=order) :]
        return keys[order], start[order], thread[order]


def _keys(rows: pl.DataFrame, processes: Integers) -> Integers:
    """Process and number in one; -1 where there is no number, or a process that launched none."""
    process = rows["process"].fill_null(UNKNOWN).to_numpy()
    number = rows["correlationId"].fill_null(-1).to_numpy()
    place = np.searchsorted(processes, process)
    known = (np.append(processes, UNKNOWN)[place] == process) & (process != UNKNOWN)
    known &= (number >= 0) & (number < 2**NUMBER_BITS)
    keys: Integers = np.where(known, place << NUMBER_BITS | number, -1)
    return keys
