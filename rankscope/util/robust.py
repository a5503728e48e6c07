"""Robust statistics that several stages share, as expressions. See METHOD.md#imbalance."""

import polars as pl

LEAST_Z = 3.5
"""Modified z above which a value is an outlier (Iglewicz and Hoaglin)."""

MAD_FLOOR = 0.005
"""The MAD counts as at least this share of the median: it can be 0."""

FEW_RANKS = 4
"""Fewest ranks of a role whose spread is meaningful."""


def summed(values: pl.Series) -> int:
    """The sum; 0 of an empty series."""
    return int(values.sum() or 0)


def lower_median(value: pl.Expr) -> pl.Expr:
    """The median; the lower of the middle two of an even count."""
    return value.quantile(0.5, "lower").cast(pl.Int64)


def modified_z(value: pl.Expr, over: list[str]) -> pl.Expr:
    """0.6745 (x - median) / MAD, within groups or over all rows; MAD_FLOOR limits the MAD."""
    middle = value.median().over(over) if over else value.median()
    off = (value - middle).abs().median()
    spread = off.over(over) if over else off
    return 0.6745 * (value - middle) / pl.max_horizontal(spread, MAD_FLOOR * middle.abs(), 1.0)
