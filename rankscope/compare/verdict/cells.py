"""Cells of excess, a rank in an iteration: what is noise, what is an event, what healing takes out.

See METHOD.md#verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.compare.robust import ROBUST, Floats
from rankscope.compare.verdict.excess import Excess, Flags, Index

EVENT = 5.0
"""Robust deviations above which an excess is an event, however many ranks and iterations."""

LEAST_EVENT = 0.03
"""Share of its iteration that an event exceeds: a smaller one costs nothing."""

ONE_SIDED = 1.7
"""Robust deviation of a normal value around its median, beside that of its absolute value."""

FEWEST_FOR_NOISE = 3
"""Iterations from which on a rank's own median tells what is usual for it."""


def event_of(noise: float) -> float:
    """The share of an iteration from which on an excess is an event."""
    return max(EVENT * noise, LEAST_EVENT)


def noise_of(share: Floats, roles: Index) -> float:
    """How far a rank usually wanders around its own median: the median over the ranks.

    Slow ranks do not count in it while they are fewer than the others. Of fewer than
    FEWEST_FOR_NOISE iterations it is how far ranks lie from the median rank.

    Args:
        share: rank by iteration, as shares of the iteration.
        roles: of the ranks.
    """
    two = bool((np.bincount(roles) <= 2).all())
    known = np.where(share == 0, np.nan, share) if two else share  # one of them is the median
    count = (~np.isnan(known)).sum(axis=1)
    enough = count >= FEWEST_FOR_NOISE
    if not count.any():
        return 0.0
    if not enough.any():
        return ROBUST * float(np.nanmedian(np.abs(known)))
    own = np.nanmedian(known[enough], axis=1, keepdims=True)
    off = np.nanmedian(np.abs(known[enough] - own), axis=1)
    off *= count[enough] / (count[enough] - 0.8)  # of few values it is low: Croux, Rousseeuw 1992
    usual = np.min(off) * ONE_SIDED if two else np.median(off)
    return ROBUST * float(usual)


def amounts(excess: Excess, noise: float, where: Flags) -> Floats:
    """What healing some cells takes out, in ns, rank by iteration.

    Each rank's usual excess there, and what lies beyond twice the noise around it: a rank that is
    healed keeps its noise.

    Args:
        excess: of all ranks.
        noise: as in `Story`.
        where: the cells.
    """
    found = np.zeros(excess.total.shape)
    for rank in np.flatnonzero(where.any(axis=1)):
        here = where[rank] & ~np.isnan(excess.total[rank])
        share = excess.total[rank, here] / excess.unit[rank, here]
        if len(share):
            level = float(np.median(share))
            rest = share - level
            beyond = np.sign(rest) * np.maximum(np.abs(rest) - 2 * noise, 0.0)
            found[rank, here] = np.maximum(level + beyond, 0.0) * excess.unit[rank, here]
    return found


def places_of(excess: Excess, ranks: Sequence[int]) -> Index:
    """The places of some ranks."""
    return np.flatnonzero(np.isin(excess.ranks, ranks))


def where_of(excess: Excess, members: Sequence[int] | Index, iterations: Sequence[int]) -> Flags:
    """The cells, rank by iteration, of some ranks (by their places) in some iterations."""
    where = np.zeros(excess.total.shape, dtype=np.bool_)
    where[np.ix_(np.asarray(members), np.isin(excess.numbers, iterations))] = True
    return where
