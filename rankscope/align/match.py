"""Collectives across ranks: which calls are one instance, and who takes part."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.align.clocks import ClockFit, Clocks, Group, solve_clocks
from rankscope.align.communicators import communicators, numbered
from rankscope.align.peers import pair_peers
from rankscope.frames import narrowed

SPLITTABLE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Operations that nobody leaves before all have arrived."""

EQUAL_SIZES = ("all_reduce", "all_gather", "reduce_scatter")
"""Operations whose message is equally large on all participants."""

INSTANCE = ["group", "operation", "iteration", "ordinal"]

CARRIED = ["rank", "iteration", "place", "communicator", "operation", "ordinal", "gradient"]
CARRIED += ["arrival_ns", "end_ns", "bytes"]
"""What of COLLECTIVES comparing them needs."""

REASONS = ("no partner", "some members lack it", "message sizes differ")
"""Why a call fits no instance."""


@dataclass(frozen=True, slots=True)
class Met:
    """What became of a run's collectives: calls that were matched, and as in `Matched`."""

    calls: int
    unmatched: pl.DataFrame
    solved: Clocks


@dataclass(frozen=True, slots=True)
class Matched:
    """Collectives of a run, matched.

    `instances` has the columns of COLLECTIVES but `start_ns`, in narrow types, with `group` (of
    its communicator; a group is a set of members) and `instance` (number, ascending); the rows of
    an instance stand together, by rank. `groups` has group, label and members (how many).
    `unmatched` has rank, label, operation, count and reason of those that fit no instance.
    """

    instances: pl.DataFrame
    groups: pl.DataFrame
    unmatched: pl.DataFrame
    solved: Clocks

    @property
    def met(self) -> Met:
        """What became of the collectives, without them."""
        return Met(self.instances.height, self.unmatched, self.solved)

    @property
    def clocks(self) -> dict[int, ClockFit]:
        """rank → its clock against the lowest rank's, of the ranks that are tied to it."""
        return self.solved.fits


def match(
    collectives: pl.DataFrame,
    utc_starts: dict[int, int | None],
    links: list[tuple[int, int]] | None = None,
) -> Matched:
    """Match instances by communicator, operation, iteration and ordinal.

    Args:
        collectives: COLLECTIVES of the chosen iterations.
        utc_starts: rank → UTC of its report's time 0, None where unknown.
        links: pairs of ranks that send to each other, where known.
    """
    peers = pair_peers(collectives, links or [])
    split = collectives["operation"].is_in(SPLITTABLE)
    unrooted = collectives.select((pl.col("operation") != "rooted").sum()).item()
    pipelined = split.sum() < unrooted
    rows = numbered(narrowed(collectives if split.all() else collectives.filter(split)))
    del collectives, split  # of many rows there is no room for both
    streams = communicators(rows, pipelined).sort("stream")
    groups = (
        streams.group_by("group")
        .agg(pl.col("label").first(), members=pl.col("rank").n_unique().cast(pl.Int64))
        .sort("group")
    )
    group_of = streams["group"].cast(pl.Int32)
    columns = rows.select(*CARRIED, group=group_of.gather(rows["stream"])).get_columns()
    del rows
    sorted_rows, instance = _sorted(columns)
    reason = _reasons(sorted_rows, instance, groups)
    instances = sorted_rows.with_columns(instance=pl.Series(instance, dtype=pl.Int32))
    del sorted_rows, instance
    bad = reason >= 0
    unmatched = (
        instances.filter(pl.Series(bad))
        .select(pl.col("rank", "group").cast(pl.Int64), pl.col("operation").cast(pl.String))
        .with_columns(reason=pl.Series(np.array(REASONS)[reason[bad]], dtype=pl.String))
        .join(groups, on="group")
        .group_by("rank", "label", "operation", "reason")
        .agg(count=pl.len())
        .sort("rank", "label", "operation")
    )
    if bad.any():
        instances = instances.filter(pl.Series(~bad))
    instances, groups = _with_peers(instances, groups, peers)
    lowest = min(utc_starts, default=0)
    solved = solve_clocks(_shared(instances, groups, utc_starts), lowest)
    return Matched(instances, groups, unmatched, solved)


def slices(groups: NDArray[np.int32]) -> list[tuple[int, slice]]:
    """Each group with where its rows stand; those of one stand together."""
    edges = [0, *(np.flatnonzero(np.diff(groups)) + 1), len(groups)]
    return [
        (int(groups[low]), slice(int(low), int(high)))
        for low, high in pairwise(edges)
        if high > low
    ]


def _reasons(
    rows: pl.DataFrame, instance: NDArray[np.int32], groups: pl.DataFrame
) -> NDArray[np.int8]:
    """For each row which of REASONS holds; -1: none."""
    if not len(instance):
        return np.zeros(0, dtype=np.int8)
    starts = np.flatnonzero(np.diff(instance, prepend=-1))
    first = rows.select("group", "operation")[starts]
    members = groups["members"].gather(first["group"]).to_numpy()
    size = np.diff(starts, append=len(instance))
    found = np.full(len(starts), -1, dtype=np.int8)
    if rows["bytes"].null_count() < rows.height:
        limits = np.iinfo(np.int64)
        most = np.maximum.reduceat(rows["bytes"].fill_null(limits.min).to_numpy(), starts)
        least = np.minimum.reduceat(rows["bytes"].fill_null(limits.max).to_numpy(), starts)
        found[(most > least) & first["operation"].is_in(EQUAL_SIZES).to_numpy()] = 2
    found[size != members] = 1
    found[members < 2] = 0
    return np.repeat(found, size)


def _with_peers(
    whole: pl.DataFrame, groups: pl.DataFrame, peers: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The instances with the paired transfers, as groups and instances of their own."""
    if peers.is_empty():
        return whole, groups
    after = [
        int(value) + 1 if isinstance(value := whole[name].max(), int) else 0
        for name in ("group", "instance")
    ]
    moved = peers.with_columns(pl.col("group") + after[0])
    told = moved.group_by("group").agg(pl.col("label", "members").first()).sort("group")
    rows = narrowed(moved).select(*CARRIED, pl.col("group").cast(pl.Int32))
    paired, instance = _sorted(rows.get_columns())
    paired = paired.with_columns(instance=pl.Series(instance + after[1], dtype=pl.Int32))
    # groups that lack every whole instance may have numbers above those that have
    known = groups.filter(pl.col("group") < after[0])
    return pl.concat([whole, paired]), pl.concat([known, told])


def _sorted(columns: list[pl.Series]) -> tuple[pl.DataFrame, NDArray[np.int32]]:
    """The rows in the order of INSTANCE, then rank, and each one's instance, counted from 0.

    By one number that counts through them.

    Args:
        columns: emptied, so that each goes when its rows are sorted.
    """
    by_name = {column.name: column for column in columns}
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for name in (*INSTANCE, "rank"):
        values = _counted(by_name[name])
        low = int(values.min(initial=0)) if len(values) else 0
        span = int(values.max(initial=0)) - low + 1
        number *= span
        number += values
        number -= low
    del by_name, values
    if (np.diff(number) >= 0).all():
        order = None
    else:
        order = pl.Series(number).arg_sort()
        number = number[order.to_numpy()]
    number //= span
    instance = np.cumsum(np.diff(number, prepend=number[:1]) != 0, dtype=np.int32)
    del number
    taken = []
    while columns:
        column = columns.pop(0)
        taken.append(column if order is None else column.gather(order))
    return pl.DataFrame(taken), instance


def _counted(values: pl.Series) -> NDArray[np.int64]:
    """Numbers in the order of the values."""
    if isinstance(values.dtype, pl.Categorical):
        names = values.unique().cast(pl.String).sort()
        there = pl.DataFrame({"name": names}).with_columns(
            code=pl.col("name").cast(values.dtype).to_physical().cast(pl.Int64)
        )
        table = np.zeros(int(there["code"].max() or 0) + 1, dtype=np.int64)  # type: ignore[arg-type]
        table[there["code"].to_numpy()] = np.arange(there.height)
        return np.asarray(table[values.to_physical().to_numpy()])
    return values.to_numpy()


def _shared(
    whole: pl.DataFrame, groups: pl.DataFrame, utc_starts: dict[int, int | None]
) -> list[Group]:
    """The ends of each group's instances, on each member's own UTC."""
    rank, end = whole["rank"].to_numpy(), whole["end_ns"].to_numpy()
    members = dict(groups.select("group", "members").iter_rows())
    found = []
    for group, rows in slices(whole["group"].to_numpy()):
        ranks = tuple(int(each) for each in rank[rows][: members[group]])
        starts = np.array([utc_starts.get(each) or 0 for each in ranks], dtype=np.int64)
        ends = end[rows].reshape(-1, len(ranks)) + starts
        if (np.diff(ends[:, 0]) < 0).any():
            ends = ends[ends[:, 0].argsort(kind="stable")]
        found.append(Group(ranks, ends))
    return found
