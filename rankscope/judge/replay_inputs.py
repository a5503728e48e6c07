"""The own work of each rank, and the intervals that blocked it: the input of a replay.

See METHOD.md#verdict.
"""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.judge.replay_sends import with_sends
from rankscope.match.clocks import Aligner, aligned
from rankscope.match.communication import RunCalls, exposed
from rankscope.match.communicators import ROOTED
from rankscope.match.rank_axis import RankAxis
from rankscope.match.records import Scope, Selection, all_tied
from rankscope.match.wait_sums import rank_chunks
from rankscope.model.intervals import Flags, Floats, length_before
from rankscope.util.numbers import NEVER

Numbers = NDArray[np.int64]
Small = NDArray[np.int32]

UNMATCHED = 0.01
"""A run is replayed if calls that were not matched take at most this share of its time."""

AFTER_END = 20_000
"""Most ns between the end of a collective and the start of the work that waited for it."""

BEFORE_END = 3_000
"""Most ns by which an interval that a collective ended may stop before the end measured for it."""


class RankChunk(NamedTuple):
    """Some ranks of a run, ascending.

    `calls`: rank, group, instance, arrival_ns and end_ns as `waits.with_waits` gives them, rooted
    (whether a member may go before all have come), eager (as `with_sends` gives it) and unsure
    (whether it may also wait for earlier calls of others), of iterations that follow each other,
    all on clocks that are tied together. `exposed`: their exposed communication: rank, start_ns,
    end_ns.
    """

    ranks: list[int]
    calls: pl.DataFrame
    exposed: pl.DataFrame


ReplayParts = tuple[Iterator[RankChunk], pl.DataFrame, Aligner]
"""The arguments of a `Replay`."""


class ReplayInput(NamedTuple):
    """Calls of some ranks, and the intervals that blocked them, rank by rank in time order."""

    counts: Numbers  # calls of each rank
    blocked: Numbers  # intervals of each rank
    instance: Small  # of each call
    group: Small
    rooted: Flags
    eager: Flags
    unsure: Flags
    arrived: Numbers  # aligned
    ended: Numbers
    work: Floats  # own work done before its arrival
    over: Small  # intervals of its rank that are over by then
    ends: Small  # which interval of its rank its end ended; -1: none
    held: Floats  # own work done before each interval


def replay_parts(
    scope: Scope,
    calls: RunCalls,
    table: pl.DataFrame,
    iterations: Collection[int] | None = None,
) -> ReplayParts | None:
    """The input of a run's replay; None if the run cannot be replayed.

    Memory has no room for both the calls and the replay. The chunks hold the columns that the
    replay needs, until the last one is read: release the calls before that.

    Args:
        scope: what is compared.
        calls: of the iterations to play, or of more.
        table: rank and iteration of the iterations to play.
        iterations: those of them that are played; None: all that are in range.
    """
    iterations = scope.in_range if iterations is None else iterations
    matched, waited = calls.matched, calls.waited
    rows, shared, clocks = waited.rows, waited.shared, matched.clocks
    if iterations is not None:
        rows = rows.filter(shared["iteration"].is_in([*iterations]).gather(rows["instance"]))
        table = table.filter(pl.col("iteration").is_in([*iterations]))
    if not all_tied(clocks, scope.tables) or rows.is_empty():
        return None
    columns = ("rank", "iteration", "window_start_ns", "iteration_ns")
    measures = scope.tables.read("measures", columns, iterations=iterations, clock=scope.clock)
    chosen = scope.choice.numbers if isinstance(scope.choice, Selection) else ()
    unknown = measures.filter(pl.col("iteration_ns").is_null())["iteration"]
    if chosen and unknown.is_between(chosen[0], chosen[-1]).any():
        return None  # the time in between would be played as it was not
    took = measures.select(pl.col("iteration_ns").sum()).item()
    is_played = pl.col("iteration").is_in(measures["iteration"].unique().implode())
    # a replay would keep the length of these calls, also where they wait for another rank
    if matched.lost.filter(is_played)["lasted_ns"].sum() > UNMATCHED * took:
        return None
    windows = (
        measures.drop_nulls("window_start_ns")
        .join(table, on=["rank", "iteration"], how="semi")
        .with_columns(end_ns=pl.col("window_start_ns") + pl.col("iteration_ns"))
        .select(
            "rank",
            "iteration",
            begin=aligned(clocks, "window_start_ns", scope.utc_starts),
            end=aligned(clocks, "end_ns", scope.utc_starts),
        )
    )
    if windows.is_empty():
        return None
    chunks = rank_chunks(windows["rank"], rows["rank"].value_counts())
    aligner, senders = Aligner(clocks, scope.utc_starts), matched.senders
    slim = rows.select("rank", "instance", "arrival_ns", "end_ns")
    slim = with_sends(slim, shared["group"][slim["instance"]], senders, aligner)
    rooted = pl.col("operation").is_in([ROOTED]) | pl.col("group").is_in([*senders])
    shared = shared.select("group", "operation").select("group", rooted=rooted)

    def chunk(ranks: list[int]) -> RankChunk:
        own = slim.lazy().filter(pl.col("rank").is_in(ranks)).collect()
        receives = pl.col("group").is_in([*senders]) & ~pl.col("sends")
        own = own.hstack(shared[own["instance"]]).with_columns(unsure=pl.col("rooted") & ~receives)
        return RankChunk(ranks, own, exposed(scope, ranks, iterations))

    return map(chunk, chunks), windows, aligner


def chunk_input(
    chunk: RankChunk, windows: pl.DataFrame, aligner: Aligner
) -> tuple[ReplayInput, pl.DataFrame]:
    """The input of a replay of some ranks.

    Args:
        chunk: their calls, and what was exposed.
        windows: those of these ranks: rank, begin and end (aligned), by rank.
        aligner: brings the times of a rank's own axis to the one clock.

    Returns:
        The input, and for each border of the windows the own work done (`own_begin`, `own_end`) and
        the intervals of its rank that are over (`over_begin`, `over_end`).
    """
    window_rank, begin, end = _columns(windows, "rank", "begin", "end")
    interval_rank, start_ns, stop_ns = _columns(chunk.exposed, "rank", "start_ns", "end_ns")
    rooted, eager, unsure, *columns = _columns(
        chunk.calls,
        "rooted",
        "eager",
        "unsure",
        "rank",
        "instance",
        "group",
        "arrival_ns",
        "end_ns",
    )
    # all ranks on one axis, so that each step is one pass over all of them
    arrived, ended = (aligner.each(columns[0], times) for times in columns[3:])
    start, stop = aligner.each(interval_rank, start_ns), aligner.each(interval_rank, stop_ns)
    axis = RankAxis(
        (columns[0], arrived, arrived),
        (columns[0], ended, ended),
        (interval_rank, start, stop),
        (window_rank, begin, end),
    )
    # by rank and end; what follows a send that goes alone may be over before it
    over_by = np.where(eager, arrived, ended)
    order = np.lexsort((arrived, axis.shift(columns[0], over_by)))
    rank, instance, group, _, end_ns = (each[order] for each in columns)
    arrived, ended, eager = arrived[order], ended[order], eager[order]
    # a rank's own clock tells to the microsecond which call freed it
    apart = AFTER_END + BEFORE_END  # no call frees another rank
    own_axis = RankAxis((rank, end_ns, end_ns), (interval_rank, start_ns, stop_ns), apart=apart)
    start, stop = axis.shift(interval_rank, start), axis.shift(interval_rank, stop)
    freeing = np.flatnonzero(~eager)
    interval, call = _freed(
        own_axis.shift(rank, end_ns)[freeing], start, stop, own_axis.shift(interval_rank, stop_ns)
    )
    call = freeing[call]
    low, high = start[interval], stop[interval]
    # own work is the time outside these intervals
    ranks = np.array(chunk.ranks)
    counts, blocked = (
        np.bincount(np.searchsorted(ranks, each), minlength=len(ranks))
        for each in (rank, rank[call])
    )
    earlier = np.cumsum(blocked) - blocked  # intervals of the ranks before it
    blocked_before = length_before(low, high, axis.begins(ranks))

    def own_work(of: Numbers, moments: Numbers) -> Numbers:
        done = axis.shift_back(of, moments - length_before(low, high, moments))
        return done + blocked_before[np.searchsorted(ranks, of)]

    def over(of: Numbers, moments: Numbers) -> Numbers:
        return np.searchsorted(high, moments, side="right") - earlier[np.searchsorted(ranks, of)]

    arrivals = axis.shift(rank, arrived)
    ends = np.full(len(rank), -1, dtype=np.int32)
    ends[call] = np.arange(len(low)) - np.repeat(earlier, blocked)
    prepared = ReplayInput(
        counts=counts,
        blocked=blocked,
        instance=instance.astype(np.int32),
        group=group.astype(np.int32),
        rooted=rooted[order],
        eager=eager,
        unsure=unsure[order],
        arrived=arrived,
        ended=ended,
        work=own_work(rank, arrivals).astype(np.float64),
        over=over(rank, arrivals).astype(np.int32),
        ends=ends,
        held=own_work(rank[call], low).astype(np.float64),
    )
    at_borders = {"begin": axis.shift(window_rank, begin), "end": axis.shift(window_rank, end)}
    borders = {f"own_{name}": own_work(window_rank, at) for name, at in at_borders.items()}
    borders |= {f"over_{name}": over(window_rank, at) for name, at in at_borders.items()}
    return prepared, pl.DataFrame(borders)


def _freed(
    ends: Numbers, began: Numbers, stopped: Numbers, stops: Numbers
) -> tuple[Numbers, Numbers]:
    """The intervals of exposed communication that ended with a call, and that call, in time order.

    Work that waited for a collective starts shortly after its end. So an interval was ended by the
    last call that ended before its stop, at most AFTER_END earlier; a collective that nobody waited
    for may end soon after. Measured ends scatter, so the call may also end up to BEFORE_END later.

    Args:
        ends: of the calls, on the rank's own axis. Those of several ranks lie far enough apart.
        began: aligned starts of the intervals.
        stopped: their aligned ends.
        stops: their ends on the rank's own axis.
    """
    # the last call that ended before each interval stopped, and the first one after it
    order = np.argsort(ends, kind="stable")
    ordered = np.append(ends[order], NEVER)
    after = np.searchsorted(ordered[:-1], stops, side="right")
    before = np.maximum(after - 1, 0)
    # the former if it ended during the interval and shortly before its stop, else the latter
    starts = stops - (stopped - began)
    ended_before = (after > 0) & (stops - ordered[before] <= AFTER_END) & (starts < ordered[before])
    ended_after = ~ended_before & (ordered[after] - stops <= BEFORE_END)
    choice, interval = (
        np.where(ended_before, before, after),
        np.flatnonzero(ended_before | ended_after),
    )
    call = order[choice[interval]]
    # of several intervals near the end of a call, it ended the nearest
    nearest = np.lexsort((np.abs(stops[interval] - ends[call]), call))
    nearest = nearest[np.diff(call[nearest], prepend=-1) > 0]
    by_start = nearest[np.argsort(began[interval[nearest]], kind="stable")]
    return interval[by_start], call[by_start]


def _columns(frame: pl.DataFrame, *names: str) -> list[NDArray[Any]]:
    return [frame[name].to_numpy() for name in names]
