"""Whether a rank has more to do than its role: launches, grids and bytes, not their durations."""

from collections.abc import Collection

import polars as pl

from rankscope.judge.causes.context import Tables
from rankscope.util.numbers import sampled

SAME = 0.02
"""Amounts of work that differ by less than this share are the same work."""

TELLING = 0.05
"""Kernels whose amounts vary tell of those with a fixed grid from this share of the time on."""

MORE_WORK = pl.Schema(
    {
        "rank": pl.Int64,
        "more": pl.Boolean,  # ratio > 1 + SAME
        "ratio": pl.Float64,  # its work at the usual speed / the lower median of its role
        "extra_ns": pl.Float64,  # what it has beyond that median, at the usual speed
    }
)
"""Columns of `more_work`: a row per rank, of means per iteration; null is unknown."""


def more_work(tables: Tables, roles: dict[int, str], iterations: Collection[int]) -> pl.DataFrame:
    """Whether each rank has more to do than the median rank of its role, and how much.

    The amount of a kernel is its blocks (its launches where blocks are unknown), that of a copy or
    set its bytes. Each name's amount counts with the price that is usual in the role, the lower
    median of time per amount. So a rank with more tokens has a ratio above 1, and a slow device
    does not. See METHOD.md#causes.

    Args:
        tables: of the run (`registry.tables_of`, or `VerdictInputs.tables`).
        roles: rank → role.
        iterations: the selected or flagged ones; of many, an even sample.

    Returns:
        MORE_WORK in rank order, a row for every rank of `roles`. All but `rank` is null for a rank
        without kernels or copies there, and for the only rank of a role that has some.
    """
    rows = tables("activities", sampled(sorted(iterations)))
    every_rank = pl.DataFrame({"rank": sorted(roles)}, schema_overrides={"rank": pl.Int64})
    if rows is None:
        rows = pl.DataFrame(schema=_NEEDED)
    role = pl.col("rank").replace_strict(roles, default=None, return_dtype=pl.String)
    length = pl.col("iteration").n_unique().over("rank")
    sums = (
        rows.select(*_NEEDED)
        .filter(pl.col("kind").is_in(["kernel", "graph", "copy", "set"]))
        .cast({"rank": pl.Int64})
        .with_columns(length=length)
        .group_by("rank", "kind", "name", "length")
        .agg(pl.col("total_ns", "count", "size").sum())
        .with_columns(pl.col("total_ns", "count", "size") / pl.col("length"), role=role)
        .filter(pl.col("role").is_not_null() & _comparable())
    )
    sums = _with_variants(sums)
    return every_rank.join(_ratios(sums), on="rank", how="left").select(*MORE_WORK).cast(MORE_WORK)


_NEEDED = pl.Schema(
    {
        "rank": pl.Int64,
        "iteration": pl.Int64,
        "kind": pl.String,
        "name": pl.String,
        "total_ns": pl.Int64,
        "count": pl.Int64,
        "size": pl.Int64,
    }
)


def _comparable() -> pl.Expr:
    """Whether a kernel is known by name on every rank of the role that has it.

    Minor kernels share a row without a name. Where a role has such rows, a name that some rank
    lacks may be in them.
    """
    kernel = pl.col("kind") == "kernel"
    minor = kernel & (pl.col("name") == "")
    return ~minor & (~kernel | _everywhere() | ~minor.any().over("role"))


def _everywhere() -> pl.Expr:
    """Whether all ranks of the role have something of this name."""
    return pl.len().over("role", "kind", "name") == pl.col("rank").n_unique().over("role")


def _with_variants(sums: pl.DataFrame) -> pl.DataFrame:
    """The same with one name for kernels that ranks run where others run another one.

    Libraries choose such kernels. That is so where every rank of the role launches as many kernels
    that some rank lacks; their blocks tell nothing.

    Args:
        sums: as `_ratios` takes them.
    """
    marked = sums.with_columns(variant=(pl.col("kind") == "kernel") & ~_everywhere())
    launches = pl.col("count").filter(pl.col("variant")).sum().over("rank")
    counted = marked.with_columns(launches=launches)
    fewest, most = pl.col("launches").min().over("role"), pl.col("launches").max().over("role")
    chosen = pl.col("variant") & (fewest >= (1 - SAME) * most)
    named = counted.with_columns(
        name=pl.when(~chosen).then("name"), size=pl.when(~chosen).then("size")
    )
    return named.group_by("rank", "role", "kind", "name").agg(
        pl.col("total_ns", "count", "size").sum()
    )


def _ratios(sums: pl.DataFrame) -> pl.DataFrame:
    """MORE_WORK of the ranks that have something.

    Args:
        sums: rank, role, kind, name, total_ns, count, size: means per iteration.
    """
    time, amount, price = pl.col("total_ns"), pl.col("amount"), pl.col("price")

    def usual(value: pl.Expr) -> pl.Expr:
        return value.quantile(0.5, "lower").over("role", "kind", "name")

    sized = (pl.col("size") > 0).all().over("role", "kind", "name")
    work, median = pl.col("work"), pl.col("work").quantile(0.5, "lower").over("role")
    return (
        sums.with_columns(amount=pl.when(sized).then("size").otherwise("count"))
        .with_columns(price=usual(time / amount), usual=usual(amount))
        .with_columns(
            work=at_usual_speed(price * pl.col("usual"), amount / pl.col("usual"), time, "rank")
        )
        .group_by("rank", "role")
        .agg(pl.when(work.is_not_null().any()).then(work.sum()))
        .filter(pl.len().over("role") > 1)
        .with_columns(ratio=pl.when((work / median).is_finite()).then(work / median))
        .with_columns(extra_ns=work - median, more=pl.col("ratio") > 1 + SAME)
    )


def at_usual_speed(usual: pl.Expr, ratio: pl.Expr, took: pl.Expr, *over: str) -> pl.Expr:
    """The time that an activity would take at the usual speed, ns.

    That of a kernel whose amount does not vary is bounded: it takes longer by no more than the
    share that the others grow by together, and the device is as fast as in these. They tell
    something if they take `TELLING` of the time. See METHOD.md#causes.

    Args:
        usual: the usual time.
        ratio: amount / usual amount.
        took: the time that it took.
        over: of which other kernels; all, if none is given.
    """
    kernel, fixed = pl.col("kind") == "kernel", ratio.is_between(1 - SAME, 1 + SAME)

    def of(value: pl.Expr, chosen: pl.Expr) -> pl.Expr:
        total = value.filter(kernel & chosen).sum()
        return total.over(*over) if over else total

    given, varies = usual * ratio, ~fixed & (ratio > 0)
    growth = of(given, varies) / of(usual, varies)
    slowness = pl.max_horizontal(of(took, varies) / of(given, varies), 1.0)
    told = (growth > 1) & (of(usual, varies) >= TELLING * of(usual, pl.lit(True)))
    longer = (took / slowness).clip(usual, usual * growth)
    return pl.when(kernel & fixed & told).then(longer).otherwise(given)
