"""The own work of each rank, and the intervals that blocked it: the input of a replay.

See METHOD.md#verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.model.intervals import length_before
from rankscope.model.metrics import columns_of

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Small = NDArray[np.int32]

ORDER = ("load", "forward", "backward", "optimizer", "other")
"""How an iteration's work is laid out in the replay."""

AFTER_END = 20_000
"""Most ns between the end of a collective and the start of the work that waited for it."""

BEFORE_END = 3_000
"""Most ns by which an interval that a collective ended may stop before the end measured for it."""


class RankCalls(NamedTuple):
    """The calls of one rank, aligned where nothing else is said."""

    instance: Small
    group: Small
    arrived: Numbers
    ended: Numbers
    end_ns: Numbers  # on its own axis

    def in_order(self) -> RankCalls:
        """By their ends, those that end together by their arrivals."""
        order = np.argsort(self.ended)
        ended = self.ended[order]
        if (ended[1:] == ended[:-1]).any():
            order = np.lexsort((self.arrived, self.ended))
        return RankCalls(
            self.instance[order],
            self.group[order],
            self.arrived[order],
            self.ended[order],
            self.end_ns[order],
        )


class BlockedIntervals(NamedTuple):
    """The intervals that blocked a rank, in time order, and the call whose end freed it."""

    began: Numbers
    stopped: Numbers
    row: Numbers


class ReplayInput(NamedTuple):
    """A rank's calls and the intervals that blocked it, in time order."""

    held: Floats  # own work done before each interval
    work: Floats  # and before each call's arrival
    before: Small  # intervals that are over by then
    ends: Small  # the interval that a call's end ended; -1: none


class Instances:
    """Of all instances, by number, the group (-1: none), the last arrival and the first end."""

    def __init__(self) -> None:
        self.group = self.last = self.done = np.zeros(0, dtype=np.int64)

    def add(self, calls: RankCalls) -> None:
        """Take in the calls of one more rank."""
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
        self.instance = np.empty(size, dtype=np.int32)  # until they are put together
        self.places = np.empty(0, dtype=np.int32)  # of each rank's calls, from then on
        self.held = np.empty(0)  # own work done before each interval, from then on
        self._held: list[Floats] = []

    def add(self, instance: Small, replay_input: ReplayInput) -> None:
        """Take in the work of one more rank."""
        calls = _after(self.calls, len(instance))
        intervals = _after(self.intervals, len(replay_input.held) + 1)
        self.calls.append(calls)
        self.intervals.append(intervals)
        self.instance[calls] = instance
        self.work[calls] = replay_input.work
        first = np.int32(intervals.start)
        self.before[calls] = replay_input.before + first
        self.ends[calls] = np.where(replay_input.ends < 0, np.int32(-1), replay_input.ends + first)
        self._held.append(np.append(replay_input.held, 0.0))

    def put_together(self, first: Numbers) -> None:
        """Calls of an instance next to each other, by rank.

        Args:
            first: where those of each instance begin.
        """
        free = first.astype(np.int32)
        self.places = self.instance  # there is no room for both
        del self.instance
        for calls in self.calls:
            instance = self.places[calls]
            place = free[instance]
            free[instance] += 1
            self.places[calls] = place
        self.work = _put(self.work, self.places)
        self.before = _put(self.before, self.places)
        self.ends = _put(self.ends, self.places)
        self.held = np.concatenate([self.held, *self._held])
        self._held.clear()


def _after(slices: list[slice], length: int) -> slice:
    """The next one of that length."""
    start = slices[-1].stop if slices else 0
    return slice(start, start + length)


def _put(values: NDArray[Any], places: Small) -> NDArray[Any]:
    """Each value in its place."""
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
        ends: of the rank's calls, on its own axis.
        began: aligned starts of the intervals.
        stopped: their aligned ends.
        stops: their ends on its own axis.
    """
    order = np.argsort(ends, kind="stable")
    ordered = np.append(ends[order], np.iinfo(np.int64).max)
    after = np.searchsorted(ordered[:-1], stops, side="right")
    before = np.maximum(after - 1, 0)
    starts = stops - (stopped - began)
    early = (after > 0) & (stops - ordered[before] <= AFTER_END) & (starts < ordered[before])
    late = ~early & (ordered[after] - stops <= BEFORE_END)
    at, found = np.where(early, before, after), np.flatnonzero(early | late)
    row = order[at[found]]
    # of several intervals near the end of a call, it ended the nearest
    nearest = np.lexsort((np.abs(stops[found] - ends[row]), row))
    first = np.append(True, np.diff(row[nearest]) > 0)[: len(row)]
    found, row = found[nearest[first]], row[nearest[first]]
    by_start = np.argsort(began[found], kind="stable")
    found = found[by_start]
    return BlockedIntervals(began[found], stopped[found], row[by_start])


def at_borders(begin: Numbers, end: Numbers, freed: BlockedIntervals) -> dict[str, Numbers]:
    """For each border of a rank's windows, the own work done and the intervals that are over."""
    moments = {"begin": begin, "end": end}
    return {
        f"own_{name}": each - length_before(freed.began, freed.stopped, each)
        for name, each in moments.items()
    } | {
        f"over_{name}": np.searchsorted(freed.stopped, each, side="right")
        for name, each in moments.items()
    }


def replay_input(arrived: Numbers, freed: BlockedIntervals) -> ReplayInput:
    """One rank's calls, by their end, and what held it up."""
    low, high = freed.began, freed.stopped
    ends = np.full(len(arrived), -1, dtype=np.int32)
    ends[freed.row] = np.arange(len(low))
    return ReplayInput(
        held=(low - length_before(low, high, low)).astype(np.float64),
        work=(arrived - length_before(low, high, arrived)).astype(np.float64),
        before=np.searchsorted(high, arrived, side="right").astype(np.int32),
        ends=ends,
    )


def windows_of(
    measures: pl.DataFrame, wide: pl.DataFrame, aligned: Callable[[str], pl.Expr]
) -> pl.DataFrame:
    """`windows` of a replay.

    Args:
        measures: MEASURES on one clock.
        wide: rank, iteration and `<phase>_ns`.
        aligned: the aligned time of a column of times.
    """
    return (
        measures.filter(pl.col("window_start_ns").is_not_null())
        .with_columns(end_ns=pl.col("window_start_ns") + pl.col("iteration_ns"))
        .select("rank", "iteration", begin=aligned("window_start_ns"), end=aligned("end_ns"))
        .join(wide.select("rank", "iteration", *columns_of(ORDER)), on=["rank", "iteration"])
    )
