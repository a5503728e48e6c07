"""Iterations compared with each other: which are slow, and why."""

import polars as pl

from rankscope.judge.levels import HALF, MUCH
from rankscope.model.kinds import PARTS
from rankscope.model.metrics import METRICS, column_of
from rankscope.util.robust import LEAST_Z, lower_median, modified_z

NORMAL = "normal"

EITHER = "waiting or transfer"
"""The name of communication where waits are unknown."""


def by_iteration(
    rows: pl.DataFrame, flags: pl.DataFrame | None, numbers: tuple[int, ...], metric: str
) -> pl.DataFrame:
    """A row per iteration: spread between ranks, who is slowest, who is flagged, its cluster.

    Args:
        rows: of the metric table, in these iterations.
        flags: the result of `flags.flagged`; None where nothing can be judged.
        metric: the metric of the spread.

    Returns:
        iteration, iteration_ns (the median rank's), spread_ns (`spread` unless the metric is a
        time), slowest_rank, cause (phase of the largest flagged excess), flagged_ranks, cluster.
    """
    value = pl.col(column_of(metric))
    spread = (
        rows.select("rank", "iteration", value)
        .drop_nulls()
        .sort("rank")
        .group_by("iteration")
        .agg(
            (value.max() - value.min()).alias(METRICS[metric].key("spread")),
            slowest_rank=pl.col("rank").gather(value.arg_max()).first(),
        )
    )
    lengths = rows.group_by("iteration").agg(lower_median(pl.col("iteration_ns")))
    worst = _worst_flags(flags)
    frame = (
        pl.DataFrame({"iteration": numbers}, schema={"iteration": pl.Int64})
        .join(lengths, on="iteration", how="left")
        .join(spread, on="iteration", how="left")
        .join(worst, on="iteration", how="left")
        .sort("iteration")
    )
    return frame.join(_clusters(rows, frame), on="iteration", how="left").drop("excess_ns")


def _worst_flags(flags: pl.DataFrame | None) -> pl.DataFrame:
    """iteration, cause, flagged_ranks (worst first), excess_ns of the worst."""
    if flags is None:
        return pl.DataFrame(
            schema={
                "iteration": pl.Int64,
                "cause": pl.String,
                "flagged_ranks": pl.List(pl.Int64),
                "excess_ns": pl.Int64,
            }
        )
    return (
        flags.filter("flagged")
        .sort("excess_ns", "rank", descending=[True, False])
        .group_by("iteration", maintain_order=True)
        .agg(pl.col("cause").first(), flagged_ranks=pl.col("rank"), excess_ns=pl.first("excess_ns"))
    )


def _clusters(rows: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """iteration, cluster: `normal`, or `slow: …` with the reason.

    An iteration is slow if a rank is flagged in it, or if it is longer than the median iteration by
    more than `MUCH` and by a modified z above `LEAST_Z`. The reason is the flagged rank, unless its
    excess explains less than half of the extra time: then it is the part that grew most on the
    median rank. Where no phase is known, what would be `other` is all work.

    Args:
        frame: iteration, iteration_ns, and the columns of `_worst_flags`.
    """
    length = pl.col("iteration_ns")
    extra = length - lower_median(length)
    long = (extra > MUCH * lower_median(length)) & (modified_z(length, []) > LEAST_Z)
    exposed, wait = pl.col("exposed_communication_ns"), pl.col("wait_ns")
    others = [part for part in PARTS if part != "exposed_communication"]
    parts = [
        pl.when(exposed.is_not_null()).then(wait).alias("waiting"),
        pl.coalesce(exposed - wait, 0).alias("transfer"),
        # The arrivals of ranks without a report are unknown.
        pl.when(wait.is_null()).then(exposed).otherwise(0).alias(EITHER),
        *(pl.col(column_of(part)).alias(part) for part in others),
    ]
    names = ["waiting", "transfer", EITHER, *others]
    medians = (
        rows.select("iteration", *parts)
        .group_by("iteration")
        .agg(pl.col(name).median() for name in names)
    )
    grown = medians.with_columns(pl.col(name) - pl.col(name).median() for name in names)
    largest = pl.max_horizontal(names)
    reason = grown.select(
        "iteration",
        part=pl.coalesce(pl.when(pl.col(name) == largest).then(pl.lit(name)) for name in names),
    )
    by_rank = pl.col("excess_ns") >= HALF * extra
    phased = [column_of(part) for part in others if part != "other"]
    unnamed = rows.select(pl.all_horizontal(pl.col(phased).is_null()).all()).item()
    renamed = {"other": "work"} if unnamed else {}
    return (
        frame.join(reason, on="iteration", how="left")
        .with_columns(extra=extra, long=long)
        .select(
            "iteration",
            cluster=pl.when(length.is_null())
            .then(None)
            .when(~pl.col("long") & pl.col("excess_ns").is_null())
            .then(pl.lit(NORMAL))
            .when((by_rank | ~pl.col("long")) & pl.col("excess_ns").is_not_null())
            .then(
                pl.format(
                    "slow: {} of rank {}",
                    pl.col("cause").fill_null("work").replace(renamed),
                    pl.col("flagged_ranks").list.first(),
                )
            )
            .otherwise(
                pl.format(
                    "slow: {} of all ranks",
                    pl.col("part").fill_null("unknown part").replace(renamed),
                )
            ),
        )
    )
