"""Collectives across ranks: which calls are one instance, and who takes part."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.align.calls import INSTANCE, OWN, Calls, together
from rankscope.align.clocks import ClockFit, Clocks, Group, solve_clocks
from rankscope.align.communicators import STREAM, communicators
from rankscope.store.tables import narrowed

EQUAL_SIZES = ("all_reduce", "all_gather", "reduce_scatter")
"""Operations whose message is equally large on all participants."""

REASONS = ("no partner", "some members lack it", "message sizes differ")
"""Why a call fits no instance."""


@dataclass(frozen=True, slots=True)
class MatchSummary:
    """What became of a run's collectives: calls that were matched, and as in `Matched`."""

    calls: int
    unmatched: pl.DataFrame
    solved: Clocks


@dataclass(frozen=True, slots=True)
class ReusedMatching:
    """What comparing all iterations of a run told, for matching some of them alike.

    `streams` as in `Matched`, `groups` as in `waits.Timed`.
    """

    streams: pl.DataFrame
    groups: pl.DataFrame
    solved: Clocks


@dataclass(frozen=True, slots=True)
class Matched:
    """Collectives of a run, matched: of each call only what it does not share with others.

    `rows`: rank, gradient, arrival_ns, end_ns, bytes (where some are known) and instance (counted
    from 0; the rows of one stand together, by rank). `shared`: a row per instance, in that order,
    with group (of its communicator; a group is a set of members), operation, iteration, ordinal.
    `streams`: rank, place, communicator, label and group. `groups`: group, label and members (how
    many). `unmatched`: rank, label, operation, count and reason of those that fit no instance.
    `sent`: iteration and calls, how many transfers between two ranks have, paired or not.
    """

    rows: pl.DataFrame
    shared: pl.DataFrame
    streams: pl.DataFrame
    groups: pl.DataFrame
    unmatched: pl.DataFrame
    sent: pl.DataFrame
    solved: Clocks

    @property
    def instances(self) -> pl.DataFrame:
        """Every call with all that is known of it."""
        return joined(self.rows, self.shared, self.streams)

    @property
    def met(self) -> MatchSummary:
        """What became of the collectives, without them."""
        return MatchSummary(self.rows.height, self.unmatched, self.solved)

    @property
    def clocks(self) -> dict[int, ClockFit]:
        """rank → its clock against the lowest rank's, of the ranks that are tied to it."""
        return self.solved.fits

    @property
    def reducing(self) -> pl.DataFrame:
        """group and rank of those that reduce gradients."""
        some = self.rows.lazy().filter("gradient").select("instance", "rank").collect()
        group = self.shared["group"].gather(some["instance"])
        return some.select(group, "rank").unique().cast(pl.Int64)

    def blocks(self) -> Iterator[tuple[int, int, slice, slice]]:
        """Each group with its members, and where its instances and its rows stand."""
        members = dict(self.groups.select("group", "members").iter_rows())
        after = 0
        for group, where in slices(self.shared["group"].to_numpy()):
            before, after = after, after + members[group] * (where.stop - where.start)
            yield group, members[group], where, slice(before, after)


def match(
    collectives: pl.DataFrame | Iterable[pl.DataFrame],
    utc_starts: dict[int, int | None],
    links: list[tuple[int, int]] | None = None,
    known: ReusedMatching | None = None,
) -> Matched:
    """Match instances by communicator, operation, iteration and ordinal.

    Args:
        collectives: COLLECTIVES of the chosen iterations; of many ranks those of some at a time.
        utc_starts: rank → UTC of its report's time 0, None where unknown.
        links: pairs of ranks that send to each other, where known.
        known: what all iterations told, where these are some of them.
    """
    found = Calls(links or [])
    for part in [collectives] if isinstance(collectives, pl.DataFrame) else collectives:
        found.add(part)
    peers, own, sent, calls = found.peers(), found.streams(), found.sent(), found.taken()
    if known is None:
        own = communicators(own, calls, found.pipelined)
        streams = own
    else:
        streams = known.streams
        own = own.drop("label").join(streams, on=STREAM)
    groups = (
        streams.group_by("group")
        .agg(pl.col("label").first(), members=pl.col("rank").n_unique().cast(pl.Int64))
        .sort("group")
    )
    columns = {column.name: column.rechunk() for column in calls.get_columns()}
    del calls
    of = own.sort("stream").select(pl.col("group", "rank").cast(pl.Int32))
    columns |= {name: of[name].gather(columns["stream"]) for name in of.columns}
    del columns["stream"]
    rows, shared, size = together(columns)
    reason = _reasons(rows, shared, size, groups)
    unmatched = _unmatched(rows, shared, size, reason).join(groups, on="group")
    fits = reason < 0
    if not fits.all():
        rows = rows.filter(pl.Series(np.repeat(fits, size)))
        shared, size = shared.filter(pl.Series(fits)), size[fits]
    streams = streams.select(*STREAM, "label", "group")
    if peers is not None:
        rows, shared, size, streams, groups = _with_peers(
            rows, shared, size, streams, groups, peers
        )
    number = np.repeat(np.arange(len(size), dtype=np.int32), size)
    matched = Matched(
        rows.with_columns(instance=pl.Series(number, dtype=pl.Int32)),
        shared,
        streams,
        groups,
        unmatched.group_by("rank", "label", "operation", "reason")
        .agg(count=pl.len())
        .sort("rank", "label", "operation"),
        sent,
        Clocks({}, 0, "none") if known is None else known.solved,
    )
    if known is not None:
        return matched
    solved = solve_clocks(_ends(matched, utc_starts), min(utc_starts, default=0))
    return replace(matched, solved=solved)


def joined(
    rows: pl.DataFrame,
    shared: pl.DataFrame,
    streams: pl.DataFrame,
    iterations: Collection[int] | None = None,
) -> pl.DataFrame:
    """Calls with what they share, their place and communicator: COLLECTIVES in narrow columns.

    Args:
        rows: `Matched.rows`, or more of them.
        shared: `Matched.shared`, or more.
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


def slices(groups: NDArray[np.int32]) -> list[tuple[int, slice]]:
    """Each group with where its rows stand; those of one stand together."""
    edges = [0, *(np.flatnonzero(np.diff(groups)) + 1), len(groups)]
    return [
        (int(groups[low]), slice(int(low), int(high)))
        for low, high in pairwise(edges)
        if high > low
    ]


def _reasons(
    rows: pl.DataFrame, shared: pl.DataFrame, size: NDArray[np.int64], groups: pl.DataFrame
) -> NDArray[np.int8]:
    """For each instance which of REASONS holds; -1: none."""
    found = np.full(len(size), -1, dtype=np.int8)
    if not len(size):
        return found
    places = groups["group"].search_sorted(shared["group"].cast(pl.Int64))
    members = groups["members"].gather(places).to_numpy()
    if "bytes" in rows.columns:
        starts, limits = np.cumsum(size) - size, np.iinfo(np.int64)
        most = np.maximum.reduceat(rows["bytes"].fill_null(limits.min).to_numpy(), starts)
        least = np.minimum.reduceat(rows["bytes"].fill_null(limits.max).to_numpy(), starts)
        found[(most > least) & shared["operation"].is_in(EQUAL_SIZES).to_numpy()] = 2
    found[size != members] = 1
    found[members < 2] = 0
    return found


def _unmatched(
    rows: pl.DataFrame, shared: pl.DataFrame, size: NDArray[np.int64], reason: NDArray[np.int8]
) -> pl.DataFrame:
    """rank, group, operation and reason of each call that fits no instance."""
    bad = np.flatnonzero(reason >= 0)
    of_row = np.repeat(bad, size[bad])
    told = shared.select(pl.col("group").cast(pl.Int64), pl.col("operation").cast(pl.String))
    return pl.concat(
        [
            rows.select(pl.col("rank").cast(pl.Int64)).filter(np.repeat(reason >= 0, size)),
            told[of_row],
            pl.DataFrame({"reason": pl.Series(np.array(REASONS)[reason[of_row]], dtype=pl.String)}),
        ],
        how="horizontal",
    )


def _with_peers(
    rows: pl.DataFrame,
    shared: pl.DataFrame,
    size: NDArray[np.int64],
    streams: pl.DataFrame,
    groups: pl.DataFrame,
    peers: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame, NDArray[np.int64], pl.DataFrame, pl.DataFrame]:
    """All of them with the paired transfers, as groups and instances of their own."""
    after = int(shared["group"].max()) + 1 if shared.height else 0  # type: ignore[arg-type]
    peers = peers.with_columns(pl.col("group") + after)
    told = peers.group_by("group").agg(pl.col("label", "members").first()).sort("group")
    narrow = narrowed(peers).with_columns(pl.col("group").cast(pl.Int32))
    more = together({name: narrow[name] for name in (*INSTANCE, *OWN)})
    pairs = peers.select(streams.columns).unique().cast(dict(streams.schema))  # type: ignore[arg-type]
    # groups that lack every whole instance may have numbers above those that have
    known = pl.col("group") < after
    return (
        pl.concat([rows, more[0]], how="diagonal"),
        pl.concat([shared, more[1]]),
        np.concatenate((size, more[2])),
        pl.concat([streams.filter(known), pairs]),
        pl.concat([groups.filter(known), told]),
    )


def _ends(matched: Matched, utc_starts: dict[int, int | None]) -> list[Group]:
    """The ends of each group's instances, on each member's own UTC."""
    rank, end = matched.rows["rank"].to_numpy(), matched.rows["end_ns"].to_numpy()
    found = []
    for _, members, _, rows in matched.blocks():
        ranks = tuple(int(each) for each in rank[rows][:members])
        starts = np.array([utc_starts.get(each) or 0 for each in ranks], dtype=np.int64)
        ends = end[rows].reshape(-1, members) + starts
        if (np.diff(ends[:, 0]) < 0).any():
            ends = ends[ends[:, 0].argsort(kind="stable")]
        found.append(Group(ranks, ends))
    return found
