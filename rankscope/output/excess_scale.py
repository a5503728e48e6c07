"""The colour scale of excess, which the picture and the page share.

It is linear for small values and logarithmic for large ones, so that one map shows a rank that is
3 ms slow and another one that is 30 ms slow, while noise stays pale.
"""

import math

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from rankscope.model.kinds import PHASES
from rankscope.model.metrics import METRICS
from rankscope.util.robust import MAD_FLOOR, lower_median

MAP_METRICS = ("work", "load", "iteration")
"""Metrics of a heat map: the first known one, unless another one is named."""

MOST_TIMES = 30
"""The end of the scale is at most this multiple of its linear part; larger values are clipped."""

NOISE = 0.99
"""Quantile of the cells that are not flagged, within which the scale is linear."""

STEPS = (1, 2, 5)
"""First digits of ticks."""


class ExcessScale(Struct, frozen=True):
    """A scale, in the unit of its metric.

    Attributes:
        linear: up to this value, colours grow in proportion to the excess.
        limit: the end of the scale, in both directions.
    """

    linear: float
    limit: float

    def position(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Where values lie between the ends of the scale, which are -1 and 1."""
        return np.asarray(np.arcsinh(values / self.linear) / np.arcsinh(self.limit / self.linear))

    def ticks(self, divisor: float = 1.0) -> list[float]:
        """Round values in multiples of `divisor`, not too close together on the scale.

        Args:
            divisor: the shown unit in the metric's unit, such as 1e6 for ms of ns.
        """
        places = (position * np.arcsinh(self.limit / self.linear) for position in (1, 2 / 3, 1 / 3))
        marks = [_round(self.linear * float(np.sinh(place)) / divisor) for place in places]
        marks = sorted({*marks})
        return [*(-mark for mark in reversed(marks)), 0.0, *marks]


def _round(value: float) -> float:
    """The largest number of one digit of `STEPS` that is not above `value`."""
    power = 10.0 ** math.floor(math.log10(value))
    return max(step for step in STEPS if step * power <= value * (1 + 1e-9)) * power


def with_excess(frame: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The excess of each rank over its role's median, in each iteration.

    A single rank is compared with its own median over the iterations.

    Args:
        frame: `Comparison.rows` with flags: rank, iteration, role, the metric, iteration_ns,
            flagged, cause.

    Returns:
        The columns of `frame`, and value, excess (null: unknown), scale (the median iteration of
        the role; of a metric that is not a time, its own median), all in the metric's unit, and
        flagged (if the metric is a phase: flagged for this phase).
    """
    definition = METRICS[metric]
    value = pl.col(definition.column)
    length = pl.col(METRICS["iteration"].column) if definition.is_time else value
    middle = lower_median if definition.unit.is_whole else pl.Expr.median
    several = frame["role"].n_unique() > 1
    role = ["role", "iteration"] if several else ["iteration"]  # grouping by one column is faster
    if frame["rank"].n_unique() == 1:
        role = ["rank"]
    flagged = pl.col("flagged").fill_null(False)
    if metric in PHASES:
        flagged &= pl.col("cause").eq_missing(metric)
    return frame.with_columns(
        value=value,
        excess=value - middle(value).over(role),
        scale=middle(length).over(role),
        flagged=flagged,
    )


def scale_of(frame: pl.DataFrame) -> ExcessScale:
    """The scale of what `with_excess` returned.

    The linear part ends at the least of the usual excesses of the flagged ranks (the median of
    each), and never below the noise. The scale ends at the largest value, but at most at
    `MOST_TIMES` the linear part, so that one spike does not wash out the rest.
    """
    known = frame.drop_nulls("excess").with_columns(pl.col("excess").cast(pl.Float64))
    scales = known["scale"].drop_nulls().to_numpy()
    least = MAD_FLOOR * float(np.median(scales)) if len(scales) else 0.0
    quiet = known.filter(~pl.col("flagged"))["excess"].abs().quantile(NOISE) or 0.0
    usual = (
        known.filter(pl.col("flagged"), pl.col("excess") > 0)
        .group_by("rank")
        .agg(pl.col("excess").median())["excess"]
        .to_list()
    )
    linear = max(quiet, least, min(usual, default=0.0)) or 1.0
    largest = float(np.max(np.abs(known["excess"].to_numpy()), initial=0.0))
    return ExcessScale(linear, min(max(largest, linear), MOST_TIMES * linear))
