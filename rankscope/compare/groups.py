"""The rows of `imbalance --by`: the chosen iterations, grouped another way."""

from __future__ import annotations

import polars as pl

from rankscope.align.match import Matched
from rankscope.compare.flags import lower_median

PARTS = ("load", "forward", "backward", "optimizer", "other", "exposed_communication")


def by_host(wide: pl.DataFrame) -> pl.DataFrame:
    """host, ranks, and the mean over its ranks and iterations of what an iteration is made of."""
    names = ("work", *PARTS)
    return (
        wide.group_by("host")
        .agg(
            pl.col("rank").unique().sort().alias("ranks"),
            *(_mean(f"{name}_ns") for name in names),
        )
        .sort("work_ns", "host", descending=[True, False], nulls_last=True)
    )


def by_phase(wide: pl.DataFrame) -> pl.DataFrame:
    """phase, mean_ns over ranks and iterations, its share of the iteration, the slowest rank."""
    total = wide["iteration_ns"].mean()
    rows = []
    for name in PARTS:
        column = f"{name}_ns"
        ranked = wide.group_by("rank").agg(_mean(column)).drop_nulls().sort(column, "rank")
        if ranked.is_empty():
            continue
        mean = wide[column].mean()
        low, high = ranked.row((ranked.height - 1) // 2), ranked.row(-1)
        rows.append(
            {
                "phase": name,
                "mean_ns": round(mean) if isinstance(mean, float) else None,
                "iteration_share": mean / total
                if isinstance(mean, float) and isinstance(total, float)
                else None,
                "median_rank": low[0],
                "median_ns": low[1],
                "slowest_rank": high[0],
                "slowest_ns": high[1],
            }
        )
    return pl.DataFrame(rows)


def by_collective(matched: Matched, numbers: tuple[int, ...]) -> pl.DataFrame:
    """A row per communicator, operation and ordinal: how long, who waits, who comes last.

    Columns: communicator, operation, ordinal, ranks, count, transfer_ns and wait_ns (means per
    rank and instance), last_rank (who came last most often), last_share.
    """
    key = ["communicator", "group", "operation", "ordinal"]
    instance = [*key, "place", "iteration"]
    timed = matched.instances.filter(pl.col("iteration").is_in(numbers)).with_columns(
        transfer_ns=pl.col("duration_ns").min().over(instance)
    )
    last = (
        timed.filter(pl.col("duration_ns") == pl.col("transfer_ns"))
        .group_by(*key, "rank")
        .agg(times=pl.len())
        .sort("times", "rank", descending=[True, False])
        .group_by(key, maintain_order=True)
        .agg(last_rank=pl.col("rank").first(), times=pl.col("times").first())
    )
    return (
        timed.group_by(key)
        .agg(
            ranks=pl.col("rank").unique().sort(),
            count=pl.col("iteration").n_unique(),
            transfer_ns=pl.col("transfer_ns").mean().round().cast(pl.Int64),
            wait_ns=(pl.col("duration_ns") - pl.col("transfer_ns")).mean().round().cast(pl.Int64),
        )
        .join(last, on=key, how="left")
        .with_columns(last_share=pl.col("times") / pl.col("count"))
        .sort("communicator", "group", "operation", "ordinal")
        .drop("times", "group")
    )


def by_iteration(wide: pl.DataFrame, iterations: pl.DataFrame) -> pl.DataFrame:
    """The iterations of `Imbalance` with the median rank's length in front."""
    lengths = wide.group_by("iteration").agg(lower_median(pl.col("iteration_ns")))
    return iterations.join(lengths, on="iteration", how="left").select(
        "iteration", "iteration_ns", "spread_ns", "slowest_rank", "flagged_ranks", "cause"
    )


def _mean(column: str) -> pl.Expr:
    return pl.col(column).mean().round().cast(pl.Int64)
