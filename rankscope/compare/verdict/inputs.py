"""What a verdict rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verdict rests on."""

    flags: pl.DataFrame  # as `flags.flag` returns it
    wide: pl.DataFrame  # rank, role, iteration, `<metric>_ns`
    metric: str  # what was flagged: work, or load where work is unknown
    hosts: dict[int, str | None]
    missing: int  # ranks of the job that no report is of
    activities: Callable[[list[int]], pl.DataFrame]
    """ACTIVITIES in some iterations."""
    replicas: bool  # it is known that the ranks of a role do the same work
    replayed: Callable[[tuple[int, ...], list[int]], int | None]
    """Time saved if the ranks were at their role's median in the iterations; None: unknown."""


def rows_of(flags: pl.DataFrame, rank: int) -> pl.DataFrame:
    """The rows of one rank."""
    return flags.filter(pl.col("rank") == rank)


def gain_over_rest(evidence: Evidence, ranks: tuple[int, ...], iterations: list[int]) -> int | None:
    """Time saved if the ranks had been like the slowest of the others in those iterations."""
    if evidence.metric != "work":
        return None
    work = evidence.wide.filter(pl.col("iteration").is_in(iterations))
    theirs = pl.col("rank").is_in(ranks)
    per = work.group_by("iteration").agg(
        slowest=pl.col("work_ns").max(), rest=pl.col("work_ns").filter(~theirs).max()
    )
    return summed((per["slowest"] - per["rest"]).drop_nulls())


def time_of(flags: pl.DataFrame) -> int:
    """The chosen iterations' time: the sum of the median rank's iterations."""
    per = flags.group_by("iteration").agg(pl.col("length_ns").max())
    return summed(per["length_ns"])


def summed(values: pl.Series) -> int:
    """The sum, 0 of nothing."""
    return int(values.sum() or 0)
