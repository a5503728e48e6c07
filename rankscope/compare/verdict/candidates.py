"""Candidates: ranks that hold more of the excess than chance explains. See METHOD.md#verdict."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import polars as pl

from rankscope.compare.verdict.outliers import (
    FEW_RANKS,
    LEAST_EXCESS,
    ROBUST,
    modified_z,
    summed,
    surely_slow,
)
from rankscope.compare.verdict.roles_and_hosts import whole_hosts
from rankscope.compare.verdict.temporal import PERSISTENT, Pattern, pattern
from rankscope.model.kinds import VerdictKind

if TYPE_CHECKING:
    from rankscope.compare.verdict.inputs import VerdictInputs

APART = 0.075
"""Mean excess, as a share of the iteration, that sets a rank apart if its modified z among the
ranks also exceeds APART_Z: speeds drift by less."""

APART_Z, FAR_Z = 2.0, 8.0
"""Modified z among the ranks that sets a rank apart, the second for any mean excess: in a steady
job a small excess is certain."""

MANY = 0.25
"""Share of the ranks from which on slow ranks are a group, not stragglers."""

LEAST_COST = 0.01
"""Share of the time that a rank's flagged excess must cost before the rank is a candidate."""

CLEAR_COST = 0.005
"""The same for excess that is clear of noise."""

MAJORITY = 0.5
"""A rank that holds this share of all flagged excess is not one of many."""

LONE_SPIKE = 0.2
"""An excess in a single iteration must be at least this share of it: noise has spikes, too."""

STRONG = 0.10
"""Where flags are usually weaker than this share of the iteration, fixing them must save time."""

UNLIKELY = 0.001
"""Probability, over all ranks, that this many flags fall on one rank by chance."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Ranks that may be stragglers, and the ranks that are slow together."""

    ranks: list[int]  # the one with most excess first
    patterns: dict[int, Pattern]  # rank → when it is slow
    group: list[int]
    """Many ranks that are slow in most iterations, and that are not a minority on hosts of their
    own: none of them is a candidate only for being slow all the time."""


def candidates_of(inputs: VerdictInputs) -> Candidates:
    """The ranks whose flags, or whose usual speed, set them apart from the others."""
    flags, ranks = inputs.judged, len(inputs.ranks)
    found = _flagged_ranks(inputs)
    slow = _always_slow(flags, len(inputs.numbers))
    group = slow if len(slow) >= max(MANY * ranks, 2) else []
    minority = 2 * len(group) < ranks and inputs.replicas
    if group and minority and whole_hosts(group, inputs.hosts):
        # their host is slow, for they do what the others do
        found = [*found, *(rank for rank in group if rank not in found)]
        group = []
    apart = [] if group else _lying_apart(flags, slow)
    found = [*found, *(rank for rank in apart if rank not in found)]
    patterns = {rank: pattern(inputs.rows_of(rank), inputs.numbers) for rank in found}
    # A rank that is slow all the time must lie apart from all others, whose speeds differ as well,
    # and one of a slow group stands out only if it is slow in another way.
    found = [
        rank
        for rank in found
        if patterns[rank].kind != VerdictKind.PERSISTENT
        or patterns[rank].since is not None
        or rank in apart
        or (ranks < FEW_RANKS and not group)
    ]

    def excess_ns(rank: int) -> int:
        return summed(inputs.rows_of(rank, patterns[rank].iterations)["excess_ns"])

    found.sort(key=excess_ns, reverse=True)
    return Candidates(found, {rank: patterns[rank] for rank in found}, group)


def _flagged_ranks(inputs: VerdictInputs) -> list[int]:
    """Ranks whose flags cost something and did not fall on them by chance, worst first.

    Excess that is clear of noise need not cost as much as excess that is merely flagged.
    """
    flagged, ranks, total = inputs.flagged, len(inputs.ranks), inputs.total_ns
    surely = _holders(flagged.filter("clear"), ranks, CLEAR_COST * total, MAJORITY)
    share = MAJORITY if steady(inputs.judged) else None
    found = [
        rank
        for rank in _holders(flagged, ranks, LEAST_COST * total, share)
        if rank not in surely and _worth_it(inputs, rank)
    ]
    return surely + found


def steady(flags: pl.DataFrame) -> bool:
    """Whether iterations vary so little that a large excess is no extreme of the noise."""
    off = (pl.col("sudden_ns") - pl.col("sudden_ns").median()).abs().median()
    noise = flags.select(ROBUST * off / pl.col("length_ns").median()).item()
    return noise is not None and noise < LEAST_EXCESS


def _holders(flagged: pl.DataFrame, ranks: int, least: float, share: float | None) -> list[int]:
    """Ranks with at least `least` ns of the flagged excess, and more of it than chance explains.

    That is a share of `share` of all flagged excess, or too many of the flags.
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
        holds = share is not None and excess >= share * every
        if holds or _tail(count, flagged.height, ranks) * ranks < UNLIKELY:
            found.append(int(rank))
    return found


def _worth_it(inputs: VerdictInputs, rank: int) -> bool:
    """Whether a rank's flags are more than drifting speeds.

    Drift is small each time, and other ranks are nearly as slow then.
    """
    mine = inputs.flagged.filter(pl.col("rank") == rank)
    usual = mine.select((pl.col("excess_ns") / pl.col("length_ns")).median()).item()
    gain = inputs.gain_over_rest((rank,), mine["iteration"].to_list())
    return usual >= STRONG or gain is None or gain >= LEAST_COST * inputs.total_ns


def _always_slow(flags: pl.DataFrame, count: int) -> list[int]:
    """Ranks that are certainly slow on average, and slow in most iterations."""
    often = (
        flags.filter(pl.col("excess_ns") > LEAST_EXCESS * pl.col("length_ns"))
        .group_by("rank")
        .len()
        .filter(pl.col("len") >= PERSISTENT * count)
    )
    return surely_slow(flags.join(often, on="rank", how="semi"))


def _lying_apart(flags: pl.DataFrame, slow: list[int]) -> list[int]:
    """The certainly slow ranks whose mean excess lies apart from that of the other ranks."""
    means = flags.group_by("rank").agg(
        excess=pl.col("excess_ns").mean(),
        share=(pl.col("excess_ns") / pl.col("length_ns")).mean(),
    )
    z = modified_z(pl.col("excess"), [])
    apart = means.filter(((pl.col("share") > APART) & (z > APART_Z)) | (z > FAR_Z))
    return [rank for rank in slow if rank in apart["rank"]]


def _tail(count: int, flags: int, ranks: int) -> float:
    """Probability that at least `count` of `flags` fall on one given rank (normal tail)."""
    mean = flags / ranks
    deviation = (mean * (1 - 1 / ranks)) ** 0.5
    return 1.0 if deviation == 0 else 1 - NormalDist(mean, deviation).cdf(count - 0.5)
