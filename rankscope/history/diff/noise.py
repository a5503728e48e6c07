"""The noise of scores: their differences between two runs of the same job by chance."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rankscope.util.numbers import ROBUST
from rankscope.util.robust import FEW_RANKS

Values = NDArray[np.float64]

BLOCK = 5
"""Neighbouring iterations that are drawn together, because speeds wander slowly."""

RESAMPLES = 200
"""Resamples for a standard deviation, which then errs by 5 %."""

FAR_OUT = 3.0
"""Standard deviations at which the difference of a rank's halves is cut."""

SHORTEST_HALF = 1.349
"""Length of the shortest interval with half of a normal distribution, in standard deviations."""


def score(values: Values, statistic: str) -> Values:
    """Scores over iterations, the last axis: mean, median or p95."""
    if statistic == "mean":
        return np.asarray(values.mean(axis=-1))
    share, method = (0.5, "lower") if statistic == "median" else (0.95, "higher")
    return np.asarray(np.quantile(values, share, axis=-1, method=method))  # type: ignore[call-overload]


def wander(values: Values, statistic: str) -> Values:
    """The score of the second half of a run less that of the first.

    The mean of a speed that walks at random differs as much between the halves as between runs,
    that of independent noise twice as much. Resampling within a run does not see the walk.
    """
    if values.shape[-1] < 2:
        return np.zeros(values.shape[:-1])
    middle = values.shape[-1] // 2
    return score(values[..., middle:], statistic) - score(values[..., :middle], statistic)


def sampling(values: Values, statistic: str) -> Values:
    """Standard error of each row's score, by block bootstrap.

    It includes rare iterations that take much longer, which the halves of a run may miss.
    """
    count = values.shape[-1]
    block = min(BLOCK, count)
    starts = np.random.default_rng(0).integers(
        0, count - block + 1, size=(RESAMPLES, -(-count // block))
    )
    picks = (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, :count]
    if statistic == "mean":  # a product, by how often each is drawn, gives all of them at once
        drawn = np.stack([np.bincount(pick, minlength=count) for pick in picks]) @ values.T / count
    else:
        drawn = np.stack([score(values[..., pick], statistic) for pick in picks])
    return np.asarray(drawn.std(axis=0))


def spread(values: Values) -> float:
    """Standard deviation by the shortest interval with half of the values; 0 for few values.

    The other half may be of ranks that really changed.
    """
    known = np.sort(values[~np.isnan(values)])
    if len(known) < FEW_RANKS:
        return 0.0
    reach = (len(known) + 1) // 2 - 1
    return float((known[reach:] - known[:-reach]).min()) / SHORTEST_HALF


def pooled(runs: tuple[Values, Values], statistic: str) -> float:
    """Standard deviation of the score of one rank from run to run, by chance.

    All ranks count together, since the two halves of one rank tell little: each rank of each run is
    a degree of freedom.

    Args:
        runs: two, of shape (ranks, iterations); nan where unknown.
    """
    halves = [np.abs(wander(values, statistic)) for values in runs]
    known = [each for all_of in halves if len(each := all_of[~np.isnan(all_of)])]
    # cut at FAR_OUT: the stall of one rank is not noise of all
    cut = [np.minimum(each, FAR_OUT * ROBUST * np.median(each)) for each in known]
    return float(np.sqrt(sum((each**2).mean() for each in cut)))


def weight_of_slowest(work: Values) -> float:
    """The noise of the iteration, as a share of that of one rank's work.

    An iteration is as long as its slowest rank needs; how often each is the slowest is the
    weight of its noise, and independent ones add up as squares: 1 where it is always the same
    rank, less where they take turns.
    """
    often = np.bincount(work.argmax(axis=0), minlength=len(work)) / work.shape[1]
    return float(np.sqrt((often**2).sum()))


@lru_cache
def quantile(share: float, freedom: int) -> float:
    """The quantile of Student's t at a share, with these degrees of freedom."""
    # Of t = sqrt(freedom) * tan(angle), the angle's density is cos(angle) ** (freedom - 1).
    angle = np.linspace(-np.pi / 2, np.pi / 2, 200_001)
    below = np.cumsum(np.cos(angle) ** (freedom - 1))
    angle_at_share = float(np.interp(share, below / below[-1], angle))
    return float(np.sqrt(freedom) * np.tan(angle_at_share))
