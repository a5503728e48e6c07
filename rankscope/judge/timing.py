"""The shortest true description of when ranks are slow. See METHOD.md#verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb

import numpy as np

from rankscope.judge.excess import Flags, Index
from rankscope.judge.levels import FEW, MOST, RARE
from rankscope.model.kinds import VerdictKind
from rankscope.util.robust import Floats


@dataclass(frozen=True, slots=True)
class Pattern:
    """When ranks are slow."""

    kind: VerdictKind  # PERSISTENT, PERIODIC or TRANSIENT
    iterations: tuple[int, ...]  # in which they are slow, ascending
    period: int | None = None  # k where they are slow in every k-th iteration
    since: int | None = None  # the iteration from which on they are slow
    spells: tuple[tuple[int, int], ...] = ()  # first and last iteration of each slow spell
    always: bool = False

    @property
    def has_one_reason(self) -> bool:
        """Whether they are slow since an iteration, in spells, or every k-th time."""
        return bool(self.since is not None or self.spells or self.period)

    def within(self, numbers: Sequence[int]) -> Pattern:
        """The same of some iterations, ascending: a range changes no story."""
        some = {*numbers}
        here = tuple(numbers if self.always else (n for n in self.iterations if n in some))
        since = self.since if self.since is not None and self.since > numbers[0] else None
        spells = tuple(
            (max(first, numbers[0]), min(last, numbers[-1]))
            for first, last in self.spells
            if first <= numbers[-1] and last >= numbers[0]
        )
        spells = () if len(here) == len(numbers) else spells
        kind, period = self.kind, self.period
        if kind is VerdictKind.PERIODIC and len(here) < 2:
            kind, period = VerdictKind.TRANSIENT, None
        return replace(self, kind=kind, iterations=here, period=period, since=since, spells=spells)


def pattern_of(amount: Floats, noise: float, numbers: Index) -> Pattern:
    """When ranks are slow: always, since, in spells, every k-th time, or in these iterations.

    Args:
        amount: by which they are slower, by iteration, as a share of it.
        noise: how far amounts scatter.
        numbers: the iterations, ascending.
    """
    usual = usual_of(amount)
    slow = amount > usual / 2
    places = np.flatnonzero(slow)
    period = period_of(numbers[places], int(numbers[0]), int(numbers[-1]))
    remainder = None if period is None else _remainder(numbers[places], period)
    if period is not None and (numbers % period != remainder).any():
        fitting = numbers[(numbers % period == remainder) & (amount > min(noise, usual / 2))]
        return Pattern(VerdictKind.PERIODIC, tuple(fitting.tolist()), period)
    normal = amount < min(usual / 2, usual - noise)
    spells = _spells(amount, usual, normal)
    held = np.zeros(len(amount), dtype=np.bool_)
    for first, after in spells:
        held[first:after] = True
    positive = np.where(slow, amount, 0.0)
    if spells and positive[held].sum() >= MOST * positive.sum():
        hits = tuple(numbers[held].tolist())
        if held.all() or (held.mean() >= MOST and normal[~held].mean() <= 1 - MOST):
            return Pattern(VerdictKind.PERSISTENT, tuple(numbers.tolist()), always=True)
        if len(spells) == 1 and spells[0][1] == len(amount):
            return Pattern(VerdictKind.PERSISTENT, hits, since=hits[0])
        named = tuple((int(numbers[first]), int(numbers[after - 1])) for first, after in spells)
        return Pattern(VerdictKind.PERSISTENT, hits, spells=named)
    mostly = 2 * len(places) >= len(amount)
    kind = VerdictKind.PERSISTENT if mostly else VerdictKind.TRANSIENT
    return Pattern(kind, tuple(numbers[places].tolist()))


def period_of(hits: Index, first: int, last: int) -> int | None:
    """k ≥ 2 where the slow iterations are every k-th one; None where they are not.

    It must predict: at most a fifth of the slow iterations lie elsewhere, and at most a fifth of
    the expected ones from `first` to `last` are missing.

    Args:
        hits: the slow iterations, ascending.
        first: iteration of the run.
        last: iteration of the run.
    """
    if len(hits) < FEW:
        return None
    period = int(np.sort(np.diff(hits))[(len(hits) - 1) // 2])
    if period < 2 or period >= RARE * comb(last - first + 1, FEW):
        return None
    remainder = _remainder(hits, period)
    fitting = hits[hits % period == remainder]
    expected = (last - first - (remainder - first) % period) // period + 1
    if len(fitting) < FEW or len(fitting) < MOST * max(len(hits), expected):
        return None
    return period


def _remainder(hits: Index, period: int) -> int:
    values, counts = np.unique(hits % period, return_counts=True)
    return int(values[counts.argmax()])


def usual_of(amount: Floats) -> float:
    """The amount that half of the whole amount lies in or above: one event's, or the level."""
    ordered = np.sort(np.maximum(amount, 0.0))[::-1]
    sums = ordered.cumsum()
    return float(ordered[int(np.searchsorted(sums, sums[-1] / 2))]) if len(amount) else 0.0


def _spells(amount: Floats, usual: float, normal: Flags) -> list[tuple[int, int]]:
    """Stretches of mostly slow iterations, as places: first, and the one after the last.

    Each is the stretch with the largest sum of what lies above half of the usual amount.

    Args:
        amount: as in `pattern_of`.
        usual: the usual amount of slow iterations.
        normal: iterations that are clearly not slow.
    """
    value = np.clip(amount, 0.0, usual) - usual / 2
    count, found = len(amount), list[tuple[int, int]]()
    least = min(FEW, count)
    free = [(0, count)]
    while free:
        low, high = free.pop()
        first, after = (place + low for place in _heaviest(value[low:high]))
        if after - first < least:
            continue
        if normal[first:after].mean() > 1 - MOST:
            continue
        found.append((first, after))
        free += [(low, first), (after, high)]
    return sorted(found)


def _heaviest(value: Floats) -> tuple[int, int]:
    """The stretch with the largest sum (Kadane): first, and the one after the last."""
    if not len(value):
        return 0, 0
    sums = np.concatenate(([0.0], np.cumsum(value)))
    lowest = np.minimum.accumulate(sums)
    after = int((sums - lowest).argmax())
    first = int(sums[: after + 1].argmin())
    return first, after
