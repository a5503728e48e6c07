"""Cells of excess, a rank in an iteration: what is noise, what is an event, what healing takes out.

See METHOD.md#verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rankscope.judge.excess import Excess, Flags, Index
from rankscope.judge.levels import FEW, MUCH, NOISE
from rankscope.util.numbers import ROBUST
from rankscope.util.robust import Floats


def event_of(noise: float) -> float:
    """The share of an iteration from which on an excess is an event."""
    return max(NOISE * noise, MUCH)


def noise_of(share: Floats, roles: Index) -> float:
    """How far a rank usually wanders around its own median.

    From the differences of ranks of a role that are about equally slow, which contain the noise of
    two ranks: no rank is the median then, whose excess is 0. A quarter of the pairs wander less:
    slow and noisy ranks do not count while they are few.
    The median deviation of few values is low (Croux, Rousseeuw, Comput. Stat. 1992). Of fewer than
    FEW iterations it is how far these ranks lie from each other.

    Args:
        share: rank by iteration, as shares of the iteration.
        roles: of the ranks.
    """
    spread = []
    for role in np.unique(roles):
        some = share[roles == role]
        some = some[np.argsort(np.nan_to_num(some).mean(axis=1), kind="stable")]
        apart = some[1:] - some[:-1] if len(some) < FEW else some - np.roll(some, 1, axis=0)
        for each in apart:
            known = each[~np.isnan(each)]
            if len(known) >= FEW:
                off = np.median(np.abs(known - np.median(known)))
                spread.append(off * len(known) / (len(known) - 0.8))
            elif len(known):
                spread.append(np.median(np.abs(known)))
    return ROBUST / math.sqrt(2) * float(np.quantile(spread, 0.25)) if spread else 0.0


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
