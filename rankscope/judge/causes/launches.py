"""Kernels launch by launch: a slow rank's against its role's, at the same overlap."""

import polars as pl

ENOUGH_LAUNCHES = 16
"""Iterations whose launches are compared."""

SLOWDOWN = pl.Schema(
    {
        "name": pl.String,  # of the kernel
        "slowdown": pl.Float64,  # how much longer the same launches take at the same overlap
        "clear": pl.Float64,  # the median of it clear of collectives, in the phase
        "beside": pl.Float64,  # the same beside them
    }
)
"""Columns of `same_overlap`: a row per kernel; 0.2 is 20 % longer, null where nothing compares."""

_LAUNCH = ["role", "iteration", "phase", "name", "count", "place", "beside"]
"""Columns that are equal for launches that are compared."""


def same_overlap(
    activities: pl.DataFrame, roles: dict[int, str], slow: pl.DataFrame, phase: str | None
) -> pl.DataFrame:
    """How much longer the slow ranks' launches take than the same ones of their role.

    Two launches are the same if they have the same name, ordinal and overlap: both ran beside a
    collective, or neither did. The usual length is the lower median of the ranks that have such a
    launch in the iteration. A kernel without such launches has the slowdown of the phase's other
    kernels, or of all phases: the device is the same. See METHOD.md#causes.

    Args:
        activities: ACTIVITIES of all ranks and phases in the flagged iterations.
        roles: rank → role.
        slow: rank, iteration of the slow ranks.
        phase: the launches of this phase are compared; None: of all.
    """
    numbers = slow["iteration"].unique().sort()
    numbers = numbers.gather_every(-(-max(1, len(numbers)) // ENOUGH_LAUNCHES))
    kernels = activities.filter(
        pl.col("iteration").is_in(numbers.implode()) & (pl.col("kind") == "kernel")
    )
    role = pl.col("rank").replace_strict(roles, default=None, return_dtype=pl.String)
    launches = (
        kernels.lazy()
        .filter(pl.col("launches").list.len() > 0)
        .select("rank", *_LAUNCH[1:5], "launches", role=role)
        .with_columns(place=pl.int_ranges(pl.col("launches").list.len()))
        .explode("launches", "place")
        .drop_nulls("launches")
        .with_columns(beside=pl.col("launches") < 0, length=pl.col("launches").cast(pl.Int64).abs())
    )
    key, then = ["rank", "iteration"], slow.lazy().select("rank", "iteration")
    usual = (
        launches.join(then, on=key, how="anti")
        .group_by(_LAUNCH)
        .agg(usual=pl.col("length").quantile(0.5, "lower"))
    )
    same = (
        launches.join(then, on=key, how="semi")
        .join(usual, on=_LAUNCH)
        .with_columns(here=pl.lit(True) if phase is None else pl.col("phase") == phase)
        .collect()
    )
    sums = same.group_by("name", "here").agg(pl.col("length", "usual").sum())
    longer, beside = pl.col("length") / pl.col("usual") - 1, pl.col("beside")
    own = (
        same.filter("here")
        .group_by("name")
        .agg(clear=longer.filter(~beside).median(), beside=longer.filter(beside).median())
        .drop_nulls()
    )
    others = own.select(pl.col("clear", "beside").mean())
    names = kernels.filter(pl.col("name") != "").select("name").unique()
    overall = sums.select("length", "usual").sum()
    in_phase = sums.filter("here")
    of_phase = in_phase.select("length", "usual").sum()
    return (
        names.join(in_phase, on="name", how="left")
        .join(of_phase, how="cross", suffix="_phase")
        .join(overall, how="cross", suffix="_every")
        .join(own, on="name", how="left")
        .join(others, how="cross", suffix="_others")
        .select(
            "name",
            *(pl.coalesce(name, f"{name}_others") for name in ("clear", "beside")),
            slowdown=pl.coalesce(map(_slowdown, ("", "_phase", "_every"))),
        )
    )


def _slowdown(of: str) -> pl.Expr:
    """Null where nothing was compared."""
    length, usual = pl.col(f"length{of}"), pl.col(f"usual{of}")
    return pl.when(usual > 0).then(length / usual - 1)
