"""Sends and receives in a replay: a receive ends with what it waits for, a send may go before.

See METHOD.md#what-if.
"""

import polars as pl

from rankscope.match.clocks import Aligner


def with_sends(
    rows: pl.DataFrame, group: pl.Series, senders: dict[int, int], aligner: Aligner
) -> pl.DataFrame:
    """The calls with `sends`, and `eager`: sends that go without their receiver.

    A send that ended before its receiver came did not wait for it. Nor is one taken to wait that
    shares its kernel with a receive: it ends as it begins. Of several receives in a kernel each
    ends as long before the kernel as its sender came before the last of theirs.

    Args:
        rows: rank, instance, arrival_ns and end_ns; a row for each transfer of a kernel.
        group: of each row.
        senders: group → who sends, where a group is a sender and a receiver.
        aligner: brings the times of a rank's own axis to the one clock.
    """
    rows = rows.with_columns(sends=pl.lit(False), eager=pl.lit(False))
    if not senders:
        return rows
    sender = group.replace_strict(senders, default=None, return_dtype=rows["rank"].dtype)
    sides = (
        rows.with_columns(sends=sender == rows["rank"]).with_row_index("row").drop_nulls("sends")
    )
    rank = sides["rank"].to_numpy()
    arrived, ended = (
        aligner.each(rank, sides[name].to_numpy()) for name in ("arrival_ns", "end_ns")
    )
    came, sends = pl.col("came"), pl.col("sends")
    receives = pl.when(~sends).then(came).max().over("rank", "arrival_ns", "end_ns")
    sooner = pl.when(sends).then(pl.col("end_ns") - pl.col("arrival_ns")).otherwise(receives - came)
    sides = (
        sides.with_columns(came=pl.Series(arrived), ended=pl.Series(ended))
        .with_columns(came=came.max().over("instance"))
        .with_columns(
            eager=sends & ((pl.col("ended") < came) | receives.is_not_null()),
            end_ns=pl.when(receives.is_null())
            .then("end_ns")
            .otherwise(pl.max_horizontal("arrival_ns", pl.col("end_ns") - sooner)),
        )
    )
    return rows.with_columns(
        rows[name].scatter(sides["row"], sides[name]) for name in ("end_ns", "sends", "eager")
    )
