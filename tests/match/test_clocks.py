"""Fits of clocks that need no correction; what they find otherwise is in `test_clock_graph.py`."""

import numpy as np

from rankscope.match.clocks import fit_clock

EPOCH, STEP = 1_795_249_000 * 10**9, 30_000_000


def test_clocks_that_agree_do_not_drift() -> None:
    reference = EPOCH + np.arange(60, dtype=np.int64) * STEP
    jitter = np.random.default_rng(1).integers(-2000, 2001, len(reference))
    fit = fit_clock(reference, reference + jitter)
    assert fit.drift_ppm == 0.0
    assert abs(fit.offset_ns) < 1_500
    assert 500 < fit.spread_ns < 3_000


def test_instances_at_one_moment_are_no_crash() -> None:
    same = np.array([EPOCH] * 4)
    assert fit_clock(same, same - 9).offset_ns == 9
