"""What the run's time would be if somebody were at the role's median: by replay (method 9).

A rank does its own work in order. At a collective it arrives; the collective starts when all its
members have arrived and its predecessor on the communicator is through, and takes what it took.
Where exposed communication ended with a collective, the rank is held up until that one ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.align.peers import OPERATION
from rankscope.compare.flags import lower_median
from rankscope.compare.problems import listed
from rankscope.intervals import length_before
from rankscope.records import Verdict

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

ORDER = ("load", "forward", "backward", "optimizer", "other")
"""How an iteration's work is laid out in the replay."""

MOST_PASSES = 10_000

MOST_ROWS = 500_000
"""In larger runs only the verdict and the ideal are played."""

RANKS = 3
"""Ranks with most excess, each of which is a scenario."""


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
        instances: what `waits.timed` gives, all ranks tied to one clock, of iterations that
            follow each other.
        exposed: rank, start_ns, end_ns (own axis), began, stopped (aligned).
        windows: rank, role, iteration, begin, end (aligned), and of every phase `<phase>_ns`,
            `<phase>_excess_ns` (what exceeds the role's median, at least 0; null where unknown)
            and `<phase>_role_excess_ns` (what the role's median exceeds the median role's).
    """

    def __init__(
        self, instances: pl.DataFrame, exposed: pl.DataFrame, windows: pl.DataFrame
    ) -> None:
        rows = instances.sort("rank", "ended", "arrived")
        self.size = rows.height
        held = _held(rows, exposed)
        self._windows = windows.sort("rank", "iteration")
        self._ranks = windows["rank"].unique().sort().to_numpy()
        place = np.searchsorted(self._ranks, rows["rank"].to_numpy())
        blocks = held.filter(pl.col("row").is_not_null()).sort("rank", "began")
        block_place = np.searchsorted(self._ranks, blocks["rank"].to_numpy())
        counts = np.bincount(block_place, minlength=len(self._ranks))
        self._first = np.concatenate(([0], np.cumsum(counts + 1)[:-1]))  # of each rank's delays
        arrived = rows["arrived"].to_numpy()
        began, stopped = blocks["began"].to_numpy(), blocks["stopped"].to_numpy()
        before = np.empty(rows.height, dtype=np.int64)
        work = np.empty(rows.height, dtype=np.float64)
        block_work = np.empty(blocks.height, dtype=np.float64)
        self._lines = []
        for index in range(len(self._ranks)):
            mine, own = place == index, block_place == index
            low, high = began[own], stopped[own]
            before[mine] = np.searchsorted(high, arrived[mine], side="right")
            work[mine] = arrived[mine] - length_before(low, high, arrived[mine])
            block_work[own] = low - length_before(low, high, low)
            self._lines.append((low, high))
        self._place, self._block_place = place, block_place
        self._work, self._block_work = work, block_work
        self._delay_of_row = self._first[place] + before
        nth = np.arange(blocks.height) - np.concatenate(([0], np.cumsum(counts)))[block_place]
        self._delay_of_block = self._first[block_place] + nth
        self._block_of_row = np.full(rows.height, -1, dtype=np.int64)
        self._block_of_row[blocks["row"].to_numpy()] = np.arange(blocks.height)
        self._plan(rows, place)

    def _plan(self, rows: pl.DataFrame, place: Numbers) -> None:
        """The order in which instances are played: all of a level at once."""
        instance = rows["instance"].rank("dense").cast(pl.Int64).to_numpy() - 1
        self._group = rows["group"].rank("dense").cast(pl.Int64).to_numpy() - 1
        level = _levels(instance, place)
        order = np.lexsort((instance, level))
        edges = np.flatnonzero(np.diff(level[order])) + 1
        self._steps = [
            (part, np.flatnonzero(np.diff(instance[part], prepend=-1)))
            for part in np.split(order, edges)
        ]
        arrived, ended = rows["arrived"].to_numpy(), rows["ended"].to_numpy()
        # what an instance takes once its last member and its predecessor are there
        self._service = {}
        through = np.full(int(self._group.max(initial=-1)) + 1, np.iinfo(np.int64).min)
        for number, (part, starts) in enumerate(self._steps):
            groups = self._group[part[starts]]
            ready = np.maximum(np.maximum.reduceat(arrived[part], starts), through[groups])
            done = np.minimum.reduceat(ended[part], starts)
            self._service[number] = np.maximum(done - ready, 0).astype(np.float64)
            through[groups] = np.maximum(done, ready)

    def gain_ns(self, target: Target, numbers: Collection[int]) -> int:
        """What `target` at its role's median would save over iterations `numbers`."""
        saved = self.time_ns(None, numbers) - self.time_ns(target, numbers)
        return max(0, round(saved))

    def time_ns(self, target: Target | None, numbers: Collection[int]) -> float:
        """Time from the start of the first to the end of the last of iterations `numbers`.

        The mean over ranks, ns; with nobody changed where `target` is None.
        """
        mapping = self._mapping(target)
        work = self._mapped(self._work, self._place, mapping)
        block_work = self._mapped(self._block_work, self._block_place, mapping)
        delay = np.zeros(len(self._block_work) + len(self._ranks))
        through = np.full(int(self._group.max(initial=-1)) + 1, -np.inf)
        for number, (part, starts) in enumerate(self._steps):
            groups = self._group[part[starts]]
            arrival = work[part] + delay[self._delay_of_row[part]]
            ready = np.maximum(np.maximum.reduceat(arrival, starts), through[groups])
            end = ready + self._service[number]
            through[groups] = end
            block = self._block_of_row[part]
            some = np.flatnonzero(block >= 0)
            if len(some):
                block = block[some]
                at = self._delay_of_block[block]
                owner = np.searchsorted(starts, some, side="right") - 1
                delay[at + 1] = delay[at] + np.maximum(
                    end[owner] - block_work[block] - delay[at], 0.0
                )
        chosen = self._windows.filter(pl.col("iteration").is_in(list(numbers)))
        spans = chosen.group_by("rank").agg(pl.col("begin").min(), pl.col("end").max()).sort("rank")
        total = 0.0
        for rank, begin, end in spans.iter_rows():
            index = int(np.searchsorted(self._ranks, rank))
            moments = np.array([begin, end], dtype=np.int64)
            low, high = self._lines[index]
            own = (moments - length_before(low, high, moments)).astype(np.float64)
            at = self._first[index] + np.searchsorted(high, moments, side="right")
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
        for index, rank in enumerate(self._ranks):
            mine = parts[(rank,)]
            low, high = self._lines[index]
            begin = mine["begin"].to_numpy()
            start = (begin - length_before(low, high, begin)).astype(np.float64)
            lengths = mine.select(f"{phase}_ns" for phase in ORDER).fill_null(0).to_numpy()
            saved = mine.select(f"{phase}_saved" for phase in ORDER).to_numpy()
            borders = np.hstack((start[:, None], start[:, None] + np.cumsum(lengths, axis=1)))
            cuts = np.hstack((np.zeros((len(mine), 1)), np.cumsum(saved, axis=1)))
            earlier = np.concatenate(([0], np.cumsum(cuts[:, -1])[:-1]))
            was = np.maximum.accumulate(borders.ravel())
            mapping.append((was, was - (cuts + earlier[:, None]).ravel()))
        return mapping

    @staticmethod
    def _mapped(work: Floats, place: Numbers, mapping: list[tuple[Floats, Floats]]) -> Floats:
        mapped = np.empty_like(work)
        for index, (was, becomes) in enumerate(mapping):
            mine = place == index
            mapped[mine] = work[mine] + np.interp(work[mine], was, becomes - was)
        return mapped


def scenarios(
    replay: Replay | None, chosen: pl.DataFrame, verdict: Verdict, numbers: Collection[int]
) -> pl.DataFrame | None:
    """What putting one thing at its role's median would save, most first.

    Args:
        replay: None where the run cannot be played again.
        chosen: rows of `Analysis.wide`.
        verdict: whom it names, and in which iterations, is one of the scenarios.
        numbers: the chosen iterations.

    Returns:
        kind (verdict | rank | role | phase | iterations | all), name, time_ns (the median rank's,
        with the gain taken off), gain_ns, gain (share of the time as it was); `all` gives the
        ideal time. None without a replay.
    """
    if replay is None:
        return None
    targets: list[tuple[str, str, Target]] = [("all", "every rank", Target())]
    if verdict.ranks:
        many = "rank" if len(verdict.ranks) == 1 else "ranks"
        name = f"{many} {listed(verdict.ranks)} in those iterations"
        targets.append(("verdict", name, Target(verdict.ranks, None, verdict.iterations)))
    if replay.size <= MOST_ROWS:
        phases = [phase for phase in ORDER if chosen[f"{phase}_ns"].is_not_null().any()]
        targets += [("phase", phase, Target(phases=(phase,))) for phase in phases]
        slowest = (
            chosen.with_columns(
                excess=pl.col("work_ns") - lower_median(pl.col("work_ns")).over("role", "iteration")
            )
            .group_by("rank")
            .agg(pl.col("excess").clip(0).sum())
            .sort("excess", "rank", descending=[True, False])
        )
        targets += [
            ("rank", f"rank {rank}", Target(ranks=(rank,))) for rank in slowest["rank"].head(RANKS)
        ]
        roles = chosen["role"].unique().sort().to_list()
        targets += [("role", role, Target(role=role)) for role in roles if len(roles) > 1]
        if verdict.iterations and len(verdict.iterations) < len(numbers):
            name = f"iterations {listed(verdict.iterations)}"
            targets.append(("iterations", name, Target(iterations=verdict.iterations)))
    per = chosen.group_by("iteration").agg(lower_median(pl.col("iteration_ns")))
    took = int(per["iteration_ns"].sum())
    rows = []
    for kind, name, target in targets:
        gain = min(replay.gain_ns(target, numbers), took)
        rows.append((kind, name, took - gain, gain, gain / took if took else 0.0))
    schema = {
        "kind": pl.String,
        "name": pl.String,
        "time_ns": pl.Int64,
        "gain_ns": pl.Int64,
        "gain": pl.Float64,
    }
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.sort("gain_ns", descending=True, maintain_order=True)


def replay_of(
    instances: pl.DataFrame,
    collectives: pl.DataFrame,
    exposed: pl.DataFrame,
    measures: pl.DataFrame,
    wide: pl.DataFrame,
    aligned: Callable[[str], pl.Expr],
) -> Replay | None:
    """The replay of a run; None where some of its communication is not understood.

    Args:
        instances: what `waits.timed` gives.
        collectives: COLLECTIVES; transfers between ranks that were not paired forbid a replay.
        exposed: EXPOSED on one clock.
        measures: MEASURES on that clock.
        wide: rank, role, iteration and `<phase>_ns`.
        aligned: the aligned time of a column of times.
    """
    own = collectives.filter(pl.col("iteration").is_in(instances["iteration"].unique().implode()))
    pairs = (pl.col("operation") == OPERATION).sum()
    if instances.is_empty() or own.select(pairs).item() > instances.select(pairs).item():
        return None
    usual = {phase: lower_median(pl.col(f"{phase}_ns")) for phase in ORDER}
    excesses = [
        (pl.col(f"{phase}_ns") - usual[phase].over("role", "iteration"))
        .clip(0)
        .alias(f"{phase}_excess_ns")
        for phase in ORDER
    ]
    by_role = wide.group_by("role", "iteration").agg(usual.values())
    heavier = by_role.select(
        "role",
        "iteration",
        *(
            (pl.col(f"{phase}_ns") - usual[phase].over("iteration"))
            .clip(0)
            .alias(f"{phase}_role_excess_ns")
            for phase in ORDER
        ),
    )
    phases = wide.select(
        "rank", "role", "iteration", *(f"{phase}_ns" for phase in ORDER), *excesses
    ).join(heavier, on=["role", "iteration"])
    windows = (
        measures.filter(pl.col("window_start_ns").is_not_null())
        .with_columns(end_ns=pl.col("window_start_ns") + pl.col("iteration_ns"))
        .select("rank", "iteration", begin=aligned("window_start_ns"), end=aligned("end_ns"))
        .join(phases, on=["rank", "iteration"])
    )
    inside = exposed.select(
        "rank", "start_ns", "end_ns", began=aligned("start_ns"), stopped=aligned("end_ns")
    )
    return Replay(instances, inside, windows)


def _held(rows: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """`exposed` with the row of `rows` whose end freed the rank; null where none did."""
    ends = rows.with_row_index("row").select("rank", "end_ns", pl.col("row").cast(pl.Int64))
    last = ends.unique(["rank", "end_ns"], keep="last")
    return exposed.join(last, on=["rank", "end_ns"], how="left")


def _levels(instance: Numbers, place: Numbers) -> Numbers:
    """For each row a number that grows along each rank and is equal within an instance."""
    count = int(instance.max(initial=-1)) + 1
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    index = np.arange(len(place)) - np.repeat(starts, np.diff(np.append(starts, len(place))))
    apart = place * (2 * len(place) + 2)  # so that one running maximum serves all ranks
    level = index.copy()
    for _ in range(MOST_PASSES):
        highest = np.zeros(count, dtype=np.int64)
        np.maximum.at(highest, instance, level)
        grown = np.maximum.accumulate(highest[instance] - index + apart) - apart + index
        if (grown == level).all():
            break
        level = grown
    return level
