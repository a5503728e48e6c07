"""The own work of each rank, and the intervals that blocked it: the input of a replay.

See METHOD.md#verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.match.clocks import Aligner
from rankscope.match.rank_axis import RankAxis
from rankscope.model.intervals import length_before
from rankscope.model.kinds import COMPUTING_PHASES, NAMED_PHASES
from rankscope.model.metrics import columns_of

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Small = NDArray[np.int32]

AFTER_END = 20_000
"""Most ns between the end of a collective and the start of the work that waited for it."""

BEFORE_END = 3_000
"""Most ns by which an interval that a collective ended may stop before the end measured for it."""


class RankChunk(NamedTuple):
    """Some ranks of a run, ascending.

    `calls`: rank, group, instance, arrival_ns and end_ns as `waits.with_waits` gives them, of
    iterations that follow each other, all on clocks that are tied together. `exposed`: their
    exposed communication: rank, start_ns, end_ns.
    """

    ranks: list[int]
    calls: pl.DataFrame
    exposed: pl.DataFrame


class Calls(NamedTuple):
    """The calls of some ranks: by rank, their aligned ends, and their aligned arrivals."""

    rank: Numbers
    instance: Small
    group: Small
    arrived: Numbers
    ended: Numbers
    end_ns: Numbers  # on the rank's own axis


class BlockedIntervals(NamedTuple):
    """The intervals that blocked ranks, in time order, and the call whose end freed the rank."""

    began: Numbers
    stopped: Numbers
    row: Numbers


class ReplayInput(NamedTuple):
    """Calls of some ranks, and the intervals that blocked them, rank by rank in time order."""

    counts: Numbers  # calls of each rank
    blocked: Numbers  # intervals of each rank
    held: Floats  # own work done before each interval
    work: Floats  # and before each call's arrival
    over: Numbers  # intervals of its rank that are over by then
    ends: Numbers  # which interval of its rank a call's end ended; -1: none


class Instances:
    """The group (-1: none), last arrival and first end of each instance, by number."""

    def __init__(self) -> None:
        self.group = self.last = self.done = np.zeros(0, dtype=np.int64)

    def add(self, calls: Calls) -> None:
        """Take in the calls of some more ranks."""
        more = int(calls.instance.max(initial=-1)) + 1 - len(self.last)
        if more > 0:
            more = max(more, len(self.last))  # seldom, for what is there is copied
            limits = np.iinfo(np.int64)
            self.group = np.pad(self.group, (0, more), constant_values=-1)
            self.last = np.pad(self.last, (0, more), constant_values=limits.min)
            self.done = np.pad(self.done, (0, more), constant_values=limits.max)
        self.group[calls.instance] = calls.group
        np.maximum.at(self.last, calls.instance, calls.arrived)
        np.minimum.at(self.done, calls.instance, calls.ended)


class Work:
    """`ReplayInput` of all ranks, one after the other; calls later in the order of the replay.

    The intervals of a rank are numbered after those of the ranks before it, with one more place at
    the end: the delay before an interval stands in its place, and the delay after it in the next.

    Args:
        size: how many calls there will be.
    """

    def __init__(self, size: int) -> None:
        self.calls: list[slice] = []
        self.intervals: list[slice] = []
        self.work = np.empty(size)
        self.before, self.ends = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
        self.instance = np.empty(size, dtype=np.int32)  # until they are grouped by instance
        self.border = np.empty(0, dtype=np.int32)  # `Borders.before` of `work`, from then on
        self.held = np.empty(0)  # own work done before each interval, from then on
        self.border_of_held = np.empty(0, dtype=np.int32)  # `Borders.before` of that
        self._held: list[Floats] = []

    def add(self, instance: Small, more: ReplayInput) -> None:
        """Take in the work of some more ranks."""
        calls, intervals = (
            _consecutive_slices(self.calls, more.counts),
            _consecutive_slices(self.intervals, more.blocked + 1),
        )
        first = np.array([each.start for each in intervals], dtype=np.int32)
        mine = slice(calls[0].start, calls[-1].stop)
        self.calls += calls
        self.intervals += intervals
        self.instance[mine] = instance
        self.work[mine] = more.work
        of_call = np.repeat(first, more.counts)
        self.before[mine] = more.over + of_call
        self.ends[mine] = np.where(more.ends < 0, -1, more.ends + of_call)
        place = np.arange(len(more.held)) + np.repeat(np.arange(len(calls)), more.blocked)
        held = np.zeros(len(more.held) + len(calls))
        held[place] = more.held
        self._held.append(held)

    def group_by_instance(self, first: Numbers, before: Callable[[int, Floats], Small]) -> None:
        """Calls of an instance next to each other, by rank.

        Args:
            first: where those of each instance begin.
            before: `Borders.before`.
        """
        free = first.astype(np.int32)
        places = self.instance  # there is no room for both
        del self.instance
        border = np.empty_like(self.before)
        for rank, calls in enumerate(self.calls):
            instance = places[calls]
            place = free[instance]
            free[instance] += 1
            places[calls] = place
            border[place] = before(rank, self.work[calls])
        self.border = border
        self.work = _scatter(self.work, places)
        self.before = _scatter(self.before, places)
        self.ends = _scatter(self.ends, places)
        self.held = np.concatenate([self.held, *self._held])
        self._held.clear()
        held = [before(rank, self.held[each]) for rank, each in enumerate(self.intervals)]
        self.border_of_held = np.concatenate([self.border_of_held, *held])


def _consecutive_slices(slices: list[slice], lengths: Numbers) -> list[slice]:
    """Slices of these lengths, which follow the last one."""
    stops = (slices[-1].stop if slices else 0) + np.cumsum(lengths)
    return [
        slice(int(stop - length), int(stop)) for stop, length in zip(stops, lengths, strict=True)
    ]


def _scatter(values: NDArray[Any], places: Small) -> NDArray[Any]:
    """The values, each at its place."""
    there = np.empty_like(values)
    there[places] = values
    return there


def blocked_intervals(
    ends: Numbers, began: Numbers, stopped: Numbers, stops: Numbers
) -> BlockedIntervals:
    """The intervals of exposed communication that ended with a call.

    Work that waited for a collective starts shortly after its end, so that an interval may stop
    before another collective ends that nobody waited for: the last call that ended by then, at
    most AFTER_END earlier, ended the interval. Ends scatter, so that a call may also end shortly
    after it.

    Args:
        ends: of the calls, on the rank's own axis. Those of several ranks lie far enough apart.
        began: aligned starts of the intervals.
        stopped: their aligned ends.
        stops: their ends on the rank's own axis.
    """
    # the last call that ended before each interval stopped, and the first one after it
    order = np.argsort(ends, kind="stable")
    ordered = np.append(ends[order], np.iinfo(np.int64).max)
    after = np.searchsorted(ordered[:-1], stops, side="right")
    before = np.maximum(after - 1, 0)
    # the former if it ended during the interval and shortly before its stop, else the latter
    starts = stops - (stopped - began)
    early = (after > 0) & (stops - ordered[before] <= AFTER_END) & (starts < ordered[before])
    late = ~early & (ordered[after] - stops <= BEFORE_END)
    at, found = np.where(early, before, after), np.flatnonzero(early | late)
    row = order[at[found]]
    # of several intervals near the end of a call, it ended the nearest
    nearest = np.lexsort((np.abs(stops[found] - ends[row]), row))
    first = np.append(True, np.diff(row[nearest]) > 0)[: len(row)]
    found, row = found[nearest[first]], row[nearest[first]]
    # in time order
    by_start = np.argsort(began[found], kind="stable")
    found = found[by_start]
    return BlockedIntervals(began[found], stopped[found], row[by_start])


def chunk_input(
    chunk: RankChunk, windows: pl.DataFrame, aligner: Aligner
) -> tuple[Calls, ReplayInput, pl.DataFrame]:
    """The input of a replay of some ranks.

    Args:
        chunk: their calls, and what was exposed.
        windows: those of these ranks: rank, begin and end (aligned), by rank.
        aligner: brings the times of a rank's own axis to the one clock.

    Returns:
        The calls, the input, and for each border of the windows the own work done (`own_begin`,
        `own_end`) and the intervals of its rank that are over (`over_begin`, `over_end`).
    """
    whose, begin, end = _columns(windows, "rank", "begin", "end")
    rank, instance, group, arrival, end_ns = _columns(
        chunk.calls, "rank", "instance", "group", "arrival_ns", "end_ns"
    )
    holder, start_ns, stop_ns = _columns(chunk.exposed, "rank", "start_ns", "end_ns")
    # all ranks on one axis, so that each step is one pass over all of them
    arrived, ended = aligner.each(rank, arrival), aligner.each(rank, end_ns)
    start, stop = aligner.each(holder, start_ns), aligner.each(holder, stop_ns)
    axis = RankAxis(
        (rank, arrived, arrived), (rank, ended, ended), (holder, start, stop), (whose, begin, end)
    )
    calls = _in_order(Calls(rank, instance, group, arrived, ended, end_ns), axis)
    # which call freed a rank is told by its own clock, to the microsecond
    apart = AFTER_END + BEFORE_END  # no call frees another rank
    own_axis = RankAxis((rank, end_ns, end_ns), (holder, start_ns, stop_ns), apart=apart)
    freed = blocked_intervals(
        own_axis.shift(calls.rank, calls.end_ns),
        axis.shift(holder, start),
        axis.shift(holder, stop),
        own_axis.shift(holder, stop_ns),
    )
    low, high, row = freed
    # own work is the time outside these intervals
    ranks = np.array(chunk.ranks)
    counts, blocked = (
        np.bincount(np.searchsorted(ranks, each), minlength=len(ranks))
        for each in (calls.rank, calls.rank[row])
    )
    earlier = np.cumsum(blocked) - blocked  # intervals of the ranks before it
    blocked_before = length_before(low, high, axis.begins(ranks))

    def own_work(of: Numbers, moments: Numbers) -> Numbers:
        done = axis.shift_back(of, moments - length_before(low, high, moments))
        return done + blocked_before[np.searchsorted(ranks, of)]

    def over(of: Numbers, moments: Numbers) -> Numbers:
        return np.searchsorted(high, moments, side="right") - earlier[np.searchsorted(ranks, of)]

    arrivals = axis.shift(calls.rank, calls.arrived)
    ends = np.full(len(calls.rank), -1, dtype=np.int64)
    ends[row] = np.arange(len(low)) - np.repeat(earlier, blocked)
    found = ReplayInput(
        counts=counts,
        blocked=blocked,
        held=own_work(calls.rank[row], low).astype(np.float64),
        work=own_work(calls.rank, arrivals).astype(np.float64),
        over=over(calls.rank, arrivals),
        ends=ends,
    )
    at_borders = {"begin": axis.shift(whose, begin), "end": axis.shift(whose, end)}
    borders = {f"own_{name}": own_work(whose, at) for name, at in at_borders.items()}
    borders |= {f"over_{name}": over(whose, at) for name, at in at_borders.items()}
    return calls, found, pl.DataFrame(borders)


def _columns(frame: pl.DataFrame, *names: str) -> list[NDArray[Any]]:
    return [frame[name].to_numpy() for name in names]


def _in_order(calls: Calls, axis: RankAxis) -> Calls:
    """By rank and end; calls that end together by their arrivals."""
    ended = axis.shift(calls.rank, calls.ended)
    order = np.argsort(ended, kind="stable")
    later = ended[order]
    if (later[1:] == later[:-1]).any():
        order = np.lexsort((calls.arrived, ended))
    return Calls._make(each[order] for each in calls)


def work_order(wide: pl.DataFrame, clock: str) -> tuple[str, ...]:
    """How an iteration's work is laid out in the replay.

    A phase that no rank's ranges name is in `other`, which then stands in its place. Else `other`
    is what follows the optimizer, such as a checkpoint or a log: on the device it belongs to the
    next window, which begins with the end of the optimizer.

    Args:
        wide: `<phase>_ns` of all ranks and iterations.
        clock: `gpu` or `host`.
    """
    order: list[str] = [*NAMED_PHASES]
    unnamed = [
        phase for phase in COMPUTING_PHASES if wide[f"{phase}_ns"].null_count() == wide.height
    ]
    usual = 0 if clock == "gpu" else len(order)
    order.insert(order.index(unnamed[0]) if unnamed else usual, "other")
    return tuple(order)


def windows_of(
    measures: pl.DataFrame, wide: pl.DataFrame, aligned: Callable[[str], pl.Expr], clock: str
) -> pl.DataFrame:
    """`windows` of a replay.

    Args:
        measures: MEASURES on the clock.
        wide: rank, iteration and `<phase>_ns`.
        aligned: the aligned time of a column of times.
        clock: `gpu` or `host`.
    """
    phases = columns_of(work_order(wide, clock))
    return (
        measures.filter(pl.col("window_start_ns").is_not_null())
        .with_columns(end_ns=pl.col("window_start_ns") + pl.col("iteration_ns"))
        .select("rank", "iteration", begin=aligned("window_start_ns"), end=aligned("end_ns"))
        .join(wide.select("rank", "iteration", *phases), on=["rank", "iteration"])
    )
