"""The communication that kernels do, by the host ranges that launched them."""

import numpy as np
import polars as pl

from rankscope.model.arrays import filled, holds, is_null, rows_of, taken
from rankscope.model.frames import with_series
from rankscope.model.schema import OPERATION, PEERS

AROUND = pl.Schema(
    {"start": pl.Int64(), "end": pl.Int64(), "thread": pl.Int64(), "around": OPERATION}
)
"""Ranges that launch communication: disjoint on a thread, by start."""

UNKNOWN = "grouped"
"""The operation of calls of an unknown kind."""

INEXACT = (UNKNOWN, "point_to_point")
"""Operations of kernels that run other collectives as well."""


def calls_around(meaningful: pl.DataFrame) -> pl.DataFrame:
    """AROUND: the outermost ranges of each thread that launch one known kind of communication.

    Of an operator and the call inside it that does the same, the inner one counts: the operator may
    copy as well. Inside a call of an unknown kind, the inner call counts.

    Args:
        meaningful: RANGES of one process by start, outer ones first, with the columns of MEANINGS.
    """
    launching = meaningful["means"].is_in(["collective", "operator"])
    own = holds(launching & (meaningful["end"] > meaningful["start"]))
    own &= ~holds(meaningful["blocking"])
    calls = rows_of(meaningful[["start", "end", "thread", "operation"]], own)
    around = calls["operation"].cast(OPERATION, strict=False).alias("around")
    calls = rows_of(with_series(calls, around)[AROUND.names()], ~is_null(around))
    thread, end = calls["thread"].to_numpy(), calls["end"].to_numpy()
    start, operation = calls["start"].to_numpy(), calls["around"].to_physical().to_numpy()
    vague = (calls["around"] == UNKNOWN).to_numpy()
    kept = np.zeros(calls.height, np.bool_)
    for each in np.unique(thread):
        places = np.flatnonzero(thread == each)
        outer, inner = places[:-1], places[1:]
        repeated = (operation[inner] == operation[outer]) | vague[outer]
        places = places[~np.append(repeated & (start[inner] < end[outer]), False)]
        before = np.maximum.accumulate(np.append(-1, end[places][:-1]))
        kept[places] = start[places] >= before
    return rows_of(calls, kept)


def with_calls_around(work: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """DEVICE_WORK whose `operation` also follows from the ranges around the launches.

    A kernel that may run any collective runs the one of the range. A kernel that is not known to
    communicate does so if it is the only kernel that the range launched. Sends and receives that
    are another collective name a communicator, and no peers.

    Args:
        work: DEVICE_WORK of one process.
        calls: AROUND of it.
    """
    if calls.is_empty() or work.is_empty():
        return work
    launch, thread = filled(work["launch"], 0), filled(work["launch_thread"], 0)
    launched = ~(is_null(work["launch"]) | is_null(work["launch_thread"]))
    launched &= (work["kind"] == "kernel").to_numpy()
    call = np.full(work.height, -1)
    callers = calls["thread"].to_numpy()
    for own in np.unique(callers):
        on_thread = np.flatnonzero(callers == own)
        begins, ends = (calls[name].to_numpy()[on_thread] for name in ("start", "end"))
        rows = np.flatnonzero(launched & (thread == own))
        place = np.searchsorted(begins, launch[rows], side="right") - 1
        inside = (place >= 0) & (launch[rows] < ends[place])
        call[rows[inside]] = on_thread[place[inside]]
    within = call >= 0
    if not within.any():
        return work
    alone = within & (np.bincount(call[within], minlength=calls.height)[call] == 1)
    operation = work["operation"]
    stated = alone & is_null(operation)
    for inexact in INEXACT:
        stated |= within & holds(operation == inexact)
    around = taken(calls["around"], np.maximum(call, 0))
    # a group of sends and receives, as the trace names their peers
    exact = holds((operation == INEXACT[1]) & work["communicator"].str.contains(PEERS))
    stated &= ~(exact & (around == UNKNOWN).to_numpy())
    if not stated.any():
        return work
    other = stated & exact & (around != INEXACT[1]).to_numpy()
    communicator = work["communicator"].zip_with(
        pl.Series(~other), work["communicator"].str.extract("^([0-9]+) ")
    )
    return with_series(work, operation.zip_with(pl.Series(~stated), around), communicator)
