"""The rows of `imbalance --by collective`: how long each collective transfers and waits."""

from collections.abc import Collection

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.match.collectives import blocks_of
from rankscope.match.waits import WaitedCollectives
from rankscope.model.intervals import length_before

BUS_TRIPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
"""Of n ranks' bus bandwidth per algorithm bandwidth, the factor of (n - 1) / n, as NVIDIA's
nccl-tests define it (PERFORMANCE.md)."""


def by_collective(
    collectives: WaitedCollectives, numbers: Collection[int], exposed: pl.DataFrame | None = None
) -> pl.DataFrame:
    """A row per communicator, operation and ordinal: how long, who waits, who comes last.

    Args:
        collectives: `waits.with_waits`.
        numbers: the iterations.
        exposed: rank, start_ns and end_ns of exposed communication, if it is asked for.

    Returns:
        communicator, operation, ordinal, ranks, count, transfer_ns and wait_ns (means per rank
        and instance), last_rank (who came last most often), last_share, bytes (of a message;
        null where unknown), algorithm_bandwidth and bus_bandwidth (bytes per second of transfer).
        With `exposed`, exposed_ns: the part of all transfers that is exposed, the mean per rank.
    """
    key = ["group", "operation", "ordinal"]
    calls = _calls(collectives, exposed).filter(pl.col("iteration").is_in(list(numbers)))
    last = (
        calls.drop_nulls("last")
        .group_by(*key, last_rank="last")
        .agg(times=pl.len())
        .sort("times", "last_rank", descending=[True, False])
        .unique(key, keep="first", maintain_order=True)
    )
    ranks = collectives.streams.group_by("group").agg(ranks=pl.col("rank").unique().sort())
    trips = pl.col("operation").replace_strict(BUS_TRIPS, default=None, return_dtype=pl.Int64)
    factor = trips * (pl.col("members") - 1) / pl.col("members")
    all_calls = pl.col("calls").sum()
    return (
        calls.group_by(key)
        .agg(
            count=pl.col("iteration").n_unique(),
            transfer_ns=((pl.col("transfer") * pl.col("calls")).sum() / all_calls).round(),
            wait_ns=(pl.col("waited").sum() / all_calls).round(),
            bytes=pl.when(pl.col("known").sum() > 0).then(
                (pl.col("bytes").sum() / pl.col("known").sum()).round()
            ),
            exposed_ns=(pl.col("exposed") / pl.col("calls")).sum(),
        )
        .cast(dict.fromkeys(("transfer_ns", "wait_ns", "bytes"), pl.Int64))
        .join(last, on=key, how="left")
        .with_columns(
            pl.col("group", "ordinal", "last_rank").cast(pl.Int64),
            pl.col("operation").cast(pl.String),
        )
        .join(ranks, on="group")
        .join(collectives.groups.select("group", "label", "members"), on="group")
        .with_columns(algorithm_bandwidth=pl.col("bytes") * 1e9 / pl.col("transfer_ns"))
        .sort(key)
        .select(
            pl.col("label").alias("communicator"),
            "operation",
            "ordinal",
            "ranks",
            "count",
            "transfer_ns",
            "wait_ns",
            "last_rank",
            *["exposed_ns"] * (exposed is not None),
            last_share=pl.col("times") / pl.col("count"),
            bytes="bytes",
            algorithm_bandwidth="algorithm_bandwidth",
            bus_bandwidth=pl.col("algorithm_bandwidth") * factor,
        )
    )


def _calls(collectives: WaitedCollectives, exposed: pl.DataFrame | None) -> pl.DataFrame:
    """The instances, each with sums over its members: calls, waited, known (sizes), bytes, exposed.

    The last one is the part of its transfer that is exposed; 0 where that is not asked for.
    """
    own = collectives.rows
    counts, waited, known, sizes, seen = np.zeros((5, collectives.shared.height), dtype=np.int64)
    if exposed is not None:
        own = own.with_columns(exposed=_exposed(own, exposed))
    for _, members, where, rows in blocks_of(collectives.shared, collectives.groups):
        counts[where] = members
        waited[where] = _over_members(own["wait"][rows], members)
        if "bytes" in own.columns:
            size = own["bytes"][rows]
            known[where] = _over_members(size.is_not_null(), members)
            sizes[where] = _over_members(size.fill_null(0), members)
        if exposed is not None:
            seen[where] = _over_members(own["exposed"][rows], members)
    return collectives.shared.with_columns(
        calls=counts, waited=waited, known=known, bytes=sizes, exposed=seen
    )


def _exposed(calls: pl.DataFrame, exposed: pl.DataFrame) -> NDArray[np.int64]:
    """How much of the transfer of each call (rank, arrival_ns, wait, end_ns) is exposed, ns."""
    part = np.zeros(len(calls), dtype=np.int64)
    ranks = calls["rank"].to_numpy()
    for (rank,), spans in exposed.sort("rank", "start_ns").group_by("rank"):
        rows = np.flatnonzero(ranks == rank)
        own = calls[rows]
        limits = (own.select(pl.col("arrival_ns") + pl.col("wait")).to_series(), own["end_ns"])
        begin, end = (
            length_before(spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy(), each.to_numpy())
            for each in limits
        )
        part[rows] = np.maximum(end - begin, 0)
    return part


def _over_members(values: pl.Series, members: int) -> NDArray[np.int64]:
    """The sum of each instance of a group, whose values are those of one member after another."""
    return np.asarray(values.to_numpy().reshape(members, -1).sum(axis=0), dtype=np.int64)
