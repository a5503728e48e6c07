"""Collectives across ranks: which calls are one instance, and who takes part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.align.clocks import ClockFit, Clocks, Group, solve_clocks
from rankscope.align.communicators import STREAM, communicators
from rankscope.align.peers import pair_peers

SPLITTABLE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Operations that nobody leaves before all have arrived."""

EQUAL_SIZES = ("all_reduce", "all_gather", "reduce_scatter")
"""Operations whose message is equally large on all participants."""

INSTANCE = ["group", "operation", "iteration", "ordinal"]


@dataclass(frozen=True, slots=True)
class Matched:
    """Collectives of a run, matched.

    `instances` has the columns of COLLECTIVES, `label` and `group` (of its communicator; a group
    is a set of members), `instance` (number, ascending), `members` (how many the group has) and
    `duration_ns` (arrival to end). `unmatched` has rank, label, operation, count and reason of
    those that fit no instance.
    """

    instances: pl.DataFrame
    unmatched: pl.DataFrame
    solved: Clocks

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
    splittable = collectives.filter(pl.col("operation").is_in(SPLITTABLE))
    pipelined = splittable.height < collectives.filter(pl.col("operation") != "rooted").height
    joined = _sorted(splittable.join(communicators(splittable, pipelined), on=STREAM))
    sizes = joined.group_by("group").agg(members=pl.col("rank").n_unique().cast(pl.Int64))
    instances = (
        joined.join(sizes, on="group", maintain_order="left")
        .with_columns(
            instance=pl.struct(INSTANCE).rle_id().cast(pl.Int64),
            duration_ns=pl.col("end_ns") - pl.col("arrival_ns"),
        )
        .with_columns(
            size=pl.len().over("instance"),
            differs=(pl.col("bytes").max() != pl.col("bytes").min()).over("instance")
            & pl.col("operation").is_in(EQUAL_SIZES),
        )
        .with_columns(
            reason=pl.when(pl.col("members") < 2)
            .then(pl.lit("no partner"))
            .when(pl.col("size") != pl.col("members"))
            .then(pl.lit("some members lack it"))
            .when(pl.col("differs").fill_null(False))
            .then(pl.lit("message sizes differ"))
        )
    )
    unmatched = (
        instances.drop_nulls("reason")
        .group_by("rank", "label", "operation", "reason")
        .agg(count=pl.len())
        .sort("rank", "label", "operation")
    )
    whole = instances.filter(pl.col("reason").is_null()).drop("reason", "size", "differs")
    whole = _with_peers(whole, pair_peers(collectives, links or []))
    lowest = min(utc_starts, default=0)
    return Matched(whole, unmatched, solve_clocks(_shared(whole, utc_starts), lowest))


def _with_peers(whole: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """The instances with the paired transfers, as groups and instances of their own."""
    if peers.is_empty():
        return whole
    groups, instances = (
        int(value) + 1 if isinstance(value := whole[name].max(), int) else 0
        for name in ("group", "instance")
    )
    paired = _sorted(peers.with_columns(group=pl.col("group") + groups)).with_columns(
        instance=pl.struct(INSTANCE).rle_id().cast(pl.Int64) + instances,
        duration_ns=pl.col("end_ns") - pl.col("arrival_ns"),
    )
    return pl.concat([whole, paired.select(whole.columns)])


def _sorted(joined: pl.DataFrame) -> pl.DataFrame:
    """In the order of INSTANCE, then rank: by one number that counts through them."""
    operation = pl.col("operation").rank("dense").cast(pl.Int64)
    keys = joined.select("group", "iteration", "ordinal", "rank", operation=operation)
    number = np.zeros(joined.height, dtype=np.int64)
    for name in (*INSTANCE, "rank"):
        values = keys[name].to_numpy()
        low = int(values.min()) if len(values) else 0
        number *= int(values.max()) - low + 1 if len(values) else 1
        number += values - low
    return joined[np.argsort(number, kind="stable")]


def _shared(whole: pl.DataFrame, utc_starts: dict[int, int | None]) -> list[Group]:
    """The ends of each group's instances, on each member's own UTC."""
    starts = {rank: start or 0 for rank, start in utc_starts.items()}
    utc = pl.col("end_ns") + pl.col("rank").replace_strict(starts, return_dtype=pl.Int64)
    groups = []
    for part in whole.select("group", "rank", "members", utc=utc).partition_by("group"):
        members = int(part["members"][0])
        ends = part["utc"].to_numpy().reshape(-1, members)
        ranks = tuple(part["rank"].head(members).to_list())
        groups.append(Group(ranks, ends[ends[:, 0].argsort(kind="stable")]))
    return groups
