"""When a rank is slow: always, in every k-th iteration, sometimes, or since an iteration."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from rankscope.compare.verdict.outliers import LEAST_EXCESS, RESAMPLES
from rankscope.model.kinds import VerdictKind

PERSISTENT = 0.5
"""Share of the iterations in which a persistent straggler's excess matters."""

PERIOD_FIT = 0.8
"""Share of the slow iterations that must fit a pattern, and of the pattern's that must be slow."""

SHORTEST_BLOCK = 6
"""Iterations before and after a change that distinguish it from chance."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """When one rank is slow."""

    kind: VerdictKind  # PERSISTENT, PERIODIC or TRANSIENT
    iterations: list[int]  # in which it is slow, ascending
    period: int | None = None  # k of a rank that is slow in every k-th iteration
    since: int | None = None  # the iteration from which on a changed rank is slow


def pattern(mine: pl.DataFrame, numbers: list[int]) -> Pattern:
    """When a rank is slow.

    Small flags among large ones are noise: an iteration counts where the excess is at least half of
    the upper quartile of the rank's flagged excess or, where some of it is clear of noise, of its
    clear excess over its usual one. See METHOD.md#verdict.

    Args:
        mine: the rank's rows of `outliers.flag`.
        numbers: the selected iterations, ascending.
    """
    clear = mine.filter("clear")
    amount = "excess_ns" if clear.is_empty() else "sudden_ns"
    hits = mine.filter("flagged") if clear.is_empty() else clear
    limit = hits[amount].quantile(0.75, "higher") or 0
    among = mine.filter("flagged") if clear.is_empty() else mine
    large = among.filter(pl.col(amount) >= limit / 2)["iteration"].sort().to_list()
    period = _period(large, len(numbers))
    if period is not None:
        return Pattern(VerdictKind.PERIODIC, large, period)
    matters = mine.filter(pl.col("excess_ns") > LEAST_EXCESS * pl.col("length_ns"))
    slow = matters["iteration"].sort().to_list()
    usual = mine["excess_ns"].median()
    little = not clear.is_empty() and isinstance(usual, float) and usual < limit / 2
    if len(slow) >= PERSISTENT * len(numbers) and not little:
        return Pattern(VerdictKind.PERSISTENT, slow, since=_since(slow, numbers))
    since = _since(slow, numbers)
    if since is not None:
        return Pattern(
            VerdictKind.TRANSIENT, [number for number in slow if number >= since], since=since
        )
    return Pattern(VerdictKind.TRANSIENT, large)


def interval(share: pl.Series) -> tuple[float, float] | None:
    """95 % bootstrap interval of a mean; None for fewer than 2 values."""
    values = share.drop_nulls().to_numpy()
    if len(values) < 2:
        return None
    draw = np.random.default_rng(0)
    means = draw.choice(values, size=(RESAMPLES, len(values))).mean(axis=1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def _period(iterations: list[int], count: int) -> int | None:
    """k ≥ 2 where the iterations are nearly every k-th one over most of the run; else None."""
    if len(iterations) < 3:
        return None
    gaps = sorted(b - a for a, b in pairwise(iterations))
    period = gaps[len(gaps) // 2]
    if period < 2:
        return None
    phase = max(
        {number % period for number in iterations},
        key=lambda each: sum(number % period == each for number in iterations),
    )
    hits = sum(number % period == phase for number in iterations)
    expected = max(count // period, 3)
    fits = hits >= PERIOD_FIT * len(iterations) and hits >= PERIOD_FIT * expected
    return period if fits else None


def _since(slow: list[int], numbers: list[int]) -> int | None:
    """The iteration from which on nearly all are slow, and before which few are; else None."""
    where = {number: index for index, number in enumerate(numbers)}
    hit = np.zeros(len(numbers), dtype=np.int64)
    hit[[where[number] for number in slow if number in where]] = 1
    until = np.concatenate(([0], np.cumsum(hit)))
    best = max(
        range(1, len(numbers)),
        key=lambda k: (until[-1] - until[k]) / (len(numbers) - k) - until[k] / k,
        default=0,
    )
    if not SHORTEST_BLOCK <= best <= len(numbers) - SHORTEST_BLOCK or not hit[best]:
        return None
    after = (until[-1] - until[best]) / (len(numbers) - best)
    before = until[best] / best
    return numbers[best] if after >= PERIOD_FIT and before <= 1 - PERIOD_FIT else None
