"""Clock fits: offset, drift and spread from the ends of shared collectives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.match.clocks import fit_clock

MS, SECOND = 1_000_000, 1_000_000_000
EPOCH = 1_795_249_000 * SECOND


def ends(count: int = 60, step: int = 30 * MS) -> np.ndarray:
    return EPOCH + np.arange(count, dtype=np.int64) * step


@settings(max_examples=60, deadline=None)
@given(
    st.integers(-10 * SECOND, 10 * SECOND),
    st.floats(-200, 200).filter(lambda ppm: abs(ppm) > 1),
    st.integers(0, 2**31),
)
def test_offset_and_drift_are_found(offset: int, ppm: float, seed: int) -> None:
    reference = ends()
    jitter = np.random.default_rng(seed).integers(-500, 501, len(reference))
    middle = (reference[0] + reference[-1]) // 2
    drift = ((reference - middle) * ppm * 1e-6).round().astype(np.int64)
    fit = fit_clock(reference, reference - offset - drift + jitter)
    assert fit.offset_ns == pytest.approx(offset, abs=1_000)
    assert fit.drift_ppm == pytest.approx(ppm, abs=1.0)
    assert fit.spread_ns < 1_500


def test_clocks_that_agree_do_not_drift() -> None:
    reference = ends()
    jitter = np.random.default_rng(1).integers(-2000, 2001, len(reference))
    fit = fit_clock(reference, reference + jitter)
    assert fit.drift_ppm == 0.0
    assert abs(fit.offset_ns) < 1_500
    assert 500 < fit.spread_ns < 3_000


def test_outliers_do_not_move_it() -> None:
    reference = ends()
    other = reference - 3 * MS
    other[::7] += 40 * MS
    fit = fit_clock(reference, other)
    assert fit.offset_ns == 3 * MS
    assert fit.spread_ns == 0


def test_two_instances_are_enough_to_fit() -> None:
    fit = fit_clock(np.array([EPOCH, EPOCH + SECOND]), np.array([EPOCH + 5, EPOCH + SECOND + 5]))
    assert fit.offset_ns == -5


def test_instances_at_one_moment_are_no_crash() -> None:
    same = np.array([EPOCH] * 4)
    assert fit_clock(same, same - 9).offset_ns == 9
