"""Offset and drift between two ranks' clocks, from the ends of collectives they share.

All participants of an all-reduce leave it nearly together, so the differences of their ends are
the offset of their clocks, and the slope of those differences is the drift.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.intervals import Times

ROBUST = 1.4826
"""MAD → standard deviation of a normal distribution."""

DRIFT_SPREADS = 3
"""Over the run, drift must move the clocks apart by this many spreads to be told from jitter."""


@dataclass(frozen=True, slots=True)
class ClockFit:
    """How one clock reads against another.

    `offset_ns` is what to add to the other's reading at the middle of the run to get the
    reference's; it grows by `drift_ppm` µs per second; ends then agree to `spread_ns` (robust
    standard deviation), which is the finest statement the pair allows.
    """

    offset_ns: int
    drift_ppm: float
    spread_ns: int


def fit_clock(reference: Times, other: Times) -> ClockFit:
    """Fit the ends of shared collectives, robustly against outliers.

    The slope is the median of those between instances half a run apart.

    Args:
        reference: ends on the reference's UTC, ns, ascending; shape (n,), n ≥ 2.
        other: ends of the same instances on the other's UTC, ns; shape (n,).
    """
    difference = (reference - other).astype(np.float64)
    middle = (int(reference[0]) + int(reference[-1])) // 2
    elapsed = (reference - middle).astype(np.float64)
    half = len(reference) // 2
    run = elapsed[half:] - elapsed[: len(elapsed) - half]
    rise = difference[half:] - difference[: len(difference) - half]
    slope = float(np.median(rise[run > 0] / run[run > 0])) if (run > 0).any() else 0.0
    level = float(np.median(difference - slope * elapsed))
    spread = ROBUST * float(np.median(np.abs(difference - slope * elapsed - level)))
    if abs(slope) * float(elapsed[-1] - elapsed[0]) < DRIFT_SPREADS * spread:
        slope, level = 0.0, float(np.median(difference))
        spread = ROBUST * float(np.median(np.abs(difference - level)))
    return ClockFit(round(level), slope * 1e6, round(spread))
