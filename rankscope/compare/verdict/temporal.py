"""When a rank is slow: always, in spells, since an iteration, in every k-th one, or sometimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rankscope.compare.robust import tail
from rankscope.model.kinds import VerdictKind

PERIOD_FIT = 0.8
"""Share of the slow iterations that must fit a period, and of the period's that must be slow."""

MOSTLY = 0.5
"""Share of the iterations from which on a rank with events is slow most of the time."""

PERIOD_HITS = 3
"""Slow iterations from which on there may be a period."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """When one rank is slow."""

    kind: VerdictKind  # PERSISTENT, PERIODIC or TRANSIENT
    iterations: list[int]  # in which it is slow, ascending
    period: int | None = None  # k of a rank that is slow in every k-th iteration
    since: int | None = None  # the iteration from which on a changed rank is slow
    spells: tuple[tuple[int, int], ...] = ()  # first and last iteration of each slow spell


def level_pattern(slow: NDArray[np.bool_], numbers: Sequence[int]) -> Pattern:
    """When a rank is slow whose level makes it slow.

    Args:
        slow: for each iteration, whether the rank is on a slow level.
        numbers: the iterations, ascending.
    """
    hit = [number for number, is_slow in zip(numbers, slow, strict=True) if is_slow]
    if len(hit) == len(numbers):
        return Pattern(VerdictKind.PERSISTENT, hit)
    places = [place for place, is_slow in enumerate(slow) if is_slow]
    period = period_of(places, len(numbers))
    if period is not None:
        return Pattern(VerdictKind.PERIODIC, hit, period)
    starts = [at for at in places if at == 0 or not slow[at - 1]]
    ends = [at for at in places if at + 1 == len(slow) or not slow[at + 1]]
    if len(starts) == 1 and ends[0] == len(numbers) - 1:
        return Pattern(VerdictKind.PERSISTENT, hit, since=hit[0])
    spells = tuple((numbers[a], numbers[b]) for a, b in zip(starts, ends, strict=True))
    return Pattern(VerdictKind.PERSISTENT, hit, spells=spells)


def event_pattern(places: Sequence[int], numbers: Sequence[int]) -> Pattern:
    """When a rank has events.

    Args:
        places: of the iterations with events, in `numbers`.
        numbers: the selected iterations, ascending.
    """
    hit = [numbers[place] for place in places]
    period = period_of(hit, numbers[-1] - numbers[0] + 1)
    if period is not None:
        return Pattern(VerdictKind.PERIODIC, hit, period)
    mostly = len(hit) >= MOSTLY * len(numbers)
    return Pattern(VerdictKind.PERSISTENT if mostly else VerdictKind.TRANSIENT, hit)


def period_of(places: Sequence[int], count: int) -> int | None:
    """k ≥ 2 where there are hits at nearly every k-th place and nearly nowhere else; else None.

    Args:
        places: of the hits, ascending.
        count: how many places there are.
    """
    if len(places) < PERIOD_HITS:
        return None
    gaps = sorted(after - before for before, after in pairwise(places))
    period = gaps[len(gaps) // 2]
    if period < 2:
        return None
    at = max(
        {place % period for place in places},
        key=lambda each: sum(place % period == each for place in places),
    )
    hits = sum(place % period == at for place in places)
    expected = max(count // period, PERIOD_HITS)
    fits = hits >= PERIOD_FIT * len(places) and hits >= PERIOD_FIT * expected
    return period if fits else None


def chance_of_period(fitting: int, hits: int, count: int) -> float:
    """Probability that so many hits fit a period if their places are drawn at random.

    It is summed over all periods that `period_of` would accept, and the places in them.

    Args:
        fitting: hits at the places of the period.
        hits: all.
        count: how many places there are.
    """
    periods = [
        period
        for period in range(2, count)
        if fitting >= PERIOD_FIT * max(count // period, PERIOD_HITS)
        and (fitting - 1) * period < count
    ]
    return min(1.0, sum(period * tail(fitting, hits, 1 / period) for period in periods))
