"""Launches of Nsight Systems exports: which API call started an operation of the device.

A process numbers its calls, and an operation has the number of the call that launched it. An
export has more calls than anything else, so they are looked at piece by piece and none is kept
but those that launched something.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.read.nsys_columns import PROCESS, Columns

LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"

NUMBER_BITS = 40
"""Of a call's number, which CUPTI keeps in 32; those of several processes fit into one integer."""

UNKNOWN = -(2**63)
NEVER = 2**63 - 1

Integers = NDArray[np.int64]


def launches_of(file: Columns, operations: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Start and thread of the call that launched each operation, and how many calls there are.

    Of several calls with one number the earliest counts.

    Args:
        file: the export.
        operations: `process` and `correlationId` of each.
    """
    columns = ["start", "globalTid", "correlationId"]
    if not file.has(LAUNCHES, *columns):
        return _nullable(*np.full((2, operations.height), UNKNOWN)), 0
    processes = operations["process"].unique().drop_nulls().sort().to_numpy()
    wanted = _keys(operations, processes)
    keys, which = np.unique(wanted, return_inverse=True)
    launch, thread = np.full(keys.size, NEVER), np.full(keys.size, UNKNOWN)
    calls = 0
    for piece in file.pieces(LAUNCHES, columns):
        whole = piece.drop_nulls()
        calls += whole.height
        own = _keys(whole.with_columns(process=pl.col("globalTid") // PROCESS), processes)
        at = np.minimum(np.searchsorted(keys, own), keys.size - 1)
        if not keys.size:
            continue
        hit = (keys[at] == own) & (own >= 0)
        at, start = at[hit], whole["start"].to_numpy()[hit]
        np.minimum.at(launch, at, start)
        first = launch[at] == start
        thread[at[first]] = whole["globalTid"].to_numpy()[hit][first]
    launch[launch == NEVER] = UNKNOWN
    return _nullable(launch[which], thread[which]), calls


def _keys(rows: pl.DataFrame, processes: Integers) -> Integers:
    """Process and number in one; -1 where there is no number, or a process that launched none."""
    process = rows["process"].fill_null(UNKNOWN).to_numpy()
    number = rows["correlationId"].fill_null(-1).to_numpy()
    place = np.searchsorted(processes, process)
    known = (np.append(processes, UNKNOWN)[place] == process) & (process != UNKNOWN)
    known &= (number >= 0) & (number < 2**NUMBER_BITS)
    keys: Integers = np.where(known, place << NUMBER_BITS | number, -1)
    return keys


def _nullable(launch: Integers, thread: Integers) -> pl.DataFrame:
    return pl.DataFrame({"launch": launch, "launch_thread": thread}).with_columns(
        pl.all().replace(UNKNOWN, None)
    )
