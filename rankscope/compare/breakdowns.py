"""The rows of `imbalance --by`: the selected iterations, grouped another way."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from rankscope.model.kinds import PARTS, By
from rankscope.model.metrics import column_of

if TYPE_CHECKING:
    from rankscope.compare.comparison import Comparison
    from rankscope.model.results import Imbalance


def rows_by(
    by: By, comparison: Comparison, result: Imbalance, only: Collection[int] | None = None
) -> pl.DataFrame:
    """The rows of the table of `imbalance --by`.

    Args:
        by: what a row is about.
        comparison: up to its summary.
        result: `Comparison.imbalance`.
        only: ranks; None: all. Rows about an iteration or a collective are about all ranks.
    """
    numbers = comparison.selection.numbers
    chosen = pl.lit(True) if only is None else pl.col("rank").is_in(only)
    read = partial(comparison.tables.read, ranks=only, iterations=numbers)
    match by:
        case By.RANK:
            rows = result.ranks.filter(chosen)
        case By.HOST:
            rows = by_host(comparison.rows(("work", *PARTS), only))
        case By.ITERATION:
            rows = result.iterations
        case By.PHASE:
            rows = by_phase(comparison.rows(("iteration", *PARTS), only))
        case By.KERNEL:
            sums = read("activities", OF_KERNELS, sums=("count", "total_ns", "clear_ns"))
            rows = by_kernel(sums, comparison.roles.of, len(numbers))
        case By.CAUSE:
            sums = read("host_states", OF_CAUSES, sums=("count", "total_ns"))
            rows = by_cause(sums, comparison.roles.of, len(numbers))
        case By.COLLECTIVE:
            from rankscope.compare.collective_rows import by_collective

            rows = by_collective(comparison.collectives(numbers), numbers)
    return rows


def by_host(wide: pl.DataFrame) -> pl.DataFrame:
    """host, ranks, and the means of the parts of an iteration over its ranks and iterations."""
    names = ("work", *PARTS)
    return (
        wide.group_by("host")
        .agg(
            pl.col("rank").unique().sort().alias("ranks"),
            *(_mean(column_of(name)) for name in names),
        )
        .sort("work_ns", "host", descending=[True, False], nulls_last=True)
    )


def by_phase(wide: pl.DataFrame) -> pl.DataFrame:
    """phase, mean_ns over ranks and iterations, its share of the iteration, the slowest rank."""
    total = wide["iteration_ns"].mean()
    rows = []
    for name in PARTS:
        column = column_of(name)
        ranked = wide.group_by("rank").agg(_mean(column)).drop_nulls().sort(column, "rank")
        if ranked.is_empty():
            continue
        mean = wide[column].mean()
        assert isinstance(mean, float)
        low, high = ranked.row((ranked.height - 1) // 2), ranked.row(-1)
        rows.append(
            {
                "phase": name,
                "mean_ns": round(mean),
                "iteration_share": mean / total if isinstance(total, float) and total else None,
                "median_rank": low[0],
                "median_ns": low[1],
                "slowest_rank": high[0],
                "slowest_ns": high[1],
            }
        )
    return pl.DataFrame(rows)


OF_KERNELS = ("rank", "phase", "kind", "name")
"""The columns of ACTIVITIES whose sums `by_kernel` takes."""


def by_kernel(sums: pl.DataFrame, roles: dict[int, str], iterations: int) -> pl.DataFrame:
    """A row per phase and kernel (or other activity): which rank needs most of it.

    Args:
        sums: OF_KERNELS with count, total_ns and clear_ns, over all selected iterations.
        roles: rank → role.
        iterations: the number of these.

    Returns:
        phase, kind, name, count (per rank and iteration), mean_ns (per rank and iteration),
        slowest_rank (farthest above its role's median), slowest_ns, excess_ns (over that median),
        clear_share (of its time in operations without a collective at the same time).
    """
    per = sums.filter(pl.col("kind") != "range").with_columns(
        pl.col("total_ns", "count", "clear_ns") / iterations
    )
    is_timed = (pl.col("kind").first() != "idle") & (pl.col("total_ns").sum() > 0)
    clear = pl.when(is_timed).then(pl.col("clear_ns").sum() / pl.col("total_ns").sum())
    return _slowest_ranks(per, roles, [*OF_KERNELS[1:]], clear_share=clear)


OF_CAUSES = ("rank", "phase", "state", "name")
"""The columns of HOST_STATES whose sums `by_cause` takes."""


def by_cause(sums: pl.DataFrame, roles: dict[int, str], iterations: int) -> pl.DataFrame:
    """A row per phase, state and name of what the training threads did: which rank did most of it.

    Args:
        sums: OF_CAUSES with count and total_ns, over all selected iterations.
        roles: rank → role.
        iterations: the number of these.

    Returns:
        phase, state, name, count (per rank and iteration), mean_ns (per rank and iteration),
        slowest_rank (farthest above its role's median), slowest_ns, excess_ns (over that median).
        No rows where no report records what threads do.
    """
    per = sums.with_columns(pl.col("total_ns", "count") / iterations)
    return _slowest_ranks(per, roles, [*OF_CAUSES[1:]])


def _slowest_ranks(
    per: pl.DataFrame, roles: dict[int, str], key: list[str], **more: pl.Expr
) -> pl.DataFrame:
    """A row per `key`: its mean, and the rank farthest above its role's lower median.

    A rank without a row did nothing of it.

    Args:
        per: rank, `key`, total_ns and count per iteration.
        more: further columns, over the rows of a `key`.
    """
    per = per.with_columns(
        role=pl.col("rank").replace_strict(roles, default=None, return_dtype=pl.String)
    )
    ranks = per.group_by("role").agg(ranks=pl.col("rank").n_unique())
    # the place of the lower median among the role's ranks that have a row, the least first
    place = (pl.col("ranks") - 1) // 2 - (pl.col("ranks") - pl.len().over("role", *key))
    lower = pl.col("total_ns").rank("ordinal").over("role", *key) - 1 == place
    usual = pl.col("total_ns").filter(lower).sum().over("role", *key)
    return (
        per.join(ranks.cast({"ranks": pl.Int64}), on="role", nulls_equal=True)
        .with_columns(excess=pl.col("total_ns") - usual)
        .sort("excess", "rank", descending=[True, False])
        .group_by(key, maintain_order=True)
        .agg(
            count=(pl.col("count").sum() / per["rank"].n_unique()).round(1),
            mean_ns=_whole(pl.col("total_ns").sum() / per["rank"].n_unique()),
            slowest_rank=pl.col("rank").first(),
            slowest_ns=_whole(pl.col("total_ns").first()),
            excess_ns=_whole(pl.col("excess").first()),
            **more,
        )
        .sort("excess_ns", *key, descending=[True, False, False, False])
    )


def _whole(value: pl.Expr) -> pl.Expr:
    return value.round().cast(pl.Int64)


def _mean(column: str) -> pl.Expr:
    return pl.col(column).mean().round().cast(pl.Int64)
