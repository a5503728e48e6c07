"""A run played again with less work for some (method section 9, what-if).

A rank does its own work in order. At a collective it arrives; the collective starts when all its
members have arrived and its predecessor on the communicator is through, and takes what it took.
Where exposed communication ended with a collective, the rank is held up until that one ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

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


class Replay:
    """A run that can be played again with less work.

    Args:
        parts: some ranks at a time, ascending: the ranks; their calls (rank, group and instance of
            what `waits.timed` gives, arrived and ended (aligned), end_ns (own axis)), all tied to
            one clock, of iterations that follow each other; and their exposed communication
            (rank, end_ns (own axis), began and stopped (aligned)).
        windows: rank, role, iteration, begin, end (aligned), and of every phase `<phase>_ns`,
            `<phase>_excess_ns` (what exceeds the role's median, at least 0; null where unknown)
            and `<phase>_role_excess_ns` (what the role's median exceeds the median role's).
    """

    def __init__(
        self, parts: Iterable[tuple[list[int], pl.DataFrame, pl.DataFrame]], windows: pl.DataFrame
    ) -> None:
        windows = windows.sort("rank", "iteration")
        self._ranks = windows["rank"].unique().sort().to_numpy()
        borders = windows.select("rank", "begin", "end").partition_by("rank", as_dict=True)
        seen: list[pl.DataFrame] = []
        laid: list[_Laid] = []
        calls = _Calls()
        for portion, rows, held in parts:
            here = rows.sort("rank", "ended", "arrived")
            calls.add(here)
            mine = here.partition_by("rank", as_dict=True)
            blocks = held.partition_by("rank", as_dict=True)
            for rank in portion:
                freed, row = _freed(
                    mine.get((rank,), here.clear()), blocks.get((rank,), held.clear())
                )
                laid.append(_lay(mine.get((rank,), here.clear()), freed, row))
                seen.append(_own(borders[(rank,)], freed))
        self._windows = pl.concat([windows, pl.concat(seen)], how="horizontal")
        self._work = [each.work for each in laid]
        self._block_work = [each.block_work for each in laid]
        counts = np.array([len(each.block_work) for each in laid], dtype=np.int64)
        self._first = np.concatenate(([0], np.cumsum(counts + 1)))[:-1]  # of each rank's delays
        blocks_before = np.concatenate(([0], np.cumsum(counts)))[:-1]
        delay_of_row = [
            (each.before + first).astype(np.int32)
            for each, first in zip(laid, self._first, strict=True)
        ]
        block_of_row = [
            np.where(each.block < 0, -1, each.block + first).astype(np.int32)
            for each, first in zip(laid, blocks_before, strict=True)
        ]
        del laid
        ranks_before = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self._delay_of_block = np.arange(counts.sum(), dtype=np.int32) + ranks_before
        self._plan(calls, delay_of_row, block_of_row)
        self.size = len(self._order)
        self._unchanged: dict[tuple[int, ...], float] = {}
        self._gains: dict[tuple[object, ...], int] = {}

    def _plan(self, calls: _Calls, delay_of_row: list[Small], block_of_row: list[Small]) -> None:
        """The order in which instances are played: all of a level at once."""
        instance, group, last, done = calls.dense()
        level = _levels(instance, [len(each) for each in self._work], len(last))
        self._groups = int(group.max(initial=-1)) + 1
        key = level.astype(np.int64) * max(len(last), 1) + instance
        self._order = pl.Series(key).arg_sort().to_numpy()
        del key
        self._delay_of_row = _joined(delay_of_row)[self._order]
        self._block_of_row = _joined(block_of_row)[self._order]
        instance = instance[self._order]
        edges = np.concatenate(([0], np.cumsum(np.bincount(level)))) if len(level) else [0]
        # what an instance takes once its last member and its predecessor are there
        through = np.full(self._groups, np.iinfo(np.int64).min)
        self._steps = []
        for low, high in pairwise(edges):
            part = instance[low:high]
            starts = np.flatnonzero(np.diff(part, prepend=-1))
            which = part[starts]
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
        who, what = (None if each is None else tuple(each) for each in (target.ranks, target.phases))
        when = None if target.iterations is None else tuple(target.iterations)
        key = (who, what, when, target.role, chosen)
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
            was, becomes = mapping[index]
            first, last = own + np.interp(own, was, becomes - was) + delay[at]
            total += last - first
        return total / max(spans.height, 1)

    def _mapping(self, target: Target | None) -> list[tuple[Floats, Floats]]:
        """Per rank, the work done by each border between phases, as it was and as it would be."""
        frame = self._windows
        wanted = pl.lit(target is not None)
        if target is not None and target.ranks is not None:
            wanted &= pl.col("rank").is_in(list(target.ranks))
        if target is not None and target.iterations is not None:
            wanted &= pl.col("iteration").is_in(list(target.iterations))
        excess = "excess_ns"
        if target is not None and target.role is not None:
            wanted &= pl.col("role") == target.role
            excess = "role_excess_ns"
        phases = ORDER if target is None or target.phases is None else target.phases
        frame = frame.with_columns(
            pl.when(wanted & pl.lit(phase in phases))
            .then(pl.col(f"{phase}_{excess}").fill_null(0))
            .otherwise(0)
            .alias(f"{phase}_saved")
            for phase in ORDER
        )
        mapping = []
        parts = dict(frame.partition_by("rank", as_dict=True).items())
        for rank in self._ranks:
            mine = parts[(rank,)]
            start = mine["own_begin"].to_numpy().astype(np.float64)
            lengths = mine.select(f"{phase}_ns" for phase in ORDER).fill_null(0).to_numpy()
            saved = mine.select(f"{phase}_saved" for phase in ORDER).to_numpy()
            borders = np.hstack((start[:, None], start[:, None] + np.cumsum(lengths, axis=1)))
            cuts = np.hstack((np.zeros((len(mine), 1)), np.cumsum(saved, axis=1)))
            earlier = np.concatenate(([0], np.cumsum(cuts[:, -1])[:-1]))
            was = np.maximum.accumulate(borders.ravel())
            mapping.append((was, was - (cuts + earlier[:, None]).ravel()))
        return mapping


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

    def add(self, rows: pl.DataFrame) -> None:
        """Take in the calls of more ranks."""
        instance = rows["instance"].to_numpy()
        more = int(instance.max(initial=-1)) + 1 - len(self._last)
        if more > 0:
            limits = np.iinfo(np.int64)
            self._group = np.pad(self._group, (0, more), constant_values=-1)
            self._last = np.pad(self._last, (0, more), constant_values=limits.min)
            self._done = np.pad(self._done, (0, more), constant_values=limits.max)
        self._group[instance] = rows["group"].to_numpy()
        np.maximum.at(self._last, instance, rows["arrived"].to_numpy())
        np.minimum.at(self._done, instance, rows["ended"].to_numpy())
        self._instance.append(instance.astype(np.int32))

    def dense(self) -> tuple[Small, Numbers, Numbers, Numbers]:
        """instance of each call; group, last and done of each instance; numbered from 0."""
        there = self._group >= 0
        number = (np.cumsum(there) - 1).astype(np.int32)
        groups = np.unique(self._group[there], return_inverse=True)[1]
        instance = number[_joined(self._instance)]
        return instance, groups, self._last[there], self._done[there]


def _freed(rows: pl.DataFrame, exposed: pl.DataFrame) -> tuple[pl.DataFrame, Numbers]:
    """What held a rank up, in time order, and the row that freed it: the last call of that end."""
    ends, stops = rows["end_ns"].to_numpy(), exposed["end_ns"].to_numpy()
    order = np.argsort(ends, kind="stable")
    at = np.searchsorted(ends[order], stops, side="right") - 1
    found = at >= 0
    found[found] = ends[order][at[found]] == stops[found]
    freed = exposed.filter(pl.Series(found, dtype=pl.Boolean)).with_columns(
        row=pl.Series(order[at[found]], dtype=pl.Int64)
    )
    freed = freed.sort("began")
    return freed.select("began", "stopped"), freed["row"].to_numpy()


def _own(borders: pl.DataFrame, freed: pl.DataFrame) -> pl.DataFrame:
    """Of a rank's windows, the own work done by each border, and how many stretches are over."""
    low, high = freed["began"].to_numpy(), freed["stopped"].to_numpy()
    never = np.iinfo(np.int64).min
    moments = {name: borders[name].fill_null(never).to_numpy() for name in ("begin", "end")}
    return pl.DataFrame(
        {f"own_{name}": each - length_before(low, high, each) for name, each in moments.items()}
        | {
            f"over_{name}": np.searchsorted(high, each, side="right")
            for name, each in moments.items()
        },
        schema_overrides=dict.fromkeys(("over_begin", "over_end"), pl.Int64),
    )


def _lay(rows: pl.DataFrame, freed: pl.DataFrame, row: Numbers) -> _Laid:
    """One rank's calls, by their end, and what held it up."""
    low, high = freed["began"].to_numpy(), freed["stopped"].to_numpy()
    arrived = rows["arrived"].to_numpy()
    block = np.full(rows.height, -1, dtype=np.int32)
    block[row] = np.arange(freed.height)
    return _Laid(
        block_work=(low - length_before(low, high, low)).astype(np.float64),
        work=(arrived - length_before(low, high, arrived)).astype(np.float64),
        before=np.searchsorted(high, arrived, side="right").astype(np.int32),
        block=block,
    )


def _joined(parts: list[Small]) -> Small:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)


def _mapped(work: list[Floats], mapping: list[tuple[Floats, Floats]]) -> Floats:
    """The ranks' work done by each moment, as it would be, one after the other."""
    parts = [
        mine + np.interp(mine, was, becomes - was)
        for mine, (was, becomes) in zip(work, mapping, strict=True)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


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
