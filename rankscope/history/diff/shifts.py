"""Changes of metrics between runs, and their noise. See METHOD.md#diff."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.history.diff import noise
from rankscope.history.diff.noise import Values
from rankscope.model.metrics import METRICS, column_of


class Change(Struct, frozen=True):
    """A metric before and after, None where unknown; `low` and `high` bound its relative change.

    The bounds hold for all changes at once with a probability of 1 - `FALSE_ALARM`; they are None
    where the change is, or where nothing varies. `certain`: they do not include 0, and the change
    is at least `LEAST_CHANGE`. The values are in the metric's unit.
    """

    metric: str
    rank: int | None = None  # None: the mean over ranks
    before_ns: float | None = None  # an integer, except of a metric whose values are not
    after_ns: float | None = None
    change: float | None = None  # after / before - 1; None, as its bounds, where `before_ns` is 0
    low: float | None = None
    high: float | None = None
    certain: bool = False


class Shift(Struct, frozen=True):
    """A metric's scores in both runs, and their noise; arrays of shape (ranks,), in its unit."""

    before: Values
    after: Values
    noise: Values  # standard deviation of each rank's after - before
    common: float  # standard deviation of the mean over ranks
    freedom: int  # degrees of freedom of the noise of a rank
    common_freedom: int  # those of `common`

    def of_ranks(self, metric: str, ranks: list[int], false_alarm: float) -> list[Change]:
        """A change per rank; `false_alarm` is the probability that chance makes one certain."""
        return [
            _change(metric, *row, self.freedom, false_alarm)
            for row in zip(ranks, self.before, self.after, self.noise, strict=True)
        ]

    def of_all(self, metric: str, false_alarm: float) -> Change:
        """The change of the mean over ranks."""
        before, after = float(self.before.mean()), float(self.after.mean())
        return _change(metric, None, before, after, self.common, self.common_freedom, false_alarm)

    def of_shared(self, noise_ns: float | None) -> Shift:
        """The shift of a quantity that all ranks share, so that many ranks tell no more than one.

        Args:
            noise_ns: the least noise of the quantity; None: unknown.
        """
        if noise_ns is None:
            return replace(self, freedom=2, common_freedom=2)
        return replace(
            self, noise=np.maximum(self.noise, noise_ns), common=max(self.common, noise_ns)
        )


def shift(runs: tuple[Values, Values], statistic: str) -> Shift:
    """The change of one metric, of shape (ranks, iterations) in each run; nan is unknown."""
    before, after = (noise.score(values, statistic) for values in runs)
    chance = max(noise.pooled(runs, statistic), noise.spread(after - before))
    sampling_error = np.hypot(*(noise.sampling(values, statistic) for values in runs))
    means = [values.mean(axis=0) for values in runs]
    together = (
        float(np.hypot(*(function(values, statistic) for values in means)))
        for function in (noise.wander, noise.sampling)
    )
    independent = chance / np.sqrt(len(before))
    freedom = max(2 * int(np.count_nonzero(~np.isnan(before))), 2)
    return Shift(
        before,
        after,
        np.maximum(chance, sampling_error),
        max(independent, *together),
        freedom,
        freedom,
    )


def shift_from_baseline(runs: Sequence[Values], after: Values, statistic: str) -> Shift:
    """The change of one metric from the mean of several runs, with the noise between those.

    The mean over the ranks of a run varies with `len(runs) - 1` degrees of freedom, and a rank's
    difference from it with as many for each rank. One more run differs from the mean of `runs` by
    sqrt(1 + 1 / len(runs)) of either.

    Args:
        runs: three or more, each of shape (ranks, iterations); nan is unknown.
    """
    scores = np.stack([noise.score(values, statistic) for values in runs])
    count, ranks = scores.shape
    common = scores.mean(axis=1)
    deviations = scores - common[:, None]
    factor = 1 + 1 / count
    of_all = float(common.var(ddof=1)) * factor
    of_each = float((deviations - deviations.mean(axis=0)).var() * count / (count - 1)) * factor
    fewer, many = count - 1, (count - 1) * max(ranks - 1, 1)
    both = of_all + of_each
    # Welch and Satterthwaite: degrees of freedom of a sum of variances
    spread = of_all**2 / fewer + of_each**2 / many
    return Shift(
        scores.mean(axis=0),
        noise.score(after, statistic),
        np.maximum(np.sqrt(both), noise.sampling(after, statistic)),
        max(np.sqrt(of_all), float(noise.sampling(after.mean(axis=0), statistic))),
        max(round(both**2 / spread), 1) if spread > 0 else fewer,
        fewer,
    )


def noise_of_slowest(work: tuple[Values, Values], statistic: str) -> float | None:
    """Standard deviation of the iteration's change, from the work of ranks; None if unknown.

    Args:
        work: of two runs, of shape (ranks, iterations); nan is unknown.
    """
    if any(np.isnan(values).any() for values in work):
        return None
    weights = max(noise.weight_of_slowest(values) for values in work)
    return weights * noise.pooled(work, statistic)


def values_of(frame: pl.DataFrame, ranks: list[int], names: list[str]) -> dict[str, Values]:
    """Metric → an array of shape (ranks, iterations), in which nan is unknown.

    Args:
        frame: rank, iteration, `<metric>_ns`: a row for each of these ranks and each iteration.
    """
    rows = frame.filter(pl.col("rank").is_in(ranks)).sort("rank", "iteration")
    shape = len(ranks), rows["iteration"].n_unique()
    return {
        name: rows[column_of(name)].cast(pl.Float64).to_numpy().reshape(shape)
        if column_of(name) in rows.columns
        else np.full(shape, np.nan)
        for name in names
    }


def where_known(values: Values, least: int) -> Values:
    """The iterations in which all ranks know the metric that know it in any, if `least` are left.

    A report often begins within a phase of its first iteration.
    """
    known = ~np.isnan(values)
    both = known[known.any(axis=1)].all(axis=0)
    return values[:, both] if np.count_nonzero(both) >= least else values


def _change(
    metric: str, rank: int | None, before: float, after: float, deviation: float, freedom: int,
    false_alarm: float,
) -> Change:  # fmt: skip
    if np.isnan(before) or np.isnan(after):
        return Change(metric, rank)
    apart = after - before
    is_whole = METRICS[metric].unit.is_whole
    reach = noise.quantile(1 - false_alarm / 2, freedom) * deviation
    bounded = bool(before and reach)
    return Change(
        metric=metric,
        rank=rank,
        before_ns=round(before) if is_whole else before,
        after_ns=round(after) if is_whole else after,
        change=float(apart / before) if before else None,
        low=max(-1.0, float((apart - reach) / before)) if bounded else None,  # times are positive
        high=float((apart + reach) / before) if bounded else None,
        certain=bool(abs(apart) > reach),
    )
