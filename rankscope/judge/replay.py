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

from rankscope.judge.replay_borders import Borders, phases_in
from rankscope.judge.replay_inputs import (
    Floats,
    Instances,
    Numbers,
    RankChunk,
    Small,
    Work,
    chunk_input,
)
from rankscope.match.clocks import Aligner
from rankscope.model.metrics import column_of
from rankscope.util.threads import threaded

MOST_PASSES = 10_000

MOST_TOGETHER = 2_000_000
"""Calls that are played at once, of all targets together; at least one target is."""


@dataclass(frozen=True, slots=True, eq=False)
class Healing:
    """Time taken out of a run before it is played again.

    `work`: ns by row of `Replay.rows` and phase of `Replay.phases`; None: nothing. `transfer`: ns
    by instance of a collective; None: nothing.
    """

    work: Floats | None = None
    transfer: Floats | None = None


class Step(NamedTuple):
    """Instances that are played at once, and their calls."""

    calls: slice  # in the order of the replay
    starts: Numbers  # where those of each instance begin among them
    groups: Numbers
    service: Floats  # what each takes once its last member and its predecessor are there, ns
    which: Numbers  # the instances
    freed: Small  # the intervals that they end
    freeing: Numbers  # and the instance that ends each, by its place here


class Replay:
    """A run that can be played again with less work.

    Args:
        chunks: all ranks, some at a time; each chunk is read once.
        windows: rank, iteration, begin, end (aligned), and `<phase>_ns` of every phase, in the
            order in which phases follow each other.
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
        seen: list[pl.DataFrame] = []
        instances = Instances()
        self.size = size
        self._work = Work(size)
        for chunk in chunks:
            of_chunk = windows.filter(pl.col("rank").is_in(chunk.ranks))
            calls, found, borders = chunk_input(chunk, of_chunk, aligner)
            instances.add(calls)
            self._work.add(calls.instance, found)
            seen.append(borders)
        windows = windows.drop("begin", "end")
        self._windows = pl.concat([windows, *([pl.concat(seen)] if seen else [])], how="horizontal")
        self.phases = phases_in(self._windows)
        self._borders = Borders(self._ranks, self._windows)
        self._plan(instances)
        self._unchanged: dict[tuple[int, ...], float] = {}

    def service(self, count: int) -> Floats:
        """Time of each of `count` instances after its last member and its predecessor arrived.

        In ns; NaN where it is not played.
        """
        found = np.full(count, np.nan)
        for step in self._steps:
            found[step.which] = step.service
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
            phases: some phases.
            saved: rank by iteration by phase in ns; NaN is nothing.
        """
        rank, number = (self._windows[name].to_numpy() for name in ("rank", "iteration"))
        row, column = np.searchsorted(ranks, rank), np.searchsorted(numbers, number)
        row, column = np.minimum(row, len(ranks) - 1), np.minimum(column, len(numbers) - 1)
        there = (ranks[row] == rank) & (numbers[column] == number)
        work = np.zeros((len(rank), len(self.phases)))
        for place, phase in enumerate(phases):
            column_there = self.phases.index(column_of(phase))
            work[there, column_there] = saved[row[there], column[there], place]
        return np.nan_to_num(work)

    def _plan(self, instances: Instances) -> None:
        """The order in which instances are played: all of a level at once."""
        group, last, done = instances.group, instances.last, instances.done
        # an instance is played after all that its members called before it
        level = _levels(self._work, len(group))
        order = np.argsort(level, kind="stable")
        # calls of an instance stand together, in the order in which instances are played
        sizes = np.bincount(self._work.instance, minlength=len(group))
        order = order[sizes[order] > 0]
        after = np.cumsum(sizes[order])
        first = np.zeros_like(sizes)
        first[order] = after - sizes[order]
        self._work.group_by_instance(first, self._borders.before)
        self._groups = int(group.max(initial=-1)) + 1
        # what an instance takes once its last member and its predecessor are there
        through = np.full(self._groups, np.iinfo(np.int64).min)
        self._steps: list[Step] = []
        steps = np.unique(np.concatenate(([0], np.cumsum(np.bincount(level[order])))))
        for here, until in pairwise(steps.tolist()):
            which = order[here:until]
            low, high = int(first[which[0]]), int(after[until - 1])
            groups = group[which]
            ready = np.maximum(last[which], through[groups])
            service = np.maximum(done[which] - ready, 0).astype(np.float64)
            through[groups] = np.maximum(done[which], ready)
            starts, ends = first[which] - low, self._work.ends[low:high]
            freeing = np.flatnonzero(ends >= 0)
            owner = np.searchsorted(starts, freeing, side="right") - 1
            self._steps.append(
                Step(slice(low, high), starts, groups, service, which, ends[freeing], owner)
            )

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

    def times_ns(
        self,
        healings: Sequence[Healing],
        numbers: Collection[int],
        *,
        most: int = MOST_TOGETHER,
    ) -> list[float]:
        """Times from the start of the first to the end of the last of iterations `numbers`.

        Args:
            healings: what is taken out.
            numbers: the iterations whose time counts.
            most: bounds memory: calls times healings that are played together.

        Returns:
            The mean over ranks, ns, for each healing.
        """
        together = max(1, most // max(self.size, 1))
        some = [healings[at : at + together] for at in range(0, len(healings), together)]
        return [*chain.from_iterable(threaded(lambda each: self._played(each, numbers), some))]

    def _played(self, healings: Sequence[Healing], numbers: Collection[int]) -> list[float]:
        """`times_ns`, of all healings at once: a row of each array is one of them."""
        times = []
        every, borders = self._work, self._borders
        less = [None if each.work is None else borders.less(each.work) for each in healings]
        # what each rank has worked at each call and interval, once something is taken out
        work = _rows([borders.moved(every.work, every.border, each) for each in less])
        held = _rows([borders.moved(every.held, every.border_of_held, each) for each in less])
        delay = np.zeros(held.shape)  # of a rank, from each interval on
        transfer = self._shorter(healings)
        through = np.full((len(healings), self._groups), -np.inf)  # when a communicator is free
        for step in self._steps:
            service: Floats = step.service
            if transfer is not None:
                service = np.maximum(service - transfer[:, step.which], 0.0)
            # a rank arrives when its work is done, and it is no longer held up
            arrival = work[:, step.calls] + delay.take(every.before[step.calls], axis=1)
            # the collective ends when the last has arrived, the one before it is through, and its
            # transfer is done
            last = np.maximum.reduceat(arrival, step.starts, axis=1)
            end = np.maximum(last, through[:, step.groups]) + service
            through[:, step.groups] = end
            # that holds up the ranks whose intervals end with it
            if len(step.freed):
                before = delay.take(step.freed, axis=1)
                later = end.take(step.freeing, axis=1) - held.take(step.freed, axis=1)
                delay[:, step.freed + 1] = before + np.maximum(later - before, 0.0)
        # from the begin of each rank's first window to the end of its last
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
        border = np.array([borders.before(*each) for each in zip(index, own, strict=True)])
        for taken, delayed in zip(less, delay, strict=True):
            moved = borders.moved(own, border, taken) + delayed[at]
            lasted = moved[:, 1] - moved[:, 0]
            # one after the other: the order of a sum of rounded numbers matters
            times.append(float(np.cumsum(lasted)[-1]) / len(spans) if len(spans) else 0.0)
        return times

    def _shorter(self, healings: Sequence[Healing]) -> Floats | None:
        """How much less each instance takes, by healing; None where none does."""
        if all(healing.transfer is None for healing in healings):
            return None
        size = 1 + max(int(step.which.max()) for step in self._steps)
        shorter = np.zeros((len(healings), size))
        for row, healing in zip(shorter, healings, strict=True):
            if healing.transfer is not None:
                row[:] = healing.transfer[:size]
        return shorter


def _rows(arrays: Sequence[Floats]) -> Floats:
    """Each array a row; no copy of a single one."""
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)


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
