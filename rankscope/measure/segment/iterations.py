"""The iteration ranges of a process, their numbers and their windows. See METHOD.md#iterations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.measure.segment.training_thread import training_thread
from rankscope.model.schema import ITERATIONS, conform

WHOLE, AUTO = -1, -2
"""Used in place of a convention's row: the whole capture as one iteration, or detected steps."""

READS = r"^aten::(item|_local_scalar_dense)$"
"""Names of operators that wait for a result of the step that ends."""

UNNAMED = {WHOLE: "whole", AUTO: "auto"}


@dataclass(frozen=True, slots=True)
class IterationRanges:
    """The iterations of one process."""

    frame: pl.DataFrame  # ITERATIONS
    thread: int  # the training thread
    numbered: bool  # numbers come from names or payloads, not from counting
    row: int  # the convention that named them, or one of UNNAMED


def find_iterations(named: pl.DataFrame, duration_ns: int | None) -> IterationRanges | None:
    """The iterations among the ranges of one process, or None.

    Of several candidates (nested `step` and `batch`, for example) those with numbers win, then
    those that cover the most time, so that outer ranges win over inner ones.

    Args:
        named: RANGES with the columns of MEANINGS joined on.
        duration_ns: end of the capture; a range that ends exactly there was cut off.
    """
    candidates = named.filter(
        (pl.col("means") == "iteration") & (pl.col("end") > pl.col("start"))
    ).with_columns(
        given=pl.coalesce("number", "payload"),
        # servers write the kind and the size of a step in brackets
        stem=pl.col("name").str.replace_all(r"\d+", "").str.replace(r"[\[(].*$", ""),
    )
    if candidates.is_empty():
        return None
    group = ["row", "stem", "thread"]
    best = (
        candidates.group_by(group)
        .agg(
            numbered=pl.col("given").is_not_null().all(),
            covered=(pl.col("end") - pl.col("start")).sum(),
        )
        .sort("numbered", "covered", *group, descending=[True, True, False, False, False])
        .row(0, named=True)
    )
    ranges = (
        candidates.filter(*(pl.col(name) == best[name] for name in group))
        .sort("start", "end", descending=[False, True])
        .filter(pl.col("end") > pl.col("end").cum_max().shift(1, fill_value=-1))  # not nested
    )
    return IterationRanges(
        frame=_windows(ranges, best["numbered"], duration_ns),
        thread=best["thread"],
        numbered=best["numbered"],
        row=best["row"],
    )


def whole_capture(
    named: pl.DataFrame, work: tuple[int, int] | None, launching: pl.Series, main_thread: int
) -> IterationRanges | None:
    """The capture of one process as a single iteration, from its first to its last event.

    Args:
        named: RANGES of the process with the columns of MEANINGS joined on; may be empty.
        work: start and end of its other events; None: it has none.
        launching: threads that launched its computation.
        main_thread: its first thread, the training thread if nothing tells it.
    """
    if named.is_empty() and work is None:
        return None
    starts, ends = [named["start"].min()], [named["end"].max()]
    if work is not None:
        starts, ends = [*starts, work[0]], [*ends, work[1]]
    window = pl.DataFrame(
        {
            "iteration": 0,
            "epoch": 0,
            "number": 0,
            "start": min(start for start in starts if isinstance(start, int)),
            "end": max(end for end in ends if isinstance(end, int)),
            "complete": True,
        }
    ).with_columns(window_start="start", window_end="end")
    thread = training_thread(named, launching, main_thread)
    return IterationRanges(conform(window, ITERATIONS), thread, numbered=False, row=WHOLE)


def with_trailing(found: IterationRanges, named: pl.DataFrame) -> IterationRanges:
    """Iterations that end where their ranges do, with the reading of results that follows.

    The ranges that end iterations (the optimizer's) may be followed by operators that wait for a
    result, the loss say: these belong to the iteration that ends.

    Args:
        found: the iterations of a process.
        named: thread, start, end, name of its ranges.
    """
    own = named.filter(pl.col("thread") == found.thread).sort(
        "start", "end", descending=[False, True]
    )
    outer = own.filter(pl.col("start") >= pl.col("end").cum_max().shift(1, fill_value=-1))
    starts, ends = outer["start"].to_numpy(), outer["end"].to_numpy()
    reads = outer["name"].str.contains(READS).to_numpy()
    extended = []
    for end in found.frame["end"]:
        first = at = int(np.searchsorted(starts, end))
        while at < len(starts) and reads[at]:
            at += 1
        extended.append(int(ends[at - 1]) if at > first else end)
    end = pl.Series("end", extended, dtype=pl.Int64)
    begin = end.shift(1).fill_null(found.frame["window_start"])
    frame = found.frame.with_columns(end, window_end=end, window_start=begin)
    return replace(found, frame=frame)


def with_pauses(found: IterationRanges, pauses: Iterable[tuple[int, int]]) -> IterationRanges:
    """Iterations beside times that were not recorded, which belong to none of them.

    The first iteration after a pause starts at its own range, as that of a capture does. What is
    between has the number before it, and is incomplete. Where no number is free, the iteration
    after the pause is incomplete.

    Args:
        found: the iterations of a process.
        pauses: starts and ends of the pauses, ns.
    """
    frame = found.frame
    for begin, end in pauses:
        later = frame.filter(pl.col("start") >= end).head(1)
        before = frame.filter(pl.col("end") <= begin).tail(1)
        if later.is_empty() or before.is_empty():
            continue
        is_later = pl.col("iteration") == later["iteration"].item()
        if before["iteration"].item() + 1 == later["iteration"].item():
            frame = frame.with_columns(complete=pl.col("complete") & ~is_later)
            continue
        until = later["start"].item()
        missing = later.with_columns(
            pl.col("iteration", "number") - 1,
            start=before["end"].item(),
            end=until,
            window_start=before["window_end"].item(),
            window_end=until,
            complete=False,
        )
        moved = frame.with_columns(
            window_start=pl.when(is_later).then(until).otherwise("window_start")
        )
        frame = pl.concat([moved, conform(missing, ITERATIONS)]).sort("start")
    return replace(found, frame=frame)


def _windows(ranges: pl.DataFrame, numbered: bool, duration_ns: int | None) -> pl.DataFrame:
    """ITERATIONS from the iteration ranges in time order.

    A window runs from the end of the previous iteration's range to the end of its own (data is
    fetched between the ranges of most scripts); the first one starts at its own range. Where
    numbers start over (epochs), counting continues.
    """
    number = pl.col("given") if numbered else pl.int_range(pl.len(), dtype=pl.Int64)
    frame = ranges.with_columns(number=number).with_columns(
        epoch=(pl.col("number") <= pl.col("number").shift(1)).fill_null(False).cum_sum(),
        window_start=pl.col("end").shift(1).fill_null(pl.col("start")),
        window_end="end",
        complete=pl.lit(True) if duration_ns is None else pl.col("end") != duration_ns,
    )
    before = (
        frame.group_by("epoch")
        .agg(offset=pl.col("number").max() + 1)
        .sort("epoch")
        .with_columns(pl.col("offset").cum_sum().shift(1, fill_value=0))
    )
    frame = frame.join(before, on="epoch").with_columns(
        iteration=pl.col("number") + pl.col("offset")
    )
    return conform(frame.sort("start"), ITERATIONS, drop_others=True)
