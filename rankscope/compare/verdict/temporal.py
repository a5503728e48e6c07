"""When a rank is slow: always, in every k-th iteration, now and then, or since a moment."""

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
"""Share of a pattern's iterations that must fit it, either way."""

SHORTEST_BLOCK = 6
"""Iterations that a change for the worse must last to be told from an accident."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Class, iterations, the period of a periodic one, and since when a changed rank is slow."""

    kind: VerdictKind  # PERSISTENT, PERIODIC or TRANSIENT
    iterations: list[int]
    period: int | None = None
    since: int | None = None


def pattern(mine: pl.DataFrame, numbers: list[int]) -> Pattern:
    """When a rank is slow.

    Small flags among large ones are noise beside the pattern: what counts for the class is at
    least half of the upper quartile of its flagged excess, or, where some of it is clear of noise,
    of its clear excess over its own usual.

    Args:
        mine: the rank's rows of `flags.flag`.
        numbers: the chosen iterations, ascending.
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
    """k where the iterations are nearly all of every k-th, k ≥ 2, over most of the run."""
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
    """The iteration from which on nearly all to the end are slow, and before which few are."""
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
