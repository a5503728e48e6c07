"""Collectives matched across ranks: the calls of each instance. See METHOD.md#waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.align.calls import INSTANCE, OWN, Calls, together
from rankscope.align.clocks import LEAST_INSTANCES, ClockFit, Clocks, Group, solve_clocks
from rankscope.align.communicators import EQUAL_SIZES, STREAM, communicators
from rankscope.store.tables import narrowed

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

REASONS = ("no partner", "some members lack it", "message sizes differ")
"""Reasons why a call belongs to no instance."""


@dataclass(frozen=True, slots=True)
class MatchSummary:
    """The number of matched calls, with `unmatched` and `solved` as in `Matched`."""

    calls: int
    unmatched: pl.DataFrame
    solved: Clocks


@dataclass(frozen=True, slots=True)
class ReusedMatching:
    """The matching of all iterations of a run, reused to match some of them in the same way.

    `streams` as in `Matched`, `groups` as in `WaitedCollectives`.
    """

    streams: pl.DataFrame
    groups: pl.DataFrame
    solved: Clocks


@dataclass(frozen=True, slots=True)
class Matched:
    """The matched collectives of a run; columns that calls share are stored once per instance.

    `rows`: rank, gradient, arrival_ns, end_ns, bytes (where any are known) and instance (counted
    from 0; rows of an instance are adjacent, sorted by rank). `shared`: a row per instance, in that
    order: group (the communicator's set of members), operation, iteration, ordinal. `streams`:
    rank, place, communicator, label and group. `groups`: group, label and members (a count).
    `unmatched`: rank, label, operation, count and reason of calls that belong to no instance.
    `sent`: iteration and calls, the number of calls of transfers between two ranks.
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
        """Every call with all its columns."""
        return joined(self.rows, self.shared, self.streams)

    @property
    def met(self) -> MatchSummary:
        """The summary, without the calls."""
        return MatchSummary(self.rows.height, self.unmatched, self.solved)

    @property
    def clocks(self) -> dict[int, ClockFit]:
        """rank → its clock relative to the lowest rank's, for tied ranks."""
        return self.solved.fits

    @property
    def reducing(self) -> pl.DataFrame:
        """The gradient reductions with the columns of REDUCING."""
        parts = [REDUCING.to_frame()]
        for group, members, _, rows in self.blocks():
            part = self.rows[rows]
            gradient = part["gradient"].to_numpy().reshape(-1, members)
            if not gradient.any():
                continue
            lasted = (part["end_ns"] - part["arrival_ns"]).to_numpy().reshape(-1, members)
            transfer = np.where(gradient, lasted.min(axis=1, keepdims=True), 0).sum(axis=0)
            sums = pl.DataFrame(
                {"group": group, "rank": part["rank"].head(members), "transfer_ns": transfer},
            )
            sizes = pl.lit(None) if "bytes" not in part.columns else pl.col("bytes").cast(pl.Int64)
            known = (
                part.filter("gradient")
                .group_by("rank")
                .agg(
                    bytes=pl.when(sizes.is_not_null().all()).then(sizes.sum()),
                    largest_bytes=sizes.max(),
                )
            )
            found = sums.join(known, on="rank").select(REDUCING.names())
            parts.append(found.cast(dict(REDUCING)))  # type: ignore[arg-type]
        return pl.concat(parts)

    def blocks(self) -> Iterator[tuple[int, int, slice, slice]]:
        """Yield each group, its number of members, the slice of its instances and of its rows."""
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
    doubtful = {*streams.filter(~pl.col("sure"))["group"]} if known is None else set()
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
    ends = _ends(matched, utc_starts, doubtful)
    solved = solve_clocks(ends, min(utc_starts, default=0), spans)
    return replace(matched, solved=solved)


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


def slices(groups: NDArray[np.int32]) -> list[tuple[int, slice]]:
    """Each group with the slice of its rows, which are adjacent."""
    edges = [0, *(np.flatnonzero(np.diff(groups)) + 1), len(groups)]
    return [
        (int(groups[low]), slice(int(low), int(high)))
        for low, high in pairwise(edges)
        if high > low
    ]


def _reasons(
    rows: pl.DataFrame, shared: pl.DataFrame, size: NDArray[np.int64], groups: pl.DataFrame
) -> NDArray[np.int8]:
    """The index in REASONS that holds for each instance; -1 for matched instances."""
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
    """rank, group, operation and reason of each call that belongs to no instance."""
    bad = np.flatnonzero(reason >= 0)
    of_row = np.repeat(bad, size[bad])
    labels = shared.select(pl.col("group").cast(pl.Int64), pl.col("operation").cast(pl.String))
    return pl.concat(
        [
            rows.select(pl.col("rank").cast(pl.Int64)).filter(np.repeat(reason >= 0, size)),
            labels[of_row],
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
    """The instances plus the paired transfers, which become groups and instances of their own."""
    after = int(shared["group"].max()) + 1 if shared.height else 0  # type: ignore[arg-type]
    peers = peers.with_columns(pl.col("group") + after)
    labels = peers.group_by("group").agg(pl.col("label", "members").first()).sort("group")
    narrow = narrowed(peers).with_columns(pl.col("group").cast(pl.Int32))
    more = together({name: narrow[name] for name in (*INSTANCE, *OWN)})
    pairs = peers.select(streams.columns).unique().cast(dict(streams.schema))  # type: ignore[arg-type]
    # groups without a complete instance may have higher numbers than the others
    known = pl.col("group") < after
    return (
        pl.concat([rows, more[0]], how="diagonal"),
        pl.concat([shared, more[1]]),
        np.concatenate((size, more[2])),
        pl.concat([streams.filter(known), pairs]),
        pl.concat([groups.filter(known), labels]),
    )


def _ends(matched: Matched, utc_starts: dict[int, int | None], doubtful: set[int]) -> list[Group]:
    """The ends of each group's instances, on each member's own UTC.

    Of groups whose members are `doubtful`, a few instances would not show that they are no
    members: those are left out.
    """
    rank, end = matched.rows["rank"].to_numpy(), matched.rows["end_ns"].to_numpy()
    found = []
    for group, members, where, rows in matched.blocks():
        if group in doubtful and where.stop - where.start < LEAST_INSTANCES:
            continue
        ranks = tuple(int(each) for each in rank[rows][:members])
        starts = np.array([utc_starts.get(each) or 0 for each in ranks], dtype=np.int64)
        ends = end[rows].reshape(-1, members) + starts
        if (np.diff(ends[:, 0]) < 0).any():
            ends = ends[ends[:, 0].argsort(kind="stable")]
        found.append(Group(ranks, ends))
    return found
