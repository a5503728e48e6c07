"""A run played again with less work for some (method section 9, what-if).

A rank does its own work in order. At a collective it arrives; the collective starts when all its
members have arrived and its predecessor on the communicator is through, and takes what it took.
Where exposed communication ended with a collective, the rank is held up until that one ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.frames import of_ranks
from rankscope.intervals import length_before

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Small = NDArray[np.int32]

ORDER = ("load", "forward", "backward", "optimizer", "other")
"""How an iteration's work is laid out in the replay."""

MOST_PASSES = 10_000


@dataclass(frozen=True, slots=True)
class Target:
    """Who is put at the role's median, or which role at that of the roles; None stands for all."""

    ranks: Collection[int] | None = None
    phases: Collection[str] | None = None
    iterations: Collection[int] | None = None
    role: str | None = None

    def key(self) -> tuple[object, ...]:
        """What is equal for equal ones."""
        sets = (self.ranks, self.phases, self.iterations)
        return (self.role, *(None if each is None else tuple(each) for each in sets))


class Replay:
    """A run that can be played again with less work.

    Args:
        parts: some ranks at a time, ascending: the ranks; their calls (rank, group, instance,
            arrival_ns and end_ns of what `waits.timed` gives), all tied to one clock, of iterations
            that follow each other; and their exposed communication (rank, start_ns, end_ns).
        windows: rank, role, iteration, begin, end (aligned), and of every phase `<phase>_ns`,
            `<phase>_excess_ns` (what exceeds the role's median, at least 0; null where unknown)
            and `<phase>_role_excess_ns` (what the role's median exceeds the median role's).
        aligned: gives times of a rank's own axis on the one clock.
    """

    def __init__(
        self,
        parts: Iterable[tuple[list[int], pl.DataFrame, pl.DataFrame]],
        windows: pl.DataFrame,
        aligned: Callable[[int, Numbers], Numbers],
    ) -> None:
        windows = windows.sort("rank", "iteration")
        self._ranks = windows["rank"].unique().sort().to_numpy()
        borders = of_ranks(windows, ("begin", "end"))
        seen: list[pl.DataFrame] = []
        calls = _Calls()
        self._work: list[Floats] = []
        self._block_work: list[Floats] = []
        delay_of_row: list[Small] = []
        block_of_row: list[Small] = []
        first, blocks_before = [0], 0  # of each rank's delays; blocks of the ranks before
        for portion, rows, held in parts:
            mine = of_ranks(rows, ("instance", "group", "arrival_ns", "end_ns"))
            blocks = of_ranks(held, ("start_ns", "end_ns"))
            for rank in portion:
                instance, group, arrival, end = mine(rank)
                arrived, ended = aligned(rank, arrival), aligned(rank, end)
                here = _Own(instance, group, arrived, ended, end).in_order()
                start, stop = blocks(rank)
                freed = _freed(here.end_ns, aligned(rank, start), aligned(rank, stop), stop)
                calls.add(here)
                laid = _lay(here.arrived, freed)
                self._work.append(laid.work)
                self._block_work.append(laid.block_work)
                delay_of_row.append(laid.before + np.int32(first[-1]))
                block_of_row.append(
                    np.where(laid.block < 0, np.int32(-1), laid.block + np.int32(blocks_before))
                )
                first.append(first[-1] + len(laid.block_work) + 1)
                blocks_before += len(laid.block_work)
                begin, end = borders(rank)
                seen.append(_seen(begin, end, freed))
        windows = windows.drop("begin", "end")
        self._windows = pl.concat([windows, pl.concat(seen)], how="horizontal")
        self._first = np.array(first[:-1], dtype=np.int64)
        counts = [len(each) for each in self._block_work]
        ranks_before = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self._delay_of_block = np.arange(blocks_before, dtype=np.int32) + ranks_before
        self._plan(calls, delay_of_row, block_of_row)
        self.size = len(self._order)
        self._unchanged: dict[tuple[int, ...], float] = {}
        self._gains: dict[tuple[object, ...], int] = {}

    def _plan(self, calls: _Calls, delay_of_row: list[Small], block_of_row: list[Small]) -> None:
        """The order in which instances are played: all of a level at once."""
        instance, group, last, done = calls.dense()
        level = _levels(instance, [len(each) for each in self._work], len(last))
        self._groups = int(group.max(initial=-1)) + 1
        key = level.astype(np.int64)
        key *= max(len(last), 1)
        key += instance
        self._order = pl.Series(key).arg_sort().to_numpy()
        del key
        self._delay_of_row = _joined(delay_of_row)[self._order]
        self._block_of_row = _joined(block_of_row)[self._order]
        instance = instance[self._order]
        edges = np.concatenate(([0], np.cumsum(np.bincount(level)))) if len(level) else np.zeros(1)
        edges = edges.astype(np.int64)
        first = np.flatnonzero(np.append(-1, instance[:-1]) != instance)  # rows of instances
        steps = np.searchsorted(first, edges)
        # what an instance takes once its last member and its predecessor are there
        through = np.full(self._groups, np.iinfo(np.int64).min)
        self._steps = []
        for (low, high), (here, until) in zip(pairwise(edges), pairwise(steps), strict=True):
            which = instance[first[here:until]]
            starts = first[here:until] - low
            groups = group[which]
            ready = np.maximum(last[which], through[groups])
            service = np.maximum(done[which] - ready, 0).astype(np.float64)
            through[groups] = np.maximum(done[which], ready)
            self._steps.append((slice(int(low), int(high)), starts, groups, service))

    def gain_ns(self, target: Target, numbers: Collection[int]) -> int:
        """What `target` at its role's median would save over iterations `numbers`."""
        chosen = tuple(numbers)
        if chosen not in self._unchanged:
            self._unchanged[chosen] = self.time_ns(None, chosen)
        key = (*target.key(), chosen)
        if key not in self._gains:
            self._gains[key] = round(self._unchanged[chosen] - self.time_ns(target, chosen))
        return max(0, self._gains[key])

    def time_ns(self, target: Target | None, numbers: Collection[int]) -> float:
        """Time from the start of the first to the end of the last of iterations `numbers`.

        The mean over ranks, ns; with nobody changed where `target` is None.
        """
        mapping = self._mapping(target)
        work = _mapped(self._work, mapping)[self._order]
        block_work = _mapped(self._block_work, mapping)
        delay = np.zeros(len(block_work) + len(self._ranks))
        through = np.full(self._groups, -np.inf)
        for rows, starts, groups, service in self._steps:
            arrival = work[rows] + delay[self._delay_of_row[rows]]
            ready = np.maximum(np.maximum.reduceat(arrival, starts), through[groups])
            end = ready + service
            through[groups] = end
            block = self._block_of_row[rows]
            some = np.flatnonzero(block >= 0)
            if len(some):
                block = block[some]
                at = self._delay_of_block[block]
                owner = np.searchsorted(starts, some, side="right") - 1
                delay[at + 1] = delay[at] + np.maximum(
                    end[owner] - block_work[block] - delay[at], 0.0
                )
        chosen = self._windows.filter(pl.col("iteration").is_in(list(numbers)))
        spans = (
            chosen.group_by("rank")
            .agg(pl.col("own_begin", "over_begin").min(), pl.col("own_end", "over_end").max())
            .sort("rank")
        )
        total = 0.0
        columns = ("rank", "own_begin", "own_end", "over_begin", "over_end")
        for rank, *rest in spans.select(columns).iter_rows():
            index = int(np.searchsorted(self._ranks, rank))
            own = np.array(rest[:2], dtype=np.float64)
            at = self._first[index] + np.array(rest[2:], dtype=np.int64)
            first, last = _moved(own, mapping[index]) + delay[at]
            total += last - first
        return total / max(spans.height, 1)

    def _mapping(self, target: Target | None) -> list[tuple[Floats, Floats] | None]:
        """Per rank, the work done by each border between phases, as it was and as it would be.

        None where nothing of it changes.
        """
        if target is None:
            return [None] * len(self._ranks)
        wanted = pl.lit(True)
        if target.ranks is not None:
            wanted &= pl.col("rank").is_in(list(target.ranks))
        if target.iterations is not None:
            wanted &= pl.col("iteration").is_in(list(target.iterations))
        excess = "excess_ns"
        if target.role is not None:
            wanted &= pl.col("role") == target.role
            excess = "role_excess_ns"
        phases = ORDER if target.phases is None else target.phases
        saved = self._windows.select(
            pl.when(wanted & pl.lit(phase in phases))
            .then(pl.col(f"{phase}_{excess}").fill_null(0))
            .otherwise(0)
            .alias(phase)
            for phase in ORDER
        ).to_numpy()
        lengths = self._windows.select(f"{phase}_ns" for phase in ORDER).fill_null(0).to_numpy()
        begin = self._windows["own_begin"].to_numpy().astype(np.float64)
        edges = np.append(self._windows["rank"].search_sorted(self._ranks).to_numpy(), len(begin))
        mapping: list[tuple[Floats, Floats] | None] = []
        for low, high in pairwise(edges):
            if not saved[low:high].any():
                mapping.append(None)
                continue
            start = begin[low:high, None]
            borders = np.hstack((start, start + np.cumsum(lengths[low:high], axis=1)))
            cuts = np.hstack((np.zeros((high - low, 1)), np.cumsum(saved[low:high], axis=1)))
            earlier = np.concatenate(([0], np.cumsum(cuts[:, -1])[:-1]))
            was = np.maximum.accumulate(borders.ravel())
            mapping.append((was, was - (cuts + earlier[:, None]).ravel()))
        return mapping


class _Own(NamedTuple):
    """The calls of one rank, as columns of `parts`."""

    instance: Small
    group: Small
    arrived: Numbers
    ended: Numbers
    end_ns: Numbers

    def in_order(self) -> _Own:
        """By their ends, those that end together by their arrivals."""
        order = np.argsort(self.ended)
        ended = self.ended[order]
        if (ended[1:] == ended[:-1]).any():
            order = np.lexsort((self.arrived, self.ended))
        return _Own(
            self.instance[order],
            self.group[order],
            self.arrived[order],
            self.ended[order],
            self.end_ns[order],
        )


class _Freed(NamedTuple):
    """What held a rank up, in time order, and the call that freed it: the last of that end."""

    began: Numbers
    stopped: Numbers
    row: Numbers


class _Laid(NamedTuple):
    """A rank's calls and the stretches that held it up, in time order."""

    block_work: Floats  # own work done before each stretch
    work: Floats  # and before each call's arrival
    before: Small  # stretches over by then
    block: Small  # the stretch that a call's end ended; -1: none


class _Calls:
    """Of all calls the instance; of all instances the group, the last arrival, the first end."""

    def __init__(self) -> None:
        self._instance: list[Small] = []
        self._group = self._last = self._done = np.zeros(0, dtype=np.int64)

    def add(self, calls: _Own) -> None:
        """Take in the calls of one more rank."""
        more = int(calls.instance.max(initial=-1)) + 1 - len(self._last)
        if more > 0:
            more = max(more, len(self._last))  # seldom, for what is there is copied
            limits = np.iinfo(np.int64)
            self._group = np.pad(self._group, (0, more), constant_values=-1)
            self._last = np.pad(self._last, (0, more), constant_values=limits.min)
            self._done = np.pad(self._done, (0, more), constant_values=limits.max)
        self._group[calls.instance] = calls.group
        np.maximum.at(self._last, calls.instance, calls.arrived)
        np.minimum.at(self._done, calls.instance, calls.ended)
        self._instance.append(calls.instance)

    def dense(self) -> tuple[Small, Numbers, Numbers, Numbers]:
        """instance of each call; group, last and done of each instance; numbered from 0."""
        there = self._group >= 0
        number = (np.cumsum(there) - 1).astype(np.int32)
        groups = np.unique(self._group[there], return_inverse=True)[1]
        instance = number[_joined(self._instance)]
        return instance, groups, self._last[there], self._done[there]


def _freed(ends: Numbers, began: Numbers, stopped: Numbers, stops: Numbers) -> _Freed:
    """Which stretches of exposed communication ended with a call.

    Args:
        ends: of the rank's calls, on its own axis.
        began: aligned starts of the stretches.
        stopped: their aligned ends.
        stops: their ends on its own axis.
    """
    order = np.argsort(ends, kind="stable")
    at = np.searchsorted(ends[order], stops, side="right") - 1
    found = at >= 0
    found[found] = ends[order][at[found]] == stops[found]
    freed = _Freed(began[found], stopped[found], order[at[found]])
    by_start = np.argsort(freed.began, kind="stable")
    return _Freed(*(each[by_start] for each in freed))


def _seen(begin: Numbers, end: Numbers, freed: _Freed) -> pl.DataFrame:
    """Of a rank's windows, the own work done by each border, and how many stretches are over."""
    moments = {"begin": begin, "end": end}
    return pl.DataFrame(
        {
            f"own_{name}": each - length_before(freed.began, freed.stopped, each)
            for name, each in moments.items()
        }
        | {
            f"over_{name}": np.searchsorted(freed.stopped, each, side="right")
            for name, each in moments.items()
        },
        schema_overrides=dict.fromkeys(("over_begin", "over_end"), pl.Int64),
    )


def _lay(arrived: Numbers, freed: _Freed) -> _Laid:
    """One rank's calls, by their end, and what held it up."""
    low, high = freed.began, freed.stopped
    block = np.full(len(arrived), -1, dtype=np.int32)
    block[freed.row] = np.arange(len(low))
    return _Laid(
        block_work=(low - length_before(low, high, low)).astype(np.float64),
        work=(arrived - length_before(low, high, arrived)).astype(np.float64),
        before=np.searchsorted(high, arrived, side="right").astype(np.int32),
        block=block,
    )


def _joined(parts: list[Small]) -> Small:
    """The parts one after the other; the list is emptied, for there is no room for both."""
    joined = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
    parts.clear()
    return joined


def _mapped(work: list[Floats], mapping: list[tuple[Floats, Floats] | None]) -> Floats:
    """The ranks' work done by each moment, as it would be, one after the other."""
    parts = [_moved(mine, how) for mine, how in zip(work, mapping, strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _moved(work: Floats, how: tuple[Floats, Floats] | None) -> Floats:
    """One rank's work done by each moment, as it would be."""
    if how is None:
        return work
    was, becomes = how
    return work + np.interp(work, was, becomes - was)


def _levels(instance: Small, lengths: list[int], count: int) -> Small:
    """For each row a number that grows along each rank and is equal within an instance.

    Args:
        instance: of each row, rank by rank, in the order of its calls.
        lengths: how many rows each rank has.
        count: how many instances there are.
    """
    edges = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    stretches = [slice(int(low), int(high)) for low, high in pairwise(edges)]
    level = np.concatenate(
        [np.zeros(0, dtype=np.int32), *(np.arange(size, dtype=np.int32) for size in lengths)]
    )
    for _ in range(MOST_PASSES):
        highest = np.zeros(count, dtype=np.int32)
        np.maximum.at(highest, instance, level)
        grew = False
        for mine in stretches:
            index = np.arange(mine.stop - mine.start, dtype=np.int32)
            grown = np.maximum.accumulate(highest[instance[mine]] - index) + index
            grew = grew or bool((grown != level[mine]).any())
            level[mine] = grown
        if not grew:
            break
    return level
