"""The level of a rank: its usual excess, with change points. See METHOD.md#verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.compare.robust import Floats, deviation
from rankscope.compare.verdict.excess import Excess, Index

BELIEVED = 0.6
"""Two levels are believed where they leave less than this share of the absolute deviations."""

BIMODAL = 0.35
"""The same for two values that take turns: noise alone leaves 0.6."""

FEWER_RUNS = 0.75
"""Share of the runs that chance gives, below which a rank's slow iterations come in spells."""

SHORTEST_SPELL = 4
"""Iterations that a spell, or the time between two, lasts at least."""

AROUND = 2
"""Neighbours on either side that decide with an iteration whether it belongs to a spell."""

EVENT_NOISE = 5.0
"""Robust deviations of all ranks' noise that an event exceeds."""

LEAST_EVENT = 0.03
"""Share of its iteration that an event exceeds."""

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """What is usual for each rank, and what is not; matrices of rank by iteration.

    `usual`: the level in ns. `code`: iterations of a rank with equal codes share a level. `high`:
    the rank is in a slow spell. `events`: ns above the level where that is an event, else 0.
    `noise`: robust deviation of the rest, as a share of the iteration.
    """

    usual: Floats
    code: Index
    high: Flags
    events: Floats
    noise: float


def levels_of(excess: Excess) -> Levels:
    """The level of every rank, and its events."""
    total = excess.total
    code = np.broadcast_to(excess.kinds * 2, total.shape).copy()
    usual = grouped_median(total, code)
    high = np.zeros(total.shape, dtype=np.bool_)
    noise = deviation((total - usual) / excess.unit)
    # only ranks that exceed their level clearly and often may have two
    beyond = (np.abs(total - usual) / excess.unit > 2 * noise).sum(axis=1)
    for rank in np.flatnonzero(beyond >= SHORTEST_SPELL - 1):
        two = two_levels((total[rank] - usual[rank]) / excess.unit[rank])
        if two is not None:
            high[rank] = two
            code[rank] += two
            usual[rank] = grouped_median(total[rank : rank + 1], code[rank : rank + 1])[0]
            continue
        low = below_turns((total[rank] - usual[rank]) / excess.unit[rank])
        if low is not None:
            usual[rank] += low * excess.unit[rank]
    rest = (total - usual) / excess.unit
    noise = deviation(rest)
    events = np.where(rest > max(EVENT_NOISE * noise, LEAST_EVENT), total - usual, 0.0)
    return Levels(usual, code, high, np.nan_to_num(events), noise)


def grouped_median(values: Floats, code: Index) -> Floats:
    """The median over the iterations of a rank that share a code, at each of them."""
    found = np.full(values.shape, np.nan)
    for each in np.unique(code):
        here = code == each
        masked = np.where(here, values, np.nan)
        some = (~np.isnan(masked)).any(axis=1)
        if some.any():
            middle = np.full(len(values), np.nan)
            middle[some] = np.nanmedian(masked[some], axis=1)
            found = np.where(here, middle[:, None], found)
    return found


def split(values: Floats) -> tuple[float, float]:
    """The value between two groups, and the share of absolute deviations that they leave.

    The groups are those whose two medians leave the smallest sum of absolute deviations.
    """
    ordered = np.sort(values)
    count = len(ordered)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))

    def left(low: Index, high: Index) -> Floats:
        middle = (low + high) // 2
        upper = sums[high] - sums[middle] - ordered[middle] * (high - middle)
        lower = ordered[middle] * (middle - low) - (sums[middle] - sums[low])
        return np.asarray(upper + lower)

    ends = np.array([count])
    one = float(left(np.array([0]), ends)[0])
    cuts = np.arange(1, count)
    both = left(np.zeros_like(cuts), cuts) + left(cuts, np.full_like(cuts, count))
    best = int(both.argmin())
    border = (ordered[cuts[best] - 1] + ordered[cuts[best]]) / 2
    return float(border), float(both[best] / one) if one > 0 else 1.0


def two_levels(values: Floats) -> Flags | None:
    """In which iterations a rank is on the higher of two levels; None where it has one.

    Each level lasts at least `SHORTEST_SPELL` iterations.
    """
    known = ~np.isnan(values)
    if known.sum() < 2 * SHORTEST_SPELL:
        return None
    values = np.where(known, values, np.nanmedian(values))
    border, rest = split(values)
    if rest >= BELIEVED or not _lasts(values > border):
        return None
    above = np.cumsum(np.concatenate(([0], values > border)))
    index = np.arange(len(values))
    low, high = np.maximum(index - AROUND, 0), np.minimum(index + AROUND + 1, len(values))
    smooth = 2 * (above[high] - above[low]) > high - low
    smooth = without_short(smooth)
    if smooth.all() or not smooth.any():
        return None
    one = np.abs(values - np.median(values)).sum()
    two = sum(np.abs(values[some] - np.median(values[some])).sum() for some in (smooth, ~smooth))
    return smooth if two < BELIEVED * one else None


def _lasts(flags: Flags) -> bool:
    """Whether flags come in fewer runs than chance gives."""
    often = int(flags.sum())
    expected = 1 + 2 * often * (len(flags) - often) / len(flags)
    return bool(1 + np.count_nonzero(np.diff(flags)) < FEWER_RUNS * expected)


def without_short(flags: Flags) -> Flags:
    """Runs shorter than a spell take the value around them, the shortest first."""
    flags = flags.copy()
    while True:
        edges = np.flatnonzero(np.diff(flags)) + 1
        starts, ends = np.append(0, edges), np.append(edges, len(flags))
        lasted = ends - starts
        if len(lasted) == 1 or lasted.min() >= SHORTEST_SPELL:
            return flags
        shortest = int(lasted.argmin())
        flags[starts[shortest] : ends[shortest]] ^= True


def below_turns(values: Floats) -> float | None:
    """The lower of two values that take turns; None where there are not two."""
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < 2 * SHORTEST_SPELL:
        return None
    border, rest = split(values[known])
    if rest >= BIMODAL:
        return None
    return float(np.median(values[known][values[known] <= border]))
