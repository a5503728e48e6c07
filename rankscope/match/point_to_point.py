"""Sends and receives, each paired with its other side.

The reports name the peers (`named_transfers`), or `--roles` gives the neighbours (`pair_peers`).
"""

import numpy as np
import polars as pl

from rankscope.match.clocks import LEAST_INSTANCES
from rankscope.match.communicators import (
    LARGEST_NS,
    LATENESS_SHARE,
    LEAST_SAMPLES,
    NEIGHBOURS,
    SAMPLES,
    SHARPEST_NS,
    distances,
)
from rankscope.measure.collectives import NAMED
from rankscope.model.intervals import Floats, Times
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.model.schema import PEERS

TOGETHER_NS = 100_000
"""Largest spread, ns, of the difference between the ends of the two sides of a transfer."""


TRANSFERS = "^ranks? [0-9]+ (to|and) [0-9]+$"
"""Labels of communicators that are two ranks of which one sends to the other."""

SIDES = pl.Schema({"sender": pl.Int64, "receiver": pl.Int64})
"""Columns of a transfer."""

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


def paired_by_ends(sent: pl.DataFrame) -> pl.DataFrame:
    """Both sides of each transfer of which the reports name no peers, from when they end.

    A receive ends when its message has come. So the n-th calls of two streams that send to each
    other end at the same distance, but for those that came late: the streams are each other's
    nearest by far, and the ends agree better than the starts, as one waits for the other. Streams
    that start together as well, such as those of a tensor parallel group, tell nothing. Only if all
    streams with as many calls in each iteration find a partner are they paired: else the partner
    may have no report. Who leaves before the other came sends.

    Args:
        sent: COLLECTIVES that send or receive.

    Returns:
        As `named_transfers`; `sender` and `receiver` are null where both always end together.
    """
    rows = sent.filter(
        pl.col("place").cast(pl.String) == "device",
        ~pl.col("communicator").str.contains(NAMES_PEERS),
    ).sort("rank", "communicator", "start_ns")
    rows = rows.with_columns(
        arrival_ns="start_ns",
        ordinal=pl.int_range(pl.len()).over("rank", "communicator", "iteration"),
    )
    alike: dict[bytes, list[pl.DataFrame]] = {}
    for part in rows.partition_by("rank", "communicator", maintain_order=True):
        alike.setdefault(part["iteration"].to_numpy().tobytes(), []).append(part)
    paired = [
        pl.DataFrame({"sender": sender, "receiver": receiver}, schema=SIDES).join(
            pl.concat(sides), how="cross"
        )
        for streams in alike.values()
        for sender, receiver, *sides in _pairs(streams)
    ]
    numbered = (each.with_columns(group=pl.lit(n, pl.Int64)) for n, each in enumerate(paired))
    nothing = rows.clear().with_columns(
        pl.lit(None, pl.Int64).alias(each) for each in (*SIDES, "group")
    )
    lowest, highest = (each("rank").over("group") for each in (pl.min, pl.max))
    return pl.concat([*numbered] or [nothing], how="diagonal_relaxed").with_columns(
        label=pl.coalesce(
            pl.format("rank {} to {}", "sender", "receiver"),
            pl.format("ranks {} and {}", lowest, highest),
        ),
        members=pl.lit(2, pl.Int64),
    )


def _pairs(
    streams: list[pl.DataFrame],
) -> list[tuple[int | None, int | None, pl.DataFrame, pl.DataFrame]]:
    """Sender, receiver (None where unknown) and the streams of both, for each pair; all or none.

    Args:
        streams: calls of a rank each, in time order, as many as the others'.
    """
    rank = np.array([each["rank"][0] for each in streams])
    start, end = (
        np.stack([each[name].to_numpy() for each in streams]) for name in ("start_ns", "end_ns")
    )
    if len(streams) < 2 or end.shape[1] < LEAST_SAMPLES:
        return []
    chosen = np.unique(np.linspace(0, end.shape[1] - 2, SAMPLES).astype(np.int64))
    apart, late = (distances(np.diff(each)[:, chosen].astype(np.float64)) for each in (end, start))
    apart[rank[:, None] == rank] = np.inf
    nearest, order = apart.argmin(axis=1), np.sort(apart, axis=1)
    close = np.clip(NEIGHBOURS * np.median(order[:, 0]), SHARPEST_NS, LARGEST_NS)
    strangers = order[:, 1] >= NEIGHBOURS * np.maximum(order[:, 0], SHARPEST_NS)
    places = np.arange(len(streams))
    met = order[:, 0] <= np.minimum(close, LATENESS_SHARE * late[places, nearest])
    if not ((nearest[nearest] == places) & met & strangers).all():
        return []
    pairs = []
    for one, other in zip(
        places[places < nearest].tolist(), nearest[places < nearest].tolist(), strict=True
    ):
        between = _between(end[one], end[other])
        left = [
            bool((end[a] + ahead + close < start[b]).any())
            for a, b, ahead in ((one, other, between), (other, one, -between))
        ]
        if all(left):
            return []
        sides = [one, other] if left[0] else [other, one]
        ranks = [int(rank[each]) if any(left) else None for each in sides]
        pairs.append((*ranks, streams[one], streams[other]))
    return pairs


def _between(one: Times, other: Times) -> Floats:
    """How far the clock of one stream is ahead of the other's at the end of each call, ns.

    The clocks drift: half of the run is compared with the other half.
    """
    apart, half = (other - one).astype(np.float64), len(one) // 2
    drift = np.median((apart[-half:] - apart[:half]) / np.maximum(one[-half:] - one[:half], 1))
    drifted = drift * (one - one[0])
    return np.asarray(np.median(apart - drifted) + drifted)


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
    transfers = transfers.drop_nulls("sender")
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
