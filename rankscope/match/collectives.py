"""Collectives matched across ranks: the calls of each instance. See METHOD.md#waits."""

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from rankscope.match.calls import INSTANCE, OWN, Calls
from rankscope.match.clocks import LEAST_INSTANCES, MOST_INSTANCES, Group, solve_clocks
from rankscope.match.communicators import ROOTED, STREAM, communicators, labelled
from rankscope.match.point_to_point import meetings
from rankscope.match.records import Clocks, Matching, MatchSummary
from rankscope.store.tables import narrowed
from rankscope.util.threads import threaded

REDUCING = pl.Schema(
    {
        "group": pl.Int64,
        "rank": pl.Int64,
        "bytes": pl.Int64,  # of all its calls; null where unknown
        "largest_bytes": pl.Int64,  # of one call
        "transfer_ns": pl.Int64,  # shortest durations, summed
    }
)
"""Columns of `Matched.reducing`: what a communicator does to reduce gradients."""


class Matched(Struct, frozen=True):
    """The matched collectives of a run; columns that calls share are stored once per instance.

    `rows`: rank, gradient, arrival_ns, end_ns, bytes (where any are known) and instance (counted
    from 0), sorted by group, rank and instance: a matrix of each group. `shared`: a row per
    instance, sorted: group (the communicator's set of members), operation, iteration, ordinal.
    `streams`: rank, place, communicator, label and group. `groups`: group, label and members (a
    count). `unmatched`: rank, label, operation, count and reason of calls that belong to no
    instance; `lost`: iteration and lasted_ns, from arrival to end, of those calls; `lacking`: rank
    and iteration where it has fewer calls of a communicator than another member. `senders`: group →
    who sends, where a group is a rank and another that receives from it.
    """

    rows: pl.DataFrame
    shared: pl.DataFrame
    streams: pl.DataFrame
    groups: pl.DataFrame
    unmatched: pl.DataFrame
    lost: pl.DataFrame
    lacking: pl.DataFrame
    clocks: Clocks
    senders: dict[int, int] = {}

    @property
    def summary(self) -> MatchSummary:
        """The summary, without the calls."""
        return MatchSummary(
            self.rows.height, self.shared["iteration"].n_unique(), self.unmatched, self.clocks
        )

    @property
    def reducing(self) -> pl.DataFrame:
        """The gradient reductions with the columns of REDUCING."""
        parts = [REDUCING.to_frame()]
        gradients = self.rows["gradient"]
        for group, members, _, rows in self.blocks():
            gradient = gradients[rows].to_numpy().reshape(members, -1)
            if not gradient.any():
                continue
            arrived, ended = (self.rows[name][rows].to_numpy() for name in ("arrival_ns", "end_ns"))
            shortest = (ended - arrived).reshape(members, -1).min(axis=0)
            part = self.rows[rows].lazy().filter("gradient")
            sizes = pl.lit(None) if "bytes" not in self.rows.columns else pl.col("bytes")
            known = part.group_by("rank").agg(
                bytes=pl.when(sizes.is_not_null().all()).then(sizes.sum()),
                largest_bytes=sizes.max(),
            )
            sums = pl.LazyFrame(
                {
                    "group": group,
                    "rank": self.ranks(rows, members),
                    "transfer_ns": np.where(gradient, shortest, 0).sum(axis=1),
                },
                schema_overrides={"rank": pl.Int32},
            )
            reducing = sums.join(known, on="rank").select(REDUCING.names()).collect()
            parts.append(reducing.cast(dict(REDUCING)))  # type: ignore[arg-type]
        return pl.concat(parts)

    def ranks(self, rows: slice, members: int) -> list[int]:
        """The members of a group, from the slice of its rows."""
        return self.rows["rank"][rows].gather_every((rows.stop - rows.start) // members).to_list()

    def blocks(self) -> Iterator[tuple[int, int, slice, slice]]:
        """Yield each group, its number of members, the slices of its instances and of its rows.

        A column of the rows has shape (members, instances).
        """
        return blocks_of(self.shared, self.groups)


def match(
    collectives: pl.DataFrame | Iterable[pl.DataFrame],
    utc_starts: dict[int, int | None],
    links: list[tuple[int, int]] | None = None,
    known: Matching | None = None,
    spans: dict[int, tuple[int, int]] | None = None,
) -> Matched:
    """Match instances by communicator, operation, iteration and ordinal.

    Args:
        collectives: COLLECTIVES of the selected iterations, some ranks at a time.
        utc_starts: rank → UTC of its report's time 0, None where unknown.
        links: pairs of ranks that send to each other, if given.
        known: the matching of all iterations, if these are some of them.
        spans: rank → first and last moment of its iterations on its own UTC, ns, if known.
    """
    calls = Calls(links or [])
    parts = [collectives] if isinstance(collectives, pl.DataFrame) else collectives
    for _ in threaded(calls.add, parts, threads=1):  # the next one is read meanwhile
        pass
    peers, own_streams = calls.peers(), labelled(calls.streams())
    if known is None:
        own_streams = communicators(own_streams, calls.middle, calls.pipelined)
        streams = own_streams
    else:
        streams = known.streams
        own_streams = own_streams.drop("label").join(streams, on=STREAM)
    groups = (
        streams.group_by("group")
        .agg(pl.col("label").first(), members=pl.col("rank").n_unique().cast(pl.Int64))
        .sort("group")
    )
    doubtful = {*streams.filter(~pl.col("sure"))["group"]} if known is None else set()
    group_streams = own_streams.group_by("group").agg(pl.col("stream").sort_by("rank"))
    rows, shared, unmatched, lost, lacking = calls.laid_out(
        group_streams.join(groups, on="group")
        .sort("group")
        .select("group", "members", "stream")
        .rows()
    )
    labels = groups.select("group", "label")
    streams = streams.select(*STREAM, "label", "group")
    senders: dict[int, int] = {}
    if peers is not None:
        rows, shared, streams, groups = _with_peers(rows, shared, streams, groups, peers)
        if "sender" in peers.columns:
            known_sides = peers.drop_nulls("sender").select("label", "sender").unique()
            of_label = dict(known_sides.iter_rows())
            senders = {
                group: of_label[label]
                for group, label in groups.select("group", "label").iter_rows()
                if label in of_label
            }
    matched = Matched(
        rows,
        shared,
        streams,
        groups,
        unmatched.join(labels, on="group")
        .group_by("rank", "label", "operation", "reason")
        .agg(pl.col("count").sum())
        .sort("rank", "label", "operation", "reason"),
        lost,
        lacking.unique(),
        Clocks({}, 0, "none") if known is None else known.clocks,
        senders,
    )
    if known is None:
        ends = _ends(matched, utc_starts, doubtful)
        if peers is not None and senders:
            ends += _meeting(meetings(peers), utc_starts)
        clocks = solve_clocks(ends, min(utc_starts, default=0), spans)
        matched = replace(matched, clocks=clocks)
    return _without_untied(matched)


def _without_untied(matched: Matched) -> Matched:
    """The instances less rooted ones that stay unsplit.

    They are those of members whose clocks are not tied, or that have no other call in common.
    """
    dropped = matched.shared["operation"].is_in([ROOTED]).to_numpy().copy()
    tied = matched.clocks.fits.keys()
    for _, members, where, rows in matched.blocks() if dropped.any() else ():
        kept = tied >= {*matched.ranks(rows, members)} and not dropped[where].all()
        dropped[where] &= not kept
    if not dropped.any():
        return matched
    instance = matched.rows["instance"].to_numpy()
    iteration = matched.shared["iteration"].gather(instance)
    lost = matched.rows.select(iteration, lasted_ns=pl.col("end_ns") - pl.col("arrival_ns"))
    lost = lost.filter(dropped[instance])
    number = np.cumsum(~dropped, dtype=np.int32) - 1
    return replace(
        matched,
        rows=matched.rows.with_columns(instance=number[instance]).filter(~dropped[instance]),
        shared=matched.shared.filter(~dropped),
        lost=pl.concat([matched.lost, lost.group_by("iteration").agg(pl.col("lasted_ns").sum())]),
    )


def joined(
    rows: pl.DataFrame,
    shared: pl.DataFrame,
    streams: pl.DataFrame,
    iterations: Collection[int] | None = None,
) -> pl.DataFrame:
    """Calls with their shared columns, place and communicator: COLLECTIVES in narrow columns.

    Args:
        rows: `Matched.rows`, or a superset.
        shared: `Matched.shared`, or a superset.
        streams: `Matched.streams`.
        iterations: only calls in these.
    """
    if iterations is not None:
        wanted = shared["iteration"].is_in(list(iterations))
        rows = rows.filter(wanted.gather(rows["instance"]))
    if "bytes" not in rows.columns:
        rows = rows.with_columns(bytes=pl.lit(None, pl.Int64))
    named = narrowed(streams).select(
        "rank", pl.col("group").cast(pl.Int32), "place", "communicator"
    )
    return pl.concat([rows, shared[rows["instance"]]], how="horizontal").join(
        named, on=["rank", "group"], how="left", maintain_order="left"
    )


def blocks_of(
    shared: pl.DataFrame, groups: pl.DataFrame
) -> Iterator[tuple[int, int, slice, slice]]:
    """`Matched.blocks` of these instances and groups."""
    members = dict(groups.select("group", "members").iter_rows())
    stop = 0
    for group, where in slices(shared["group"].to_numpy()):
        first, stop = stop, stop + members[group] * (where.stop - where.start)
        yield group, members[group], where, slice(first, stop)


def slices(groups: NDArray[np.int32]) -> list[tuple[int, slice]]:
    """Each group with the slice of its rows, which are adjacent."""
    edges = [0, *(np.flatnonzero(np.diff(groups)) + 1), len(groups)]
    return [
        (int(groups[low]), slice(int(low), int(high)))
        for low, high in pairwise(edges)
        if high > low
    ]


def _with_peers(
    rows: pl.DataFrame,
    shared: pl.DataFrame,
    streams: pl.DataFrame,
    groups: pl.DataFrame,
    peers: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The instances plus the paired transfers, which become groups and instances of their own."""
    first_free = int(shared["group"].max()) + 1 if shared.height else 0  # type: ignore[arg-type]
    peers = peers.with_columns(pl.col("group") + first_free)
    labels = peers.group_by("group").agg(pl.col("label", "members").first()).sort("group")
    narrow = narrowed(peers).with_columns(pl.col("group").cast(pl.Int32))
    instances = narrow.select(INSTANCE).unique().sort(INSTANCE)
    more = narrow.join(
        instances.with_columns(
            instance=pl.int_range(shared.height, shared.height + pl.len(), dtype=pl.Int32)
        ),
        on=INSTANCE,
    ).sort("group", "rank", "instance")
    pairs = peers.select(streams.columns).unique(["rank", "group"])
    pairs = pairs.cast(dict(streams.schema))  # type: ignore[arg-type]
    # groups without a complete instance may have higher numbers than the others
    known = pl.col("group") < first_free
    return (
        pl.concat([rows, more.select(*OWN, "instance")], how="diagonal"),
        pl.concat([shared, instances]),
        pl.concat([streams.filter(known), pairs]),
        pl.concat([groups.filter(known), labels]),
    )


def _meeting(meetings: pl.DataFrame, utc_starts: dict[int, int | None]) -> list[Group]:
    """`point_to_point.meetings` of each two ranks."""
    return [
        Group(
            pair,
            part.select("own_ns", "other_ns").to_numpy(),
            tuple(utc_starts.get(each) or 0 for each in pair),
            float(part["error_ns"].median()),  # type: ignore[arg-type]
        )
        for pair, part in meetings.partition_by("one", "other", as_dict=True).items()
    ]


def _ends(matched: Matched, utc_starts: dict[int, int | None], doubtful: set[int]) -> list[Group]:
    """The ends of each group's instances.

    Of groups whose members are `doubtful`, a few instances would not show that they are no
    members: those are left out. A sender and its receiver do not end together.
    """
    end = matched.rows["end_ns"].to_numpy()
    rooted = matched.shared["operation"].is_in([ROOTED]).to_numpy()
    group_ends = []
    for group, members, where, rows in matched.blocks():
        if group in matched.senders:
            continue
        ranks = tuple(matched.ranks(rows, members))
        ends = end[rows].reshape(members, -1)[:, ~rooted[where]]
        if group in doubtful and ends.shape[1] < LEAST_INSTANCES:
            continue
        ends = ends[:, :: max(1, ends.shape[1] // MOST_INSTANCES)]
        if (np.diff(ends[0]) < 0).any():
            ends = ends[:, ends[0].argsort(kind="stable")]
        starts = tuple(utc_starts.get(each) or 0 for each in ranks)
        group_ends.append(Group(ranks, ends.T, starts))
    return group_ends
