"""A run played again with less work for some ranks. See METHOD.md#verdict.

A rank does its own work in order. At a collective it arrives; the collective starts when all its
members have arrived and its predecessor on the communicator is through, and takes what it took.
Where exposed communication ended with a collective, the rank is held up until that one ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.align.clocks import Aligner
from rankscope.compare.whatif.replay_inputs import (
    ORDER,
    Floats,
    Instances,
    Numbers,
    RankCalls,
    Small,
    Work,
    at_borders,
    blocked_intervals,
    replay_input,
)
from rankscope.model.metrics import column_of
from rankscope.store.tables import columns_by_rank
from rankscope.util.threads import threaded

MOST_PASSES = 10_000

MOST_TOGETHER = 2_000_000
"""Calls that are played at once, of all targets together; at least one target is."""


@dataclass(frozen=True, slots=True, eq=False)
class Healing:
    """Time taken out of a run before it is played again.

    `work`: ns by row of `Replay.rows` and phase of ORDER; None: nothing. `transfer`: ns by instance
    of a collective; None: nothing.
    """

    work: Floats | None = None
    transfer: Floats | None = None


class RankChunk(NamedTuple):
    """Some ranks of a run, ascending.

    `calls`: rank, group, instance, arrival_ns and end_ns as `waits.timed` gives them, of iterations
    that follow each other, all on clocks that are tied together. `exposed`: their exposed
    communication: rank, start_ns, end_ns.
    """

    ranks: list[int]
    calls: pl.DataFrame
    exposed: pl.DataFrame


class Replay:
    """A run that can be played again with less work.

    Args:
        chunks: all ranks, some at a time; each chunk is read once.
        windows: rank, iteration, begin, end (aligned), and `<phase>_ns` of every phase.
        aligner: brings the times of a rank's own axis to the one clock.
        size: how many calls the chunks have in all.
    """

    def __init__(
        self,
        chunks: Iterable[RankChunk],
        windows: pl.DataFrame,
        aligner: Aligner,
        size: int,
    ) -> None:
        windows = windows.sort("rank", "iteration")
        self._ranks = windows["rank"].unique().sort().to_numpy()
        borders = columns_by_rank(windows, ("begin", "end"))
        seen: list[dict[str, Numbers]] = []
        instances = Instances()
        self.size = size
        self._work = Work(size)
        aligned = aligner.one
        for ranks, rows, held in chunks:
            mine = columns_by_rank(rows, ("instance", "group", "arrival_ns", "end_ns"))
            blocks = columns_by_rank(held, ("start_ns", "end_ns"))
            for rank in ranks:
                instance, group, arrival, end = mine(rank)
                arrived, ended = aligned(rank, arrival), aligned(rank, end)
                here = RankCalls(instance, group, arrived, ended, end).in_order()
                start, stop = blocks(rank)
                freed = blocked_intervals(
                    here.end_ns, aligned(rank, start), aligned(rank, stop), stop
                )
                instances.add(here)
                self._work.add(here.instance, replay_input(here.arrived, freed))
                begin, end = borders(rank)
                seen.append(at_borders(begin, end, freed))
        self._windows = windows.drop("begin", "end").with_columns(
            pl.Series(name, np.concatenate([each[name] for each in seen]), dtype=pl.Int64)
            for name in (seen[0] if seen else ())
        )
        self._plan(instances)
        self._unchanged: dict[tuple[int, ...], float] = {}

    def service(self, count: int) -> Floats:
        """What each of `count` instances takes once its last member and its predecessor are there.

        In ns; NaN where it is not played.
        """
        found = np.full(count, np.nan)
        for _, _, _, service, which in self._steps:
            found[which] = service
        return found

    @property
    def iterations(self) -> Numbers:
        """The iterations that are played, ascending."""
        return self._windows["iteration"].unique().sort().to_numpy()

    @property
    def rows(self) -> pl.DataFrame:
        """rank and iteration of the rows of `Healing.work`, sorted."""
        return self._windows.select("rank", "iteration")

    def placed(
        self, ranks: Numbers, numbers: Numbers, phases: Sequence[str], saved: Floats
    ) -> Floats:
        """`Healing.work` from a matrix.

        Args:
            ranks: ascending.
            numbers: iterations, ascending.
            phases: some of ORDER.
            saved: rank by iteration by phase in ns; NaN is nothing.
        """
        rank, number = (self._windows[name].to_numpy() for name in ("rank", "iteration"))
        row, column = np.searchsorted(ranks, rank), np.searchsorted(numbers, number)
        row, column = np.minimum(row, len(ranks) - 1), np.minimum(column, len(numbers) - 1)
        there = (ranks[row] == rank) & (numbers[column] == number)
        work = np.zeros((len(rank), len(ORDER)))
        for place, phase in enumerate(phases):
            work[there, ORDER.index(phase)] = saved[row[there], column[there], place]
        return np.nan_to_num(work)

    def _plan(self, instances: Instances) -> None:
        """The order in which instances are played: all of a level at once."""
        group, last, done = instances.group, instances.last, instances.done
        level = _levels(self._work, len(group))
        order = np.argsort(level, kind="stable")
        sizes = np.bincount(self._work.instance, minlength=len(group))
        order = order[sizes[order] > 0]
        after = np.cumsum(sizes[order])
        first = np.zeros_like(sizes)
        first[order] = after - sizes[order]
        self._work.put_together(first)
        self._groups = int(group.max(initial=-1)) + 1
        # what an instance takes once its last member and its predecessor are there
        through = np.full(self._groups, np.iinfo(np.int64).min)
        self._steps = []
        steps = np.unique(np.concatenate(([0], np.cumsum(np.bincount(level[order])))))
        for here, until in pairwise(steps.tolist()):
            which = order[here:until]
            low, high = int(first[which[0]]), int(after[until - 1])
            groups = group[which]
            ready = np.maximum(last[which], through[groups])
            service = np.maximum(done[which] - ready, 0).astype(np.float64)
            through[groups] = np.maximum(done[which], ready)
            self._steps.append((slice(low, high), first[which] - low, groups, service, which))

    def gains_ns(self, healings: Sequence[Healing], numbers: Collection[int]) -> list[int]:
        """The time that each healing would save, ns, at least 0.

        Several take little longer than one, for they are played together.

        Args:
            healings: what is taken out.
            numbers: the iterations whose time counts.
        """
        played = tuple(numbers)
        known = played in self._unchanged
        times = self.times_ns([*([] if known else [Healing()]), *healings], played)
        if not known:
            self._unchanged[played] = times.pop(0)
        return [max(0, round(self._unchanged[played] - time)) for time in times]

    def times_ns(self, healings: Sequence[Healing], numbers: Collection[int]) -> list[float]:
        """Times from the start of the first to the end of the last of iterations `numbers`.

        The mean over ranks, ns, for each healing.
        """
        together = max(1, MOST_TOGETHER // max(self.size, 1))
        some = [healings[at : at + together] for at in range(0, len(healings), together)]
        return [*chain.from_iterable(threaded(lambda each: self._played(each, numbers), some))]

    def _played(self, healings: Sequence[Healing], numbers: Collection[int]) -> list[float]:
        """`times_ns`, of all healings at once: a row of each array is one of them."""
        times = []
        every = self._work
        mappings = [self._mapping(healing.work) for healing in healings]
        places = [every.places[calls] for calls in every.calls]
        work = _rows([_mapped(every.work, places, mapping) for mapping in mappings])
        held = _rows([_mapped(every.held, every.intervals, mapping) for mapping in mappings])
        delay = np.zeros(held.shape)
        transfer = self._shorter(healings)
        through = np.full((len(healings), self._groups), -np.inf)
        for rows, starts, groups, usual, which in self._steps:
            service = usual if transfer is None else np.maximum(usual - transfer[:, which], 0.0)
            arrival = work[:, rows] + delay.take(every.before[rows], axis=1)
            last = np.maximum.reduceat(arrival, starts, axis=1)
            end = np.maximum(last, through[:, groups]) + service
            through[:, groups] = end
            at = every.ends[rows]
            some = np.flatnonzero(at >= 0)
            if len(some):
                at = at[some]
                owner = np.searchsorted(starts, some, side="right") - 1
                before = delay.take(at, axis=1)
                freed = end.take(owner, axis=1) - held.take(at, axis=1)
                delay[:, at + 1] = before + np.maximum(freed - before, 0.0)
        selected = self._windows.filter(pl.col("iteration").is_in(list(numbers)))
        spans = (
            selected.group_by("rank")
            .agg(pl.col("own_begin", "over_begin").min(), pl.col("own_end", "over_end").max())
            .sort("rank")
        )
        index = np.searchsorted(self._ranks, spans["rank"].to_numpy())
        own = spans.select("own_begin", "own_end").to_numpy().astype(np.float64)
        starts = np.array([each.start for each in every.intervals], dtype=np.int64)[index]
        at = starts[:, None] + spans.select("over_begin", "over_end").to_numpy()
        for mapping, delayed in zip(mappings, delay, strict=True):
            moved = own.copy()
            for place, rank in enumerate(index.tolist()):
                if mapping[rank] is not None:
                    moved[place] = _moved(own[place], mapping[rank])
            moved += delayed[at]
            lasted = moved[:, 1] - moved[:, 0]
            # one after the other: the order of a sum of rounded numbers matters
            times.append(float(np.cumsum(lasted)[-1]) / len(spans) if len(spans) else 0.0)
        return times

    def _shorter(self, healings: Sequence[Healing]) -> Floats | None:
        """How much less each instance takes, by healing; None where none does."""
        if all(healing.transfer is None for healing in healings):
            return None
        size = 1 + max(int(which.max()) for *_, which in self._steps)
        shorter = np.zeros((len(healings), size))
        for row, healing in zip(shorter, healings, strict=True):
            if healing.transfer is not None:
                row[:] = healing.transfer[:size]
        return shorter

    def _mapping(self, saved: Floats | None) -> list[tuple[Floats, Floats] | None]:
        """Per rank, the work done by each border between phases, as it was and as it would be.

        None where nothing of it changes.
        """
        if saved is None:
            return [None] * len(self._ranks)
        lengths = self._windows.select(column_of(phase) for phase in ORDER).fill_null(0).to_numpy()
        begin = self._windows["own_begin"].to_numpy().astype(np.float64)
        edges = np.append(self._windows["rank"].search_sorted(self._ranks).to_numpy(), len(begin))
        mapping: list[tuple[Floats, Floats] | None] = [None] * len(self._ranks)
        for rank in np.flatnonzero(np.logical_or.reduceat(saved.any(axis=1), edges[:-1])):
            low, high = edges[rank], edges[rank + 1]
            start = begin[low:high, None]
            borders = np.hstack((start, start + np.cumsum(lengths[low:high], axis=1)))
            cuts = np.hstack((np.zeros((high - low, 1)), np.cumsum(saved[low:high], axis=1)))
            earlier = np.concatenate(([0], np.cumsum(cuts[:, -1])[:-1]))
            was = np.maximum.accumulate(borders.ravel())
            mapping[rank] = (was, was - (cuts + earlier[:, None]).ravel())
        return mapping


def _rows(arrays: Sequence[Floats]) -> Floats:
    """Each array a row; no copy of a single one."""
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)


def _mapped(
    work: Floats,
    places: Sequence[Small | slice],
    mapping: list[tuple[Floats, Floats] | None],
) -> Floats:
    """All work done by each moment, as it would be; it itself where nobody's changes.

    Args:
        work: as it was.
        places: where each rank's stands in it.
        mapping: how each rank's changes; None: not at all.
    """
    if any(how is not None for how in mapping):
        work = work.copy()
    for mine, how in zip(places, mapping, strict=True):
        if how is not None:
            work[mine] = _moved(work[mine], how)
    return work


def _moved(work: Floats, how: tuple[Floats, Floats] | None) -> Floats:
    """One rank's work done by each moment, as it would be."""
    if how is None:
        return work
    was, becomes = how
    return work + np.interp(work, was, becomes - was)


def _levels(work: Work, count: int) -> Small:
    """For each instance a number that grows along each rank.

    Args:
        work: in the order of each rank's calls.
        count: how many instances there are.
    """
    level = np.zeros(count, dtype=np.int32)
    for _ in range(MOST_PASSES):
        grew = False
        for calls in work.calls:
            instance = work.instance[calls]
            index = np.arange(len(instance), dtype=np.int32)
            were = level[instance]
            grown = np.maximum.accumulate(were - index) + index
            grew = grew or bool((grown != were).any())
            level[instance] = grown
        if not grew:
            break
    return level
