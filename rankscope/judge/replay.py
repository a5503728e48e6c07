"""A run played again with less work for some ranks. See METHOD.md#verdict.

A rank does its own work in order. At a collective it arrives; the collective starts when all its
members have arrived and its predecessor on the communicator is through, and takes what it took.
A rooted one lets each member go some time after those members arrived that came before it went.
Where exposed communication ended with a collective, the rank is held up until that one ends.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.judge.replay_inputs import (
    AFTER_END,
    Numbers,
    RankChunk,
    ReplayInput,
    Small,
    chunk_input,
)
from rankscope.judge.replay_rooted import Rooted, RootedCalls, with_rooted
from rankscope.match.clocks import Aligner
from rankscope.model.intervals import Flags, Floats
from rankscope.util.numbers import NEVER
from rankscope.util.threads import cores_to_use, threaded

MOST_PASSES = 10
"""Passes over the calls of all ranks; if more are needed, calls are taken one by one."""

MOST_TOGETHER = 4_000_000
"""Calls of a batch, summed over its healings; at least one healing is played."""

AT_ONCE = 2
"""Most batches that are played at the same time: each needs memory."""


class Healing(NamedTuple):
    """Time taken out of a run before it is played again; None: nothing."""

    work: Floats | None = None  # ns by row of `Replay.rows`
    transfer: Floats | None = None  # ns by instance of a collective


class Step(NamedTuple):
    """Instances that are played at once, and their calls."""

    calls: slice  # in the order of the replay
    starts: Numbers  # where those of each instance begin among them
    before: Numbers  # the instance before each on its communicator; -1: none
    queued: Numbers  # those that stand in a queue, by their place here
    behind: Numbers  # the instance before each of those
    service: Floats  # what each takes once its last member and those before it are there, ns
    which: Numbers  # the instances
    freed: Small  # the intervals that they end
    freeing: Numbers  # and the end that ends each, by its place in `with_rooted`
    rooted: list[Rooted]
    ends: Numbers  # the place of the end of each call there


class Lasted(NamedTuple):
    """How long some iterations take, ns."""

    mean: float  # of the ranks, each from its first start to its last end
    last: float  # the last end of all ranks, on the one clock


class Replay:
    """A run that can be played again with less work.

    The intervals of a rank are numbered after those of the ranks before it, with one more place at
    the end: the delay before an interval stands in its place, and the delay after it in the next.

    Args:
        chunks: all ranks, some at a time; each chunk is read once.
        windows: rank, iteration, begin and end (aligned).
        aligner: brings the times of a rank's own axis to the one clock.
        roles: rank → role.

    Attributes:
        compared: which of the rows could be compared with others of their role.
    """

    def __init__(
        self,
        chunks: Iterable[RankChunk],
        windows: pl.DataFrame,
        aligner: Aligner,
        roles: Mapping[int, str],
    ) -> None:
        windows = windows.sort("rank", "iteration")
        self._ranks = windows["rank"].unique().sort().to_numpy()

        def prepared(chunk: RankChunk) -> tuple[ReplayInput, pl.DataFrame]:
            return chunk_input(chunk, windows.filter(pl.col("rank").is_in(chunk.ranks)), aligner)

        parts, borders = zip(*threaded(prepared, chunks), strict=True)
        columns = [[*column] for column in zip(*parts, strict=True)]
        del parts  # there is no room for all of it twice
        run = ReplayInput(*(np.concatenate(columns.pop(0)) for _ in ReplayInput._fields))
        windows = windows.drop("begin", "end")
        self._windows: pl.DataFrame = pl.concat([windows, pl.concat(borders)], how="horizontal")
        self.size = len(run.instance)
        first = np.append(windows["rank"].search_sorted(self._ranks).to_numpy(), len(windows))
        self._rows = [slice(low, high) for low, high in pairwise(first.tolist())]
        own = self._windows.select("own_begin", "own_end").to_numpy().astype(np.float64)
        calls = np.split(run.work, np.cumsum(run.counts)[:-1])
        places = [_borders(own[rows], work) for rows, work in zip(self._rows, calls, strict=True)]
        self._borders, self._counts = ([*each] for each in zip(*places, strict=True))
        names = [roles[rank] for rank in windows["rank"].to_list()]
        self._more = self._over_usual(np.unique(names, return_inverse=True)[1])
        self._first = np.cumsum(run.blocked + 1) - run.blocked - 1  # interval of each rank
        self._plan(run)
        self._known: dict[tuple[object, ...], Lasted] = {}

    def service(self, count: int) -> Floats:
        """Time of each of `count` instances after its last member and its predecessor arrived.

        In ns; NaN where it is not played.
        """
        return np.pad(self._service, (0, count - self._count), constant_values=np.nan)

    @property
    def unsure_ns(self) -> float:
        """How long a rank's unsure calls took after those came for whom they waited."""
        rooted = ((self._unsure[s.calls], each) for s in self._steps for each in s.rooted)
        return float(sum(each.service[of[each.calls]].sum() for of, each in rooted)) / len(
            self._ranks
        )

    @property
    def iterations(self) -> Numbers:
        """The iterations that are played, ascending."""
        return self._windows["iteration"].unique().sort().to_numpy()

    @property
    def rows(self) -> pl.DataFrame:
        """rank and iteration of the rows of `Healing.work`, sorted."""
        return self._windows.select("rank", "iteration")

    def placed(self, ranks: Numbers, numbers: Numbers, saved: Floats) -> Floats:
        """`Healing.work` from a matrix.

        Args:
            ranks: ascending.
            numbers: iterations, ascending.
            saved: rank by iteration in ns; NaN is nothing.
        """
        rank, number = (self._windows[name].to_numpy() for name in ("rank", "iteration"))
        row, column = np.searchsorted(ranks, rank), np.searchsorted(numbers, number)
        row, column = np.minimum(row, len(ranks) - 1), np.minimum(column, len(numbers) - 1)
        known = (ranks[row] == rank) & (numbers[column] == number)
        return np.where(known, np.nan_to_num(saved[row, column]), 0.0)

    def _over_usual(self, roles: Numbers) -> list[Floats]:
        """How far a rank's work since the begin of a window exceeds the usual, at each border, ns.

        Between two borders, it is what exceeds the lower median of those ranks of the role that
        have as many of them in the iteration.

        Args:
            roles: of the rows, as numbers.
        """
        counts = np.concatenate(self._counts)
        begins = np.cumsum(counts) - counts
        spans = np.diff(np.concatenate(self._borders), prepend=0.0)
        spans[begins] = 0.0
        over = np.zeros_like(spans)
        alike = np.stack((roles, self._windows["iteration"].to_numpy(), counts))
        kinds, group = np.unique(alike, axis=1, return_inverse=True)
        group = group.ravel()
        members = np.bincount(group)
        for size in np.unique(members[members > 1]).tolist():
            for count in np.unique(kinds[2, members == size]).tolist():
                rows = np.flatnonzero((members[group] == size) & (counts == count))
                rows = rows[np.argsort(group[rows], kind="stable")]
                at = begins[rows].reshape(-1, size, 1) + np.arange(count)
                middle = (size - 1) // 2
                usual = np.partition(spans[at], middle, axis=1)[:, middle : middle + 1]
                over[at] = np.maximum(spans[at] - usual, 0.0)
        more = over.cumsum()
        more -= np.repeat(more[begins], counts)
        self.compared = members[group] > 1
        return np.split(more, np.cumsum([each.sum() for each in self._counts])[:-1])

    def _plan(self, run: ReplayInput) -> None:
        """The order in which instances are played: all of a level at once."""
        instance = run.instance
        group, rooted, last, done = _instances(run)
        count = len(group)
        # an instance is played after all that its members called before it
        level = _levels(run, count)
        order = np.argsort(level, kind="stable")
        behind = _queues(run, done)
        # calls of an instance stand together, in the order in which instances are played
        sizes = np.bincount(instance, minlength=count)
        order = order[sizes[order] > 0]
        after = np.cumsum(sizes[order])
        first = np.zeros_like(sizes)
        first[order] = after - sizes[order]
        calls = np.argsort(first[instance], kind="stable")
        of_call = np.repeat(self._first, run.counts)
        self._before = (run.over + of_call)[calls].astype(np.int32)
        self._ends = np.where(run.ends < 0, -1, run.ends + of_call)[calls].astype(np.int32)
        self._calls = calls
        self._unsure = run.unsure[calls]
        self._work = np.split(run.work, np.cumsum(run.counts)[:-1])
        held = np.insert(run.held, np.cumsum(run.blocked), 0.0)
        self._held = np.split(held, np.cumsum(run.blocked + 1)[:-1])
        self._count = count
        self._rooted = RootedCalls(run, calls, done) if rooted.any() else None
        # an instance is ready once its last member and its predecessors are there
        ready, until, before = last.copy(), np.maximum(last, done), np.full(count, -1)
        of_group = order[np.argsort(group[order], kind="stable")]
        for same in np.split(of_group, np.flatnonzero(np.diff(group[of_group])) + 1):
            before[same[1:]] = same[:-1]
            ready[same[1:]] = np.maximum(last[same[1:]], np.maximum.accumulate(until[same])[:-1])
        self._service = np.where(rooted | (sizes == 0), np.nan, np.maximum(done - ready, 0))
        predecessor_end = np.where(behind < 0, -NEVER, done[behind])
        in_queue = (ready < predecessor_end) & (predecessor_end <= done)
        ready = np.where(in_queue, predecessor_end, ready)
        service = np.maximum(done - ready, 0).astype(np.float64)
        self._steps: list[Step] = []
        steps = np.unique(np.concatenate(([0], np.cumsum(np.bincount(level[order])))))
        for first_step, next_step in pairwise(steps.tolist()):
            which = order[first_step:next_step]
            low, high = int(first[which[0]]), int(after[next_step - 1])
            queued = np.flatnonzero(in_queue[which])
            starts, ends = first[which] - low, self._ends[low:high]
            of = slice(low, high)
            if self._rooted:
                apart = self._rooted.step(of, rooted[which], sizes[which])
            else:
                apart = [], np.repeat(np.arange(len(which)), sizes[which])
            freeing = np.flatnonzero(ends >= 0)
            queues = queued, behind[which[queued]]
            frees = ends[freeing], apart[1][freeing]
            takes = service[which], which
            self._steps.append(Step(of, starts, before[which], *queues, *takes, *frees, *apart))

    def gains_ns(self, healings: Sequence[Healing], numbers: Collection[int]) -> list[int]:
        """The time that each healing would save, ns, at least 0.

        It is the saving of the mean rank, or of the last rank if that is more: the others may wait
        for it in an iteration that has no report. Healings are played together, so several take
        little longer than one.

        Args:
            healings: what is taken out.
            numbers: the iterations whose time counts.
        """
        played = tuple(numbers)
        keys = [
            (played, *(None if part is None else hash(part.tobytes()) for part in each))
            for each in (Healing(), *healings)
        ]
        fresh = dict(zip(keys, (Healing(), *healings), strict=True))
        fresh = {key: each for key, each in fresh.items() if key not in self._known}
        self._known |= zip(fresh, self.times_ns([*fresh.values()], played), strict=True)
        was, *times = (self._known[key] for key in keys)
        return [max(0, round(was.mean - now.mean), round(was.last - now.last)) for now in times]

    def times_ns(
        self,
        healings: Sequence[Healing],
        numbers: Collection[int],
        *,
        most: int = MOST_TOGETHER,
    ) -> list[Lasted]:
        """Times from the start of the first to the end of the last of iterations `numbers`.

        Args:
            healings: what is taken out.
            numbers: the iterations whose time counts.
            most: bounds memory: calls times healings of a batch.

        Returns:
            For each healing.
        """
        together = max(1, most // max(self.size, 1))
        batches = (healings[at : at + together] for at in range(0, len(healings), together))
        threads = min(AT_ONCE, cores_to_use())
        return [*chain(*threaded(lambda batch: self._played(batch, numbers), batches, threads))]

    def _played(self, healings: Sequence[Healing], numbers: Collection[int]) -> list[Lasted]:
        """`times_ns`, of all healings at once: a row of each array is one of them."""
        cuts = [self._cuts(each.work) for each in healings]
        # what each rank has worked at each call and interval, once something is taken out
        work = np.stack([self._remaining(self._work, each)[self._calls] for each in cuts])
        held = np.stack([self._remaining(self._held, each) for each in cuts])
        delay = np.zeros(held.shape)  # of a rank, from each interval on
        after = delay[:, 1:]
        transfers = [each.transfer for each in healings if each.transfer is not None]
        if transfers:
            unchanged = np.zeros_like(transfers[0])
            savings = np.stack([unchanged if h.transfer is None else h.transfer for h in healings])
        # when each instance is through; the last one stands for none
        over = np.full((len(healings), self._count + 1), -np.inf)
        if self._rooted:  # when each rank is free for a communicator
            free = np.full((len(healings), self._rooted.count), -np.inf)
        for step in self._steps:
            service: Floats = step.service
            saved = savings[:, step.which] if transfers else None
            if saved is not None:
                service = np.maximum(service - saved, 0.0)
            # a rank arrives when its work is done, and it is no longer held up
            arrival = work[:, step.calls] + delay.take(self._before[step.calls], axis=1)
            # the collective ends when the last has arrived, the one before it is through, and its
            # transfer is done
            last = np.maximum.reduceat(arrival, step.starts, axis=1)
            end = np.maximum(last, over.take(step.before, axis=1))
            if len(step.queued):
                end[:, step.queued] = np.maximum(end[:, step.queued], over[:, step.behind])
            end += service
            ends = end
            if self._rooted:
                streams = self._rooted.streams[step.calls]
                began = np.maximum(arrival, free.take(streams, axis=1))
                ends = with_rooted(step.rooted, began, end, saved)
                free[:, streams] = ends.take(step.ends, axis=1)
            over[:, step.which] = end
            # that holds up the ranks whose intervals end with it
            if len(step.freed):
                before = delay.take(step.freed, axis=1)
                later = ends.take(step.freeing, axis=1) - held.take(step.freed, axis=1)
                after[:, step.freed] = before + np.maximum(later - before, 0.0)
        # from the begin of each rank's first window to the end of its last
        selected = self._windows.filter(pl.col("iteration").is_in(list(numbers)))
        spans = (
            selected.group_by("rank")
            .agg(pl.col("own_begin", "over_begin").min(), pl.col("own_end", "over_end").max())
            .sort("rank")
        )
        index = np.searchsorted(self._ranks, spans["rank"].to_numpy())
        own = np.zeros((len(self._ranks), 2))
        own[index] = spans.select("own_begin", "own_end").to_numpy()
        at = self._first[index, None] + spans.select("over_begin", "over_end").to_numpy()
        times: list[Lasted] = []
        for each, delayed in zip(cuts, delay, strict=True):
            moved = self._remaining([*own], each).reshape(-1, 2)[index] + delayed[at]
            # the order of a sum of rounded numbers matters
            lasted = np.cumsum(moved[:, 1] - moved[:, 0])[-1] / len(spans)
            times.append(Lasted(float(lasted), float(moved[:, 1].max())))
        return times

    def _cuts(self, saved: Floats | None) -> list[Floats | None]:
        """What `saved` (ns by row) takes out by each border; None: nothing.

        It takes what exceeds the usual first, and the rest from all work alike.
        """
        cuts: list[Floats | None] = []
        places = zip(self._rows, self._borders, self._counts, self._more, strict=True)
        for rows, borders, counts, more in places:
            amount = np.zeros(0) if saved is None else saved[rows]
            if not amount.any():
                cuts.append(None)
                continue
            last = np.cumsum(counts) - 1
            begin, most = borders[last - counts + 1], more[last]
            length = np.maximum(borders[last] - begin, 1.0)
            first = np.minimum(amount, most)
            each = (begin, 1 / length, first / np.maximum(most, 1.0), amount - first)
            started, per_ns, of_more, rest = (np.repeat(value, counts) for value in each)
            before = np.repeat(amount.cumsum() - amount, counts)
            cuts.append(before + of_more * more + rest * (borders - started) * per_ns)
        return cuts

    def _remaining(self, work: list[Floats], cuts: list[Floats | None]) -> Floats:
        """Own work of each rank less the cuts, interpolated between borders; ranks concatenated."""
        return np.concatenate(
            [
                own if cut is None else own - np.interp(own, border, cut)
                for own, border, cut in zip(work, self._borders, cuts, strict=True)
            ]
        )


def _borders(windows: Floats, calls: Floats) -> tuple[Floats, Numbers]:
    """The own work that a rank has done by the borders of its windows, and by the calls in each.

    Args:
        windows: that at the begin and end of each, in time order.
        calls: that at each call.

    Returns:
        It, window by window, and how many of these borders each window has.
    """
    calls = np.sort(calls)
    begin, end = windows.T
    low = np.searchsorted(calls, begin, side="left")
    high = np.maximum(np.searchsorted(calls, end, side="left"), low)
    counts = high - low + 2
    last = np.cumsum(counts)
    inner = np.repeat(low - (last - counts + 1), counts) + np.arange(counts.sum())
    borders = np.append(calls, 0.0)[np.clip(inner, 0, len(calls))]
    borders[last - counts], borders[last - 1] = begin, end
    return np.maximum.accumulate(borders), counts


def _instances(run: ReplayInput) -> tuple[Numbers, Flags, Numbers, Numbers]:
    """Of each instance: its group, whether it is rooted, its last arrival, and when it is through.

    It is through when its first member is; a rooted one, when its last member is.
    """
    count = int(run.instance.max(initial=-1)) + 1
    group, rooted = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    group[run.instance], rooted[run.instance] = run.group, run.rooted
    last, done = np.full(count, -NEVER), np.where(rooted, -NEVER, NEVER)
    np.maximum.at(last, run.instance, run.arrived)
    np.minimum.at(done, run.instance[~run.rooted], run.ended[~run.rooted])
    np.maximum.at(done, run.instance[run.rooted], run.ended[run.rooted])
    return group, rooted, last, done


def _queues(run: ReplayInput, done: Numbers) -> Numbers:
    """For each instance, the one that is through before it, among those called at the same moment.

    Collectives that a rank calls at the same moment share its links, or one waits for the other, so
    that they transfer one after the other. The last one counts. -1: no other instance, or a member
    has it first.
    """
    before = np.append(-1, run.instance[:-1]).astype(np.int64)
    together = np.abs(np.diff(run.arrived, prepend=0)) <= AFTER_END
    together &= ~np.append(False, run.eager[:-1])  # nobody waits for the end of such a send
    first = np.cumsum(run.counts) - run.counts
    together[first[run.counts > 0]] = False  # another rank's
    leads = ~together & np.append(together[1:], False)
    called, before = run.instance[together], before[together]
    by_end = np.argsort(done[before], kind="stable")
    behind = np.full(len(done), -1)
    behind[called[by_end]] = before[by_end]
    behind[run.instance[leads]] = -1
    return behind


def _levels(run: ReplayInput, count: int) -> Small:
    """For each of `count` instances a number that grows along the calls of each rank.

    What follows an eager send does not wait for its receiver.
    """
    level = np.zeros(count, dtype=np.int32)
    each_rank = np.cumsum(run.counts)[:-1]
    ranks = [*zip(np.split(run.instance, each_rank), np.split(~run.eager, each_rank), strict=True)]
    for _ in range(MOST_PASSES):
        grew = False
        for instance, waits in ranks:
            index = np.cumsum(waits, dtype=np.int32) - waits
            were = level[instance]
            before = np.maximum.accumulate(np.where(waits, were - index, -index[-1:] - 1))
            grown = np.maximum(were, np.append(np.int32(0), before[:-1] + index[1:]))
            grew = grew or bool((grown != were).any())
            level[instance] = grown
        if not grew:
            return level
    return _levels_by_call(run, count)


def _levels_by_call(run: ReplayInput, count: int) -> Small:
    """`_levels`, call by call, as of pipelines, whose ranks wait for each other by turns.

    Where the orders of ranks contradict each other, those that came to an instance first go on
    without the others.
    """
    calls = zip(run.instance.tolist(), run.eager.tolist(), strict=True)
    calls_of = [iter([*islice(calls, each)]) for each in run.counts.tolist()]
    missing = np.bincount(run.instance, minlength=count).tolist()
    level, least = [0] * count, [0] * len(calls_of)
    ready, waiting = [*range(len(calls_of))], dict[int, list[int]]()

    def go_on(instance: int) -> None:
        for rank in waiting.pop(instance, ()):
            least[rank] = level[instance] + 1
            ready.append(rank)

    while ready or waiting:
        if not ready:
            go_on(next(iter(waiting)))
        rank = ready.pop()
        for instance, is_eager in calls_of[rank]:
            level[instance] = max(level[instance], least[rank])
            missing[instance] -= 1
            if not is_eager:
                waiting.setdefault(instance, []).append(rank)
            if not missing[instance]:
                go_on(instance)
            if not is_eager:
                break
    return np.array(level, dtype=np.int32)
