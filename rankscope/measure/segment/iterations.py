"""The iteration ranges of a process, their numbers and their windows. See METHOD.md#iterations."""

import re
from collections.abc import Iterable
from itertools import count

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.measure.segment.training_thread import training_thread
from rankscope.model.arrays import is_null, known_if, known_or, rows_of, summed, taken
from rankscope.model.frames import framed
from rankscope.model.intervals import Flags, Times
from rankscope.model.schema import ITERATIONS, conform

WHOLE, AUTO = -1, -2
"""Used in place of a convention's row: the whole capture as one iteration, or detected steps."""

READS = r"^aten::(item|_local_scalar_dense)$"
"""Names of operators that wait for a result of the step that ends."""

MOSTLY_NEXT = 0.9
"""Numbers in names count iterations if at least this share of them is one more than the last."""

LARGEST = 1 << 31
"""Larger numbers count no steps: they are addresses or hashes."""

UNNAMED = {WHOLE: "whole", AUTO: "auto"}


class IterationRanges(Struct, frozen=True):
    """The iterations of one process."""

    frame: pl.DataFrame  # ITERATIONS
    thread: int  # the training thread
    numbered: bool  # numbers come from names or payloads, not from counting
    row: int  # the convention that named them, or one of UNNAMED


def find_iterations(named: pl.DataFrame, duration_ns: int | None) -> IterationRanges | None:
    """The iterations among the ranges of one process, or None.

    Of several candidates (nested `step` and `batch`, for example) those with numbers win, then
    those that cover the most time, so that outer ranges win over inner ones. Where most iterations
    stand alone, one that holds others has a wrong begin or end, and is left out. Steps of a
    profiler that begin between forward and backward of other candidates give these their numbers.

    Args:
        named: RANGES with a meaning, with the columns of MEANINGS joined on.
        duration_ns: end of the capture; a range that ends exactly there was cut off.
    """
    lasting = (named["means"] == "iteration") & (named["end"] > named["start"])
    candidates = rows_of(named, lasting.to_numpy())
    if candidates.is_empty():
        return None
    # servers write the kind and the size of a step in brackets
    stem = candidates["name"].str.replace_all(r"\d+", "").str.replace(r"[\[(].*$", "")
    keys = framed([candidates["row"], stem, candidates["thread"]])
    number = known_or(candidates["number"], candidates["payload"])
    number = known_if(number, known_or(number < LARGEST, False).to_numpy())
    known = ~is_null(number)
    length = (candidates["end"] - candidates["start"]).to_numpy()
    groups, (known_too, covered), place = summed(keys, np.stack((known, length)))
    numbered = known_too == np.bincount(place)
    _, _, (row, _, thread), best = min(zip(~numbered, -covered, groups.rows(), count()))
    own = np.flatnonzero(place == best)
    start, end = (taken(candidates[name], own).to_numpy() for name in ("start", "end"))
    order = np.lexsort((-end, start))
    outer = _outer(end[order])
    holds = np.bincount((np.cumsum(outer) - 1)[~outer], minlength=int(outer.sum())) > 0
    if numbered[best] and 0 < holds.sum() < (~holds).sum():  # their times are wrong
        order = np.delete(order, np.flatnonzero(outer)[holds])
        outer = _outer(end[order])
    order = order[outer]
    numbers: Times | None = None
    if numbered[best]:
        numbers = taken(number, own[order]).to_numpy()
    elif len(order) > 1:  # a user's pattern need not say which of the numbers
        numbers = _counting(taken(candidates["name"], own[order]))
    is_numbered = numbers is not None
    if numbers is None:
        numbers = np.arange(len(order))
    else:
        fitting = _fitting(numbers)
        order, numbers = order[fitting], numbers[fitting]
    start, end = start[order], end[order]
    if is_numbered:
        of_thread = (keys["thread"] == thread).to_numpy() & (place != best)
        halved = _halved(start, numbers, rows_of(candidates, of_thread), named)
        start, end, numbers = halved or (start, end, numbers)
    iterations = IterationRanges(
        frame=_windows(start, end, numbers, duration_ns),
        thread=thread,
        numbered=is_numbered,
        row=row,
    )
    return with_pauses(iterations, _gaps(start, end, numbers))


def _halved(
    begins: Times, numbers: Times, others: pl.DataFrame, named: pl.DataFrame
) -> tuple[Times, Times, Times] | None:
    """Start, end and number of the ranges that most steps begin in, after forward; None without.

    Lightning steps its profiler when forward ends: half of a step is of the batch before. A range
    has the number of the step that it begins in.

    Args:
        begins: starts of the steps, which have `numbers`.
        others: further ranges of their thread that are named like iterations.
        named: RANGES with a meaning.
    """
    others = others.sort("start")
    start, end = others["start"].to_numpy(), others["end"].to_numpy()
    at = np.searchsorted(start, begins) - 1
    inside = (at >= 0) & (begins < np.append(end, 0)[at])
    at, border = at[inside], begins[inside]
    if len(border) < 2 or 2 * len(border) < len(begins):
        return None
    for phase, left, right in (("forward", start[at], border), ("backward", border, end[at])):
        of_phase = np.sort(named["start"].to_numpy()[(named["means"] == phase).to_numpy()])
        among = np.searchsorted(of_phase, right) > np.searchsorted(of_phase, left)
        if 2 * np.count_nonzero(among) < len(border):
            return None
    at = np.unique(at)  # several steps may begin in a range
    step = np.searchsorted(begins, start[at], side="right") - 1
    at, step = at[step >= 0], step[step >= 0]
    return start[at], end[at], numbers[step]


def _counting(names: pl.Series) -> Times | None:
    """The numbers in names that count the ranges, in time order; None without such numbers."""
    parts = [re.findall("[0-9]{1,18}", name) for name in names.cast(pl.String)]
    if len({*map(len, parts)}) > 1:
        return None
    for texts in reversed([*zip(*parts, strict=True)]):
        numbers = np.array([int(text) for text in texts])
        if np.mean(np.diff(numbers) == 1) >= MOSTLY_NEXT and numbers.max() < LARGEST:
            return numbers
    return None


def _outer(end: Times) -> Flags:
    """Whether each range, by start, is in none before it."""
    return np.asarray(end > np.maximum.accumulate(np.append(-1, end[:-1])))


def whole_capture(
    named: pl.DataFrame, work: tuple[int, int] | None, launching: pl.Series, main_thread: int
) -> IterationRanges | None:
    """The capture of one process as a single iteration, from its first to its last event.

    Args:
        named: RANGES of the process with the columns of MEANINGS joined on; may be empty.
        work: start and end of its other events; None: it has none.
        launching: threads that launched its computation.
        main_thread: its first thread, which is the training thread unless something shows another.
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


def with_trailing(iterations: IterationRanges, named: pl.DataFrame) -> IterationRanges:
    """Iterations extended by the operators that read results right after them.

    The ranges that end iterations (the optimizer's) may be followed by operators that wait for a
    result, such as the loss. These belong to the iteration that ends.

    Args:
        iterations: the iterations of a process.
        named: thread, start, end, name of its ranges.
    """
    own = named.filter(pl.col("thread") == iterations.thread).sort(
        "start", "end", descending=[False, True]
    )
    outer = own.filter(pl.col("start") >= pl.col("end").cum_max().shift(1, fill_value=-1))
    starts, ends = outer["start"].to_numpy(), outer["end"].to_numpy()
    reads = outer["name"].cast(pl.String).str.contains(READS).to_numpy()
    extended = []
    for end in iterations.frame["end"]:
        first = at = int(np.searchsorted(starts, end))
        while at < len(starts) and reads[at]:
            at += 1
        extended.append(int(ends[at - 1]) if at > first else end)
    end = pl.Series("end", extended, dtype=pl.Int64)
    begin = end.shift(1).fill_null(iterations.frame["window_start"])
    frame = iterations.frame.with_columns(end, window_end=end, window_start=begin)
    return replace(iterations, frame=frame)


def with_pauses(iterations: IterationRanges, pauses: Iterable[tuple[int, int]]) -> IterationRanges:
    """Iterations without the times that were not recorded.

    The first iteration after a pause starts at its own range, as the first one of a capture does.
    The time in between becomes an incomplete iteration with the number before it. If that number is
    taken, the iteration after the pause is incomplete.

    Args:
        iterations: the iterations of a process.
        pauses: starts and ends of the pauses, ns.
    """
    frame = iterations.frame
    for begin, end in pauses:
        later = frame.filter(pl.col("start") >= end).head(1)
        before = frame.filter(pl.col("end") <= begin).tail(1)
        if later.is_empty() or before.is_empty():
            continue
        is_later = pl.col("iteration") == later["iteration"].item()
        if before["iteration"].item() + 1 == later["iteration"].item():
            frame = frame.with_columns(complete=pl.col("complete") & ~is_later)
            continue
        if (frame["iteration"] == later["iteration"].item() - 1).any():  # by numbers, already
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
    return replace(iterations, frame=frame)


def _fitting(number: Times) -> Flags:
    """Whether each number lies between its neighbours, where these rise.

    One that is equal to a neighbour is wrong only if another number would fit: a step may have
    several ranges.
    """
    before, current, after = number[:-2], number[1:-1], number[2:]
    wrong = (before < after) & ((current < before) | (current > after))
    wrong |= (before + 1 < after) & ((current == before) | (current == after))
    return ~np.concatenate(([False], wrong, [False]))[: len(number)]


def _gaps(start: Times, end: Times, number: Times) -> list[tuple[int, int]]:
    """Start and end of the times in which iterations have no range.

    There, numbers rise by more than usual, or start over before the highest of all.
    """
    steps = np.diff(number)
    usual = max(1.0, float(np.median(steps))) if len(steps) else 1.0
    restarts = (steps < 0) & (number[:-1] < number.max(initial=0))
    return [(int(end[at]), int(start[at + 1])) for at in np.flatnonzero((steps > usual) | restarts)]


def _windows(start: Times, end: Times, number: Times, duration_ns: int | None) -> pl.DataFrame:
    """ITERATIONS from the iteration ranges in time order, and their numbers.

    A window runs from the end of the previous iteration's range to the end of its own (data is
    fetched between the ranges of most scripts); the first one starts at its own range. Where
    numbers start over (epochs), counting continues after the highest of all.
    """
    begins = np.flatnonzero(np.append(True, number[1:] <= number[:-1]))  # of the epochs
    epoch = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(number)))
    return framed(
        {
            "iteration": number + epoch * (number.max(initial=0) + 1),
            "epoch": epoch,
            "number": number,
            "start": start,
            "end": end,
            "window_start": np.append(start[0], end[:-1]),
            "window_end": end,
            "complete": end != duration_ns if duration_ns is not None else np.full(len(end), True),
        }
    )
