"""Who waits for whom, by duration and by arrival. See METHOD.md#waits."""

from collections.abc import Collection
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from rankscope.match.clocks import Aligner, medians
from rankscope.match.collectives import Matched, blocks_of, joined
from rankscope.match.communicators import ROOTED
from rankscope.model.intervals import Flags, Floats, Times, length_before
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.util.numbers import ROBUST
from rankscope.util.threads import threaded

NOBODY = -1
"""Placeholder for the rank that came last, where none clearly did."""

GROUPS = pl.Schema(
    {
        "group": pl.Int64,
        "label": pl.String,
        "members": pl.Int64,
        "ends_error_ns": pl.Int64,
        "clock_error_ns": pl.Int64,
        "apart_ns": pl.Int64,
        "shown": pl.String,
    }
)
"""Columns of `WaitedCollectives.groups`."""


class WaitedCollectives(Struct, frozen=True):
    """Matched instances with the wait of each rank.

    `rows`: those of `Matched` with wait. `shared`: that of `Matched` with transfer (of the split
    that is shown for the group) and last (the rank that came last; null where the two last came
    closer than the split's error). `streams`: that of `Matched`.

    `groups`: group, label, members, ends_error_ns (how far the ends of its members scatter, which
    is the error of waits by duration; null for a sender and a receiver), clock_error_ns (the
    largest residual of its members, that of waits by arrival; null where one is not tied), apart_ns
    (median difference of both), shown (`duration` or `arrival`, whichever errs less).
    """

    rows: pl.DataFrame
    shared: pl.DataFrame
    streams: pl.DataFrame
    groups: pl.DataFrame

    def part(self, iterations: Collection[int]) -> pl.DataFrame:
        """The calls in some iterations, with all their columns."""
        return joined(self.rows, self.shared, self.streams, iterations)


def with_waits(
    matched: Matched, utc_starts: dict[int, int | None], known: pl.DataFrame | None = None
) -> WaitedCollectives:
    """The instances with the split that errs less.

    With a the arrival, e the end and D = e - a: by duration a rank waits D less the shortest D
    of the instance, which is the transfer; by arrival, on aligned clocks, it waits until the
    last a, and the transfer lasts from there to the last e. No transfer begins before the
    communicator's call before it is through on each rank. Rooted calls are always split by
    arrival: each rank waits until the last a that is not after its own e, and the transfer also
    begins no sooner than the communicator's call before it is through.

    Args:
        matched: the instances.
        utc_starts: rank → UTC of its report's time 0.
        known: `WaitedCollectives.groups` of all iterations, if these are some of them.
    """
    wait = np.empty(matched.rows.height, dtype=np.int64)
    transfer = np.empty(matched.shared.height, dtype=np.int64)
    last = np.empty(matched.shared.height, dtype=np.int32)
    labels = dict(matched.groups.select("group", "label").iter_rows())
    fixed = {} if known is None else {each[0]: each for each in known.iter_rows()}
    is_rooted = matched.shared["operation"].is_in([ROOTED]).to_numpy()

    def split_block(block: tuple[int, int, slice, slice]) -> tuple[object, ...]:
        group, members, where, rows = block
        both = matched.rows[rows].select("rank", "arrival_ns", "end_ns")
        ranks = np.array(matched.ranks(rows, members), dtype=np.int32)
        rooted, everything = is_rooted[where], both
        if rooted.any():
            both = everything.filter(np.tile(~rooted, members))
        waits, shortest = by_duration(both, members)
        if group in fixed:
            *_, ends_error, clock_error, apart, shown = fixed[group]
        else:
            ends_error, clock_error = _errors(matched, both, ranks, utc_starts)
            if one_sided := group in matched.senders and clock_error is not None:
                ends_error = None  # its members do not end together
            sure = clock_error is not None and ends_error is not None and clock_error < ends_error
            shown, apart = "arrival" if sure or one_sided else "duration", None
        if shown == "arrival" or (clock_error is not None and group not in fixed):
            late = by_arrival(matched, both, members, utc_starts)
            if group not in fixed and ends_error is not None:
                apart = round(float(medians(np.abs(waits - late).reshape(1, -1))[0]))
            waits = late if shown == "arrival" else waits
            if group in matched.senders:
                waits = _where_held(waits, both)
            del late
        lasting = _lasting(matched, both, members, utc_starts) if shown == "arrival" else shortest
        if group not in matched.senders:
            lasting = np.minimum(lasting, _apart(both, members))
        error = (clock_error if shown == "arrival" else ends_error) or 0
        came_last = _last(waits, ranks, error)
        if rooted.any():
            late, *own = _rooted_split(matched, everything, rooted, members, utc_starts)
            waits, lasting = _spread(rooted, waits, own[0]), _spread(rooted, lasting, own[1])
            came_last = _spread(rooted, came_last, _last(late, ranks, clock_error or 0))
        wait[rows], transfer[where] = waits.ravel(), lasting
        # who is late to a transfer of a pipeline may be so for having waited for the stage before
        chained = str(matched.shared["operation"][where.start]) == POINT_TO_POINT
        last[where] = NOBODY if chained else came_last
        return group, labels[group], members, ends_error, clock_error, apart, shown

    groups = [*threaded(split_block, matched.blocks())]
    names = pl.Series(last, dtype=pl.Int32)
    return WaitedCollectives(
        matched.rows.with_columns(wait=pl.Series(wait, dtype=pl.Int64)),
        matched.shared.with_columns(
            transfer=pl.Series(transfer, dtype=pl.Int64), last=names.set(names == NOBODY, None)
        ),
        matched.streams,
        pl.DataFrame(groups, schema=GROUPS, orient="row"),
    )


def _where_held(waits: Times, rows: pl.DataFrame) -> Times:
    """The waits of a send and receive: who left before the other came did not wait for it."""
    lasted = (rows["end_ns"] - rows["arrival_ns"]).to_numpy().reshape(waits.shape)
    return np.where(lasted < waits, 0, waits)


def _errors(
    matched: Matched,
    rows: pl.DataFrame,
    ranks: NDArray[np.int32],
    utc_starts: dict[int, int | None],
) -> tuple[int | None, int | None]:
    """The errors of both splits; None where a member's clock is not tied to the others'."""
    spreads = [matched.clocks.fits[rank].spread_ns for rank in ranks if rank in matched.clocks.fits]
    if len(spreads) < len(ranks):
        return None, None
    ended = _moments(matched, rows, "end_ns", len(ranks), utc_starts)
    scatter = np.abs(ended - medians(np.ascontiguousarray(ended.T)))
    return round(ROBUST * float(medians(scatter.reshape(1, -1))[0])), max(spreads)


def _apart(rows: pl.DataFrame, members: int) -> Times:
    """How long each instance ends after the communicator's call before it; the shortest of all.

    Calls of a communicator are carried out one after the other.
    """
    ended = rows["end_ns"].to_numpy().reshape(members, -1)
    order = np.argsort(ended[0], kind="stable")
    apart: Times = np.full(ended.shape[1], np.iinfo(np.int64).max)
    for own in ended:  # there is no room for another table of all calls
        apart[order[1:]] = np.minimum(apart[order[1:]], np.diff(own[order]))
    return np.maximum(apart, 0)


def _lasting(
    matched: Matched, rows: pl.DataFrame, members: int, utc_starts: dict[int, int | None]
) -> Times:
    """The time from the last arrival to the last end of each instance."""
    ended = _moments(matched, rows, "end_ns", members, utc_starts).max(axis=0)
    arrived = _moments(matched, rows, "arrival_ns", members, utc_starts).max(axis=0)
    return np.asarray(np.maximum(ended - arrived, 0), dtype=np.int64)


def _moments(
    matched: Matched,
    rows: pl.DataFrame,
    column: str,
    members: int,
    utc_starts: dict[int, int | None],
) -> Times:
    """Aligned times; shape (members, instances)."""
    ranks = rows["rank"].gather_every(max(rows.height // members, 1)).to_list()
    times = rows[column].to_numpy().reshape(members, -1)
    return Aligner(matched.clocks, utc_starts).many(ranks, times)


def by_duration(rows: pl.DataFrame, members: int) -> tuple[Times, Times]:
    """The duration of each call above the shortest of its instance, and the shortest ones."""
    waits = (rows["end_ns"].to_numpy() - rows["arrival_ns"].to_numpy()).reshape(members, -1)
    shortest = waits.min(axis=0)
    waits -= shortest
    return waits, shortest


def by_arrival(
    matched: Matched, rows: pl.DataFrame, members: int, utc_starts: dict[int, int | None]
) -> Times:
    """The time from each arrival to the last arrival of the instance."""
    arrived = _moments(matched, rows, "arrival_ns", members, utc_starts)
    return np.asarray(arrived.max(axis=0) - arrived, dtype=np.int64)


def _rooted_split(
    matched: Matched,
    rows: pl.DataFrame,
    rooted: Flags,
    members: int,
    utc_starts: dict[int, int | None],
) -> tuple[Times, Times, Times]:
    """How late the last rank came for each, each rank's wait, and the transfers, of rooted calls.

    Args:
        matched: the instances.
        rows: all calls of a communicator.
        rooted: which of its instances are rooted.
        members: how many it has.
        utc_starts: rank → UTC of its report's time 0.
    """
    arrived, ended = (
        _moments(matched, rows, name, members, utc_starts) for name in ("arrival_ns", "end_ns")
    )
    through = ended.max(axis=0)
    order = np.argsort(through)
    before = np.full_like(through, np.iinfo(np.int64).min)
    before[order[1:]] = through[order[:-1]]
    arrived, ended = arrived[:, rooted], ended[:, rooted]
    count = arrived_by(arrived, np.maximum(ended, arrived))
    wait = np.take_along_axis(np.sort(arrived, axis=0), count - 1, axis=0) - arrived
    last = arrived.max(axis=0)
    lasting = np.maximum(through[rooted] - np.maximum(last, before[rooted]), 0)
    return last - arrived, wait, lasting


def arrived_by(arrived: Times, moments: Times) -> Times:
    """How many members of each instance have arrived by each moment; a row is a member."""
    order = np.argsort(np.concatenate((arrived, moments)), axis=0, kind="stable")
    count = np.empty_like(order)
    np.put_along_axis(count, order, np.cumsum(order < len(arrived), axis=0), axis=0)
    return count[len(arrived) :]


def _spread(rooted: Flags, others: NDArray[Any], of_rooted: NDArray[Any]) -> NDArray[Any]:
    """Values of all instances, from those of the rooted ones and of the others."""
    values = np.empty((*others.shape[:-1], len(rooted)), dtype=others.dtype)
    values[..., ~rooted], values[..., rooted] = others, of_rooted
    return values


def _last(wait: Times, ranks: NDArray[np.int32], error: int) -> NDArray[np.int32]:
    """Who came last to each instance; NOBODY where the two last came too close to tell."""
    least, second = wait[0], np.full(wait.shape[1], np.iinfo(np.int64).max)
    last = np.zeros(wait.shape[1], dtype=np.int64)
    for member in range(1, len(wait)):
        second = np.minimum(second, np.maximum(least, wait[member]))
        last[wait[member] < least] = member
        least = np.minimum(least, wait[member])
    return np.where(second - least > error, ranks[last], NOBODY).astype(np.int32)


def own_spans(waited: WaitedCollectives, ranks: list[int], exposed: pl.DataFrame) -> Floats | None:
    """Work of each rank from the end of one collective to its arrival at the next, ns.

    It is measured on each rank's own clock, so that clocks need not be aligned, between the calls
    of one communicator: of those with all ranks, the one with most calls. The time before its first
    call in an iteration is left out. Other calls in between, matched or not, are no work: a rank
    may wait in them.

    Args:
        waited: the instances.
        ranks: all ranks, ascending.
        exposed: their exposed communication: rank, start_ns and end_ns.

    Returns:
        rank by span; None where no communicator holds all ranks, or it has no two calls.
    """
    best: Floats | None = None
    blocked = exposed.sort("rank", "start_ns").partition_by("rank", as_dict=True)
    blocked_by_nothing = exposed.clear()
    is_rooted = waited.shared["operation"].is_in([ROOTED]).to_numpy()
    for _, members, where, rows in blocks_of(waited.shared, waited.groups):
        if members != len(ranks):
            continue
        arrivals = waited.rows[rows].select("rank", "arrival_ns")
        shape = (members, where.stop - where.start)
        together = ~is_rooted[where]
        rank, arrival = (
            arrivals[name].to_numpy().reshape(shape)[:, together] for name in arrivals.columns
        )
        first = np.argsort(arrival[0], kind="stable")  # all ranks call in the same order
        arrival = arrival[:, first]
        same = np.diff(waited.shared["iteration"][where].to_numpy()[together][first]) == 0
        spans = np.stack(
            [
                _worked(begin, until, blocked.get((each,), blocked_by_nothing))
                for each, begin, until in zip(
                    rank[:, 0].tolist(), arrival[:, :-1], arrival[:, 1:], strict=True
                )
            ]
        )[:, same]
        if spans.size and (best is None or spans.shape[1] > best.shape[1]):
            best = spans[np.argsort(rank[:, 0])]
    return best


def _worked(begin: Times, until: Times, blocked: pl.DataFrame) -> Floats:
    """The time from `begin` to `until` that lies in no interval of `blocked`; at least 0."""
    until = np.maximum(begin, until)
    start, end = (blocked[name].to_numpy() for name in ("start_ns", "end_ns"))
    lost = length_before(start, end, until) - length_before(start, end, begin)
    return np.asarray(until - begin - lost, dtype=np.float64)
