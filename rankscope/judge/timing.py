"""The shortest true description of when ranks are slow. See METHOD.md#verdict."""

from __future__ import annotations

import numpy as np

from rankscope.judge.claims import Pattern
from rankscope.judge.levels import FEW, MOST, MUCH, NOISE
from rankscope.model.intervals import Flags, Floats, Index
from rankscope.model.kinds import VerdictKind
from rankscope.util.numbers import ROBUST


def pattern_of(
    amount: Floats, noise: float, numbers: Index, hidden: Flags | None = None
) -> Pattern:
    """When ranks are slow: always, since, in spells, every k-th time, or in these iterations.

    Args:
        amount: by which they are slower, by iteration, as a share of it.
        noise: how far amounts scatter.
        numbers: the iterations, ascending.
        hidden: in which a slower rank hides whether they are slow; none if not given.
    """
    # half of the whole amount lies in iterations with the usual one or more
    ordered = np.sort(np.maximum(amount, 0.0))[::-1]
    sums = ordered.cumsum()
    usual = float(ordered[int(np.searchsorted(sums, sums[-1] / 2))])
    slow = amount > usual / 2
    hits = numbers[slow]
    period = period_of(hits, numbers, hidden)
    if period is not None:
        expected = numbers % period == np.bincount(hits % period).argmax()
        fitting = expected & (amount > min(noise, usual / 2))  # less is enough where it is expected
        held, rest = amount[fitting].sum(), float(np.median(amount[~fitting]))
        if rest <= noise or held >= MOST * (held + rest * (~fitting).sum()):
            return Pattern(VerdictKind.PERIODIC, tuple(numbers[fitting].tolist()), period)
    spells = _spells(np.clip(amount, 0.0, usual) - usual / 2)
    in_spell = np.zeros(len(amount), dtype=np.bool_)
    for first, after in spells:
        in_spell[first:after] = True
    if spells and amount[slow & in_spell].sum() >= MOST * amount[slow].sum():
        within = tuple(numbers[in_spell].tolist())
        clearly_not = amount[~in_spell] < min(usual / 2, usual - noise)
        if in_spell.all() or (in_spell.mean() >= MOST and clearly_not.mean() <= 1 - MOST):
            return Pattern(VerdictKind.PERSISTENT, tuple(numbers.tolist()), always=True)
        if len(spells) == 1 and spells[0][1] == len(amount):
            return Pattern(VerdictKind.PERSISTENT, within, since=within[0])
        named = tuple((int(numbers[first]), int(numbers[after - 1])) for first, after in spells)
        return Pattern(VerdictKind.PERSISTENT, within, spells=named)
    mostly = 2 * len(hits) > len(amount)
    kind = VerdictKind.PERSISTENT if mostly else VerdictKind.TRANSIENT
    return Pattern(kind, tuple(hits.tolist()))


def period_of(hits: Index, numbers: Index, hidden: Flags | None = None) -> int | None:
    """k ≥ 2 where the slow iterations are every k-th one, and at least FEW others; else None.

    It must predict: at most a fifth of the slow iterations lie elsewhere, at most a fifth of the
    expected ones are missing, and at most a fifth of the others are slow. Two are enough where they
    are the k-th and the 2k-th of a job, k > FEW, counted from 0 or 1.

    Args:
        hits: the slow iterations, ascending.
        numbers: all of them.
        hidden: of which nobody knows whether they are slow; they are not expected.
    """
    if len(hits) == 2:
        first, apart = int(hits[0]), int(np.diff(hits)[0])
        fits = apart > FEW and apart - first in (0, 1) and numbers[-1] - hits[1] < apart
        return apart if fits else None
    if len(hits) < FEW:
        return None
    period = int(np.sort(np.diff(hits))[(len(hits) - 1) // 2])
    if period < 2:
        return None
    remainder = np.bincount(hits % period).argmax()
    expected = numbers % period == remainder
    expected[0] &= hits[0] == numbers[0]  # what precedes the first iteration may not be recorded
    known = np.isin(numbers, hits) | (True if hidden is None else ~hidden)
    fitting = int((hits % period == remainder).sum())
    fits = fitting >= max(FEW, MOST * max(len(hits), int((expected & known).sum())))
    others = np.count_nonzero(~expected)
    quiet = others >= FEW and len(hits) - fitting <= (1 - MOST) * others
    return period if fits and quiet else None


def _spells(value: Floats) -> list[tuple[int, int]]:
    """Stretches of mostly slow iterations, as places: first, and the one after the last.

    Each is the stretch with the largest sum (Kadane) of values that are positive where it is slow.
    """
    spells, free = list[tuple[int, int]](), [(0, len(value))]
    while free:
        low, high = free.pop()
        sums = np.append(0.0, value[low:high].cumsum())
        after = low + int((sums - np.minimum.accumulate(sums)).argmax())
        first = low + int(sums[: after - low + 1].argmin())
        long = after - first >= min(FEW, len(value))
        if long and (value[first:after] > 0).mean() >= MOST:
            spells.append((first, after))
            free += [(low, first), (after, high)]
    return sorted(spells)


def quick_part(took: Floats) -> Flags:
    """The iterations before something gets slow for good, or after it was slow at first.

    Else all. Of two parts, each of at least FEW iterations, all of one take longer than all of the
    other by more than MUCH, and than NOISE robust deviations from the medians of both.

    Args:
        took: the time in the successive iterations.
    """
    for order in (1, -1):
        values = took[::order]
        most = np.maximum.accumulate(values)[FEW - 1 : -FEW]
        least = np.minimum.accumulate(values[::-1])[::-1][FEW : -FEW + 1]
        if not len(most):
            break
        at = int((least / np.maximum(most, 1)).argmax())
        parts = values[: FEW + at], values[FEW + at :]
        deviation = np.median(np.concatenate([np.abs(each - np.median(each)) for each in parts]))
        if least[at] - most[at] > max(MUCH * most[at], NOISE * ROBUST * deviation):
            return np.asarray(np.arange(len(took)) < FEW + at)[::order]
    return np.ones(len(took), dtype=np.bool_)
