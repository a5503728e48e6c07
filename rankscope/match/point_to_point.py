"""Sends and receives whose reports name the peers, each paired with its other side."""

import polars as pl

from rankscope.measure.collectives import NAMED
from rankscope.model.schema import PEERS

EXCHANGE = "exchange"
"""Begin of the labels of communicators that send to each other, all to all."""

TRANSFERS = f"^ranks? [0-9]+ (to|and) [0-9]+$|^{EXCHANGE}[*]"
"""Labels of communicators of calls that send and receive: of two ranks, or of more."""

NAMED_SENDS = "^rank [0-9]+ to [0-9]+$"
"""Labels of those of two ranks whose reports name the peers."""

SIDES = pl.Schema({"sender": pl.Int64, "receiver": pl.Int64})
"""Columns of a transfer."""

NAMES_PEERS = PEERS.replace("^", f"^{NAMED} ")
"""Communicators of kernels whose report names the peers."""

SOONEST = 2
"""Moments that err by at most this many times the least count: the others waited for a rank."""


def named_transfers(sent: pl.DataFrame) -> pl.DataFrame:
    """The two sides of each transfer whose peers the reports name.

    The n-th send of a rank to another in an iteration is the other's n-th receive from it, if these
    are equally many. A kernel may do several transfers. NCCL names peers by their place among the
    members of a communicator.

    Args:
        sent: calls of COLLECTIVES that send or receive, and name their peers.

    Returns:
        Rows of `sent`, a row for each transfer of a kernel, with `sender`, `receiver`, `label`,
        `group` (counted from 0) and `members` (2); `ordinal` counts the transfers of an iteration
        and group.
    """
    link = ["sender", "receiver", "iteration"]
    sides = (
        sent.cast({"communicator": pl.String, "rank": pl.Int64, "iteration": pl.Int64})
        .sort("start_ns", maintain_order=True)
        .with_columns(
            within=pl.col("communicator").str.extract(f"^{NAMED} ([0-9]+)"),
            peer=pl.col("communicator").str.extract("((?:to|from) .*)").str.split(", "),
        )
        .explode("peer")
        .with_columns(
            sends=pl.col("peer").str.starts_with("to "),
            peer=pl.col("peer").str.extract("([0-9]+)$").cast(pl.Int64),
        )
    )
    sides = (
        sides.join(_members(sides), on=["within", "peer"], how="left", maintain_order="left")
        .with_columns(peer=pl.when(pl.col("within").is_null()).then("peer").otherwise("member"))
        .drop_nulls("peer")
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
        .drop("peer", "sends", "within", "member")
    )


def _members(sides: pl.DataFrame) -> pl.DataFrame:
    """within, peer, member: the rank of each member of a communicator, counted from 0.

    Frameworks count the members in the order of their ranks. Where somebody sends to a member
    beyond those that have a report, nobody knows who is who.

    Args:
        sides: rank, within (null: peers are ranks) and peer, a row for each send or receive.
    """
    known = sides.drop_nulls("within").group_by("within")
    return (
        known.agg(member=pl.col("rank").unique().sort(), highest=pl.col("peer").max())
        .filter(pl.col("highest") < pl.col("member").list.len())
        .explode("member")
        .with_columns(peer=pl.int_range(pl.len()).over("within"))
        .select("within", "peer", "member")
    )


def meetings(transfers: pl.DataFrame) -> pl.DataFrame:
    """Moments that two ranks share, of those that send to each other in an iteration.

    A receiver ends once its message has come, so the soonest transfer of each direction tells the
    distance of the clocks but for the time that the message took. If it took equally long both
    ways, the middle of the sender's start and its own receive's end is one moment on both clocks
    (as in NTP); whatever it took, that errs by at most half the sum.

    Args:
        transfers: the result of `Calls.peers`.

    Returns:
        one, other (ranks; the lower one first), iteration, own_ns and other_ns (the moment by
        their own clocks) and error_ns.
    """
    key, link = ["sender", "receiver", "iteration", "ordinal"], ["sender", "receiver", "iteration"]
    transfers = transfers.drop_nulls("sender")
    sides = transfers.with_columns(sends=pl.col("rank") == pl.col("sender"))
    sent, got = (sides.filter(sends=each) for each in (True, False))
    soonest = (
        sent.select(*key, sent="start_ns")
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
