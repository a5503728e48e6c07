"""Rates of guilt, shrunken towards that of the fleet, with their intervals.

See METHOD.md#fleet.
"""

from math import lgamma

import numpy as np

from rankscope.model.intervals import Floats

LEAST_RUNS, MOST_RUNS = 1.0, 200.0
"""Weight of the prior, in runs: at least and at most."""

LEAST_RATE = 1e-3
"""Least rate of the prior, also for a fleet without any guilt."""

COVERED = 0.95
"""Probability that the interval holds the rate."""

STEPS, TERMS = 60, 300
"""Bisection steps of a quantile, and most terms of the continued fraction."""


def prior(guilt: Floats, runs: Floats) -> tuple[float, float]:
    """The two parameters of the beta distribution of the fleet's rates, by its moments.

    Args:
        guilt: sum of the shares of guilty iterations, of each piece.
        runs: number of runs of each piece.
    """
    total = runs.sum()
    if not total:
        return LEAST_RATE, 1 - LEAST_RATE
    mean = float(np.clip(guilt.sum() / total, LEAST_RATE, 0.5))
    several = runs > 1
    rates = guilt[several] / runs[several]
    weights = runs[several]
    variance = float((weights * (rates - mean) ** 2).sum() / max(weights.sum(), 1))
    per_run = len(weights) / float(weights.sum()) if len(weights) else 1.0
    spread = mean * (1 - mean)
    # The variance of a rate in n runs is spread · (1 / n + (1 - 1 / n) / (weight + 1)).
    share = (variance / spread - per_run) / max(1 - per_run, 1e-9)
    weight = MOST_RUNS if share <= 0 else 1 / share - 1
    weight = float(np.clip(weight, LEAST_RUNS, MOST_RUNS))
    return mean * weight, (1 - mean) * weight


def shrunken(guilt: Floats, runs: Floats) -> tuple[Floats, Floats, Floats]:
    """The rate of each piece, and the ends of its interval."""
    first, second = prior(guilt, runs)
    a, b = first + guilt, second + runs - guilt
    outside = (1 - COVERED) / 2
    return a / (a + b), quantile(a, b, outside), quantile(a, b, 1 - outside)


def quantile(a: Floats, b: Floats, probability: float) -> Floats:
    """The quantile of the beta distribution with parameters `a` and `b`."""
    low, high = np.zeros(len(a)), np.ones(len(a))
    for _ in range(STEPS):
        middle = (low + high) / 2
        below = incomplete_beta(a, b, middle) < probability
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


def incomplete_beta(a: Floats, b: Floats, x: Floats) -> Floats:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    turn = x > (a + 1) / (a + b + 2)
    p, q, z = np.where(turn, b, a), np.where(turn, a, b), np.where(turn, 1 - x, x)
    logs = np.array(
        [lgamma(i + j) - lgamma(i) - lgamma(j) for i, j in zip(p, q, strict=True)], dtype=float
    )
    tiny = 1e-300
    safe = np.clip(z, tiny, 1 - 1e-16)
    front = np.exp(logs + p * np.log(safe) + q * np.log1p(-safe)) / p
    c = np.ones(len(p))
    d = 1 / _away_from_zero(1 - (p + q) * z / (p + 1))
    fraction = d
    for m in range(1, TERMS):
        even = m * (q - m) * z / ((p + 2 * m - 1) * (p + 2 * m))
        odd = -(p + m) * (p + q + m) * z / ((p + 2 * m) * (p + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            fraction = fraction * d * c
        if np.all(np.abs(d * c - 1) < 1e-12):
            break
    value = np.clip(front * fraction, 0, 1)
    return np.asarray(np.where(turn, 1 - value, value))


def _away_from_zero(values: Floats) -> Floats:
    return np.asarray(np.where(np.abs(values) < 1e-300, 1e-300, values))
