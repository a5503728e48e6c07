"""Kernels launch by launch: a slow rank's against its role's, at the same overlap."""

from __future__ import annotations

import polars as pl

ENOUGH_LAUNCHES = 16
"""Iterations whose launches are compared."""

SLOWDOWN = pl.Schema(
    {
        "name": pl.String,  # of the kernel
        "slowdown": pl.Float64,  # how much longer the same launches take at the same overlap
    }
)
"""What `same_overlap` gives: a row per kernel; 0.2 is 20 % longer, null where nothing compares."""

_LAUNCH = ["role", "iteration", "phase", "name", "count", "place", "beside"]
"""What is the same for launches that are compared."""


def same_overlap(
    activities: pl.DataFrame, roles: dict[int, str], slow: pl.DataFrame
) -> pl.DataFrame:
    """How much longer the slow ranks' launches take than the same ones of their role.

    Two launches are the same if they have the same name, ordinal and overlap: both ran beside a
    collective, or neither did. The usual length is the lower median of the ranks that have such a
    launch in the iteration. A kernel without such launches takes the slowdown of all kernels of
    the ranks: the device is the same. See METHOD.md#causes.

    Args:
        activities: ACTIVITIES of all ranks and phases in the flagged iterations.
        roles: rank → role.
        slow: rank, iteration of the slow ranks.
    """
    numbers = slow["iteration"].unique().sort()
    numbers = numbers.gather_every(-(-max(1, len(numbers)) // ENOUGH_LAUNCHES))
    kernels = activities.filter(
        pl.col("iteration").is_in(numbers.implode()) & (pl.col("kind") == "kernel")
    )
    role = pl.col("rank").replace_strict(roles, default=None, return_dtype=pl.String)
    each = (
        kernels.lazy()
        .filter(pl.col("launches").list.len() > 0)
        .select("rank", *_LAUNCH[1:5], "launches", role=role)
        .with_columns(place=pl.int_ranges(pl.col("launches").list.len()))
        .explode("launches", "place")
        .drop_nulls("launches")
        .with_columns(beside=pl.col("launches") < 0, length=pl.col("launches").abs())
    )
    usual = each.group_by(_LAUNCH).agg(
        usual=pl.col("length").quantile(0.5, "lower"), ranks=pl.len()
    )
    sums = (
        each.join(slow.lazy().select("rank", "iteration"), on=["rank", "iteration"], how="semi")
        .join(usual.filter(pl.col("ranks") > 1), on=_LAUNCH)
        .group_by("name")
        .agg(pl.col("length", "usual").sum())
        .collect()
    )
    names = kernels.select("name").unique().filter(pl.col("name") != "")
    slowdown = pl.col("length") / pl.col("usual") - 1
    of_all = pl.col("length").sum() / pl.col("usual").sum() - 1
    return names.join(sums, on="name", how="left").select(
        "name",
        slowdown=pl.coalesce(pl.when(each.is_finite()).then(each) for each in (slowdown, of_all)),
    )
