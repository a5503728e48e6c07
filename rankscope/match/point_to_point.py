"""Sends and receives, each paired with its other side.

The reports name the peers (`named_transfers`), or `--roles` gives the neighbours (`pair_peers`).
"""

import numpy as np
import polars as pl

from rankscope.match.clocks import LEAST_INSTANCES
from rankscope.measure.collectives import NAMED
from rankscope.model.intervals import Times
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.model.schema import PEERS

TOGETHER_NS = 100_000
"""Largest spread, ns, of the difference between the ends of the two sides of a transfer."""


NAMES_PEERS = PEERS.replace("^", f"^{NAMED} ")
"""Communicators of kernels whose report names the peers."""

SOONEST = 2
"""Moments that err by at most this many times the least count: the others waited for a rank."""


def named_transfers(sent: pl.DataFrame) -> pl.DataFrame:
    """The two sides of each transfer whose peers the reports name.

    The n-th send of a rank to another in an iteration is the other's n-th receive from it, if these
    are equally many. A kernel may do several transfers.

    Args:
        sent: COLLECTIVES that send or receive.

    Returns:
        Rows of `sent`, a row for each transfer of a kernel, with `sender`, `receiver`, `label`,
        `group` (counted from 0) and `members` (2); `ordinal` counts the transfers of an iteration
        and group, and a kernel arrives when it starts: before that it may have stood behind
        another one in its stream.
    """
    link = ["sender", "receiver", "iteration"]
    sides = (
        sent.filter(pl.col("communicator").str.contains(NAMES_PEERS))
        .sort("start_ns", maintain_order=True)
        .with_columns(
            arrival_ns="start_ns",
            peer=pl.col("communicator").str.strip_prefix(f"{NAMED} ").str.split(", "),
        )
        .explode("peer")
        .with_columns(
            sends=pl.col("peer").str.starts_with("to "),
            peer=pl.col("peer").str.extract("([0-9]+)$").cast(pl.Int64),
        )
        .with_columns(
            sender=pl.when("sends").then("rank").otherwise("peer"),
            receiver=pl.when("sends").then("peer").otherwise("rank"),
        )
        .with_columns(ordinal=pl.int_range(pl.len()).over(*link, "sends"))
    )
    even = pl.col("sends").sum().over(link) * 2 == pl.len().over(link)
    return (
        sides.filter(even, pl.col("rank") != pl.col("peer"))
        .with_columns(
            label=pl.format("rank {} to {}", "sender", "receiver"),
            group=pl.struct("sender", "receiver").rank("dense").cast(pl.Int64) - 1,
            members=pl.lit(2, pl.Int64),
        )
        .drop("peer", "sends")
    )


def meetings(transfers: pl.DataFrame) -> pl.DataFrame:
    """Moments that two ranks share, of those that send to each other in an iteration.

    A receiver ends once its message has come, so the soonest transfer of each direction tells the
    distance of the clocks but for the time that the message took. If it took equally long both
    ways, the middle of the sender's start and its own receive's end is one moment on both clocks
    (as in NTP); whatever it took, that errs by at most half the sum.

    Args:
        transfers: rows of `named_transfers`.

    Returns:
        one, other (ranks; the lower one first), iteration, own_ns and other_ns (the moment by
        their own clocks) and error_ns.
    """
    key, link = ["sender", "receiver", "iteration", "ordinal"], ["sender", "receiver", "iteration"]
    sides = transfers.with_columns(sends=pl.col("rank") == pl.col("sender"))
    sent, got = (sides.filter(sends=each) for each in (True, False))
    soonest = (
        sent.select(*key, sent="arrival_ns")
        .join(got.select(*key, got="end_ns"), on=key)
        .sort(pl.col("got") - pl.col("sent"))
        .unique(link, keep="first", maintain_order=True)
    )
    back = soonest.select(
        "iteration", sender="receiver", receiver="sender", sent_back="sent", got_back="got"
    )
    return (
        soonest.filter(pl.col("sender") < pl.col("receiver"))
        .join(back, on=link)
        .select(
            "iteration",
            one="sender",
            other="receiver",
            own_ns=(pl.col("sent") + pl.col("got_back")) // 2,
            other_ns=(pl.col("sent_back") + pl.col("got")) // 2,
            error_ns=(pl.col("got") - pl.col("sent") + pl.col("got_back") - pl.col("sent_back"))
            // 2,
        )
        .filter(pl.col("error_ns") <= SOONEST * pl.col("error_ns").min().over("one", "other"))
        .sort("one", "other", "own_ns")
    )


def pair_peers(collectives: pl.DataFrame, links: list[tuple[int, int]]) -> pl.DataFrame:
    """Kernels that are the two sides of one transfer.

    Each side runs until the other has arrived, so both end together. Two streams of neighbours
    belong together if the difference of their ends stays constant.

    Args:
        collectives: COLLECTIVES.
        links: pairs of ranks that send to each other.

    Returns:
        The paired rows of `collectives`, with `label`, `group` (counted from
        0) and `members` (2); `ordinal` counts the pairs of an iteration.
    """
    if not links:
        collectives = collectives.clear()
    kernels = (
        collectives.filter(pl.col("operation") == POINT_TO_POINT)
        .with_columns(pl.col("rank", "iteration", "ordinal").cast(pl.Int64))
        .sort("start_ns")
    )
    streams = {
        (int(rank), str(stream)): part.with_columns(
            ordinal=pl.int_range(pl.len()).over("iteration")
        )
        for (rank, stream), part in kernels.partition_by(
            "rank", "communicator", as_dict=True
        ).items()
    }
    paired = [kernels.clear().with_columns(label=pl.lit(""), group=pl.lit(0, pl.Int64))]
    for number, (one, other) in enumerate(links):
        pairs = [
            (distance, own_key, other_key)
            for own_key in (key for key in streams if key[0] == one)
            for other_key in (key for key in streams if key[0] == other)
            if (distance := _apart(streams[own_key], streams[other_key])) is not None
        ]
        if not pairs:
            continue
        distance, *both = min(pairs)
        if distance <= TOGETHER_NS:
            paired += [
                streams[key].with_columns(
                    label=pl.lit(f"ranks {one} and {other}"), group=pl.lit(number, pl.Int64)
                )
                for key in both
            ]
    return pl.concat(paired).with_columns(members=pl.lit(2, pl.Int64))


def _apart(one: pl.DataFrame, other: pl.DataFrame) -> float | None:
    """Spread of the difference between two streams' ends; None where they cannot be paired."""
    key = ["iteration", "ordinal"]
    if one.height != other.height or one.height < LEAST_INSTANCES:
        return None
    both = one.select(*key, "end_ns").join(other.select(*key, end="end_ns"), on=key)
    if both.height < one.height:
        return None
    both = both.sort("end_ns")
    steps: list[Times] = [np.diff(both[name].to_numpy()) for name in ("end_ns", "end")]
    return float(np.median(np.abs(steps[0] - steps[1])))
