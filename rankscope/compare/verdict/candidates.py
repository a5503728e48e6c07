"""Which ranks hold more of the excess than chance gives a rank (method section 9)."""

from __future__ import annotations

from statistics import NormalDist

import polars as pl

from rankscope.compare.verdict.inputs import Evidence, gain_over_rest, rows_of, summed
from rankscope.compare.verdict.outliers import LEAST_EXCESS, ROBUST, modified_z, surely_slow
from rankscope.compare.verdict.temporal import PERSISTENT

APART = 0.075
"""Mean excess, as a share of the iteration, that sets a rank apart: speeds drift by less …"""

APART_Z, FAR_Z = 2.0, 8.0
"""… if its modified z among the ranks passes the first, or whatever it is if it passes the second:
in a steady job a small excess is sure."""

LEAST_COST = 0.01
"""Share of the time that a rank's flagged excess must cost before the rank is accused."""

CLEAR_COST = 0.005
"""The same for excess that is clear of noise."""

MAJORITY = 0.5
"""A rank that holds this share of all flagged excess is not one of many."""

LONE_SPIKE = 0.2
"""An excess in a single iteration must be at least this share of it: noise spikes too."""

STRONG = 0.10
"""Flags that are usually weaker than this share of the iteration must be worth mending."""

UNLIKELY = 0.001
"""Chance of so many flags on one rank if they fell anywhere, over all ranks."""


def accused_ranks(evidence: Evidence, ranks: int, total: int) -> list[int]:
    """Ranks whose flags cost something and did not fall on them by chance, worst first.

    What is clear of noise need not cost as much as what is merely flagged.
    """
    flagged = evidence.flags.filter("flagged")
    surely = _owners(flagged.filter("clear"), ranks, CLEAR_COST * total, MAJORITY)
    share = MAJORITY if steady(evidence.flags) else None
    found = [
        rank
        for rank in _owners(flagged, ranks, LEAST_COST * total, share)
        if rank not in surely and _worth_it(evidence, rank, total)
    ]
    return surely + found


def steady(flags: pl.DataFrame) -> bool:
    """Whether iterations vary so little that a large excess is more than the farthest of many."""
    off = (pl.col("sudden_ns") - pl.col("sudden_ns").median()).abs().median()
    noise = flags.select(ROBUST * off / pl.col("length_ns").median()).item()
    return noise is not None and noise < LEAST_EXCESS


def _owners(flagged: pl.DataFrame, ranks: int, least: float, share: float | None) -> list[int]:
    """Ranks with at least `least` of the flagged excess, and more of it than chance gives one.

    That is `share` of it all, or too many of the flags.
    """
    every = summed(flagged["excess_ns"])
    found = []
    for rank, excess, count, highest in (
        flagged.group_by("rank")
        .agg(
            excess=pl.col("excess_ns").sum(),
            count=pl.len(),
            highest=(pl.col("excess_ns") / pl.col("length_ns")).max(),
        )
        .sort("excess", "rank", descending=[True, False])
        .iter_rows()
    ):
        if excess < least or (count == 1 and highest < LONE_SPIKE):
            continue
        owns = share is not None and excess >= share * every
        if owns or _tail(count, flagged.height, ranks) * ranks < UNLIKELY:
            found.append(int(rank))
    return found


def _worth_it(evidence: Evidence, rank: int, total: int) -> bool:
    """Whether it is more than drifting speeds: little each time, and others nearly as slow then."""
    mine = rows_of(evidence.flags.filter("flagged"), rank)
    usual = mine.select((pl.col("excess_ns") / pl.col("length_ns")).median()).item()
    gain = gain_over_rest(evidence, (rank,), mine["iteration"].to_list())
    return usual >= STRONG or gain is None or gain >= LEAST_COST * total


def always_slow(flags: pl.DataFrame, count: int) -> list[int]:
    """Ranks that are surely slow on average, and slow in most iterations."""
    often = (
        flags.filter(pl.col("excess_ns") > LEAST_EXCESS * pl.col("length_ns"))
        .group_by("rank")
        .len()
        .filter(pl.col("len") >= PERSISTENT * count)
    )
    return surely_slow(flags.join(often, on="rank", how="semi"))


def outliers(flags: pl.DataFrame, slow: list[int]) -> list[int]:
    """Those of the surely slow ranks whose mean excess lies apart from the other ranks'."""
    means = flags.group_by("rank").agg(
        excess=pl.col("excess_ns").mean(),
        share=(pl.col("excess_ns") / pl.col("length_ns")).mean(),
    )
    z = modified_z(pl.col("excess"), [])
    apart = means.filter(((pl.col("share") > APART) & (z > APART_Z)) | (z > FAR_Z))
    return [rank for rank in slow if rank in apart["rank"]]


def _tail(count: int, flags: int, ranks: int) -> float:
    """Chance that at least `count` of `flags` fall on one given rank of `ranks` (normal tail)."""
    mean = flags / ranks
    deviation = (mean * (1 - 1 / ranks)) ** 0.5
    return 1.0 if deviation == 0 else 1 - NormalDist(mean, deviation).cdf(count - 0.5)
