"""Probabilities against counting all outcomes, and against draws."""

from itertools import product

import numpy as np
import pytest

from rankscope.history.fleet.rates import incomplete_beta, prior, quantile, shrunken
from rankscope.history.fleet.suspects import corrected, tails


def counted(probabilities: list[float]) -> np.ndarray:
    """The probability of at least 0, 1, … hits, by all outcomes."""
    exact = np.zeros(len(probabilities) + 1)
    for hits in product((0, 1), repeat=len(probabilities)):
        pairs = zip(hits, probabilities, strict=True)
        exact[sum(hits)] += np.prod([p if hit else 1 - p for hit, p in pairs])
    return exact[::-1].cumsum()[::-1]


def test_tails_are_those_of_all_outcomes() -> None:
    own, other = [0.1, 0.5, 1.0, 0.02], [0.9, 0.25]
    piece = np.array([0, 1, 0, 0, 1, 0])
    probability = np.array([own[0], other[0], own[1], own[2], other[1], own[3]])
    found = tails(piece, probability, 2, 2)
    np.testing.assert_allclose(found[0], counted(own)[:4], rtol=1e-12)
    np.testing.assert_allclose(found[1, :3], counted(other), rtol=1e-12)
    assert found[1, 3] == 0


def test_small_tails_keep_their_digits() -> None:
    found = tails(np.zeros(8, dtype=np.intp), np.full(8, 1 / 200), 1, 8)
    assert found[0, 8] == pytest.approx(200.0**-8, rel=1e-9)


def test_the_correction_holds_the_error_of_the_whole_fleet() -> None:
    """In fleets where chance alone strikes, any piece is below a limit at most that often."""
    rng = np.random.default_rng(0)
    pieces, runs = 60, 12
    piece = np.repeat(np.arange(pieces), runs)
    probability = rng.choice([1 / 16, 1 / 8, 1 / 4], pieces * runs)
    tail = tails(piece, probability, pieces, runs)
    least = []
    for _ in range(1000):
        hits = rng.random(pieces * runs) < probability
        guilty = np.bincount(piece, weights=hits, minlength=pieces).astype(np.intp)
        least.append(corrected(tail, guilty).min())
    for limit in (0.01, 0.05, 0.2):
        assert np.mean(np.array(least) <= limit) <= limit + 0.015
    assert np.mean(np.array(least) <= 0.2) > 0.05, "else it finds nothing"


def test_the_beta_distribution() -> None:
    a, b = np.array([2.0, 0.5, 5.0]), np.array([3.0, 0.5, 1.0])
    x = np.array([0.4, 0.3, 0.9])
    known = [0.5248, 2 / np.pi * np.arcsin(np.sqrt(0.3)), 0.9**5]
    np.testing.assert_allclose(incomplete_beta(a, b, x), known, rtol=1e-9)
    rng = np.random.default_rng(1)
    drawn = np.quantile(rng.beta(0.3, 12, 400_000), 0.9)
    assert quantile(np.array([0.3]), np.array([12.0]), 0.9)[0] == pytest.approx(drawn, rel=0.02)


def test_rates_shrink_to_that_of_the_fleet() -> None:
    rng = np.random.default_rng(2)
    true = rng.beta(2, 38, 400)
    runs = rng.integers(3, 30, 400).astype(float)
    guilt = rng.binomial(runs.astype(int), true).astype(float)
    first, second = prior(guilt, runs)
    assert first / (first + second) == pytest.approx(0.05, rel=0.2)
    rate, low, high = shrunken(guilt, runs)
    raw = guilt / runs
    assert np.square(rate - true).mean() < 0.5 * np.square(raw - true).mean()
    assert np.mean((low <= true) & (true <= high)) == pytest.approx(0.95, abs=0.03)


def test_nothing_at_all_is_no_error() -> None:
    rate, low, high = shrunken(np.zeros(2), np.array([0.0, 4.0]))
    assert ((low >= 0) & (low <= rate) & (rate <= high) & (high <= 1)).all()
    assert tails(np.zeros(0, dtype=np.intp), np.zeros(0), 0, 0).shape == (0, 2)
