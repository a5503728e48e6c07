"""Loaders that are slow, on one rank or on all."""

import numpy as np
import pytest

from rankscope.judge.excess import Excess
from rankscope.judge.story import story_of
from rankscope.model.intervals import Floats
from tests.judge.made import excess, noise, ranks_of


def of_loaders(pace: Floats, ahead: int = 2) -> Excess:
    """All ranks meet 17 ms after the last of them has its batch, which a loader made before.

    Args:
        pace: rank by iteration: what a batch takes, ms.
        ahead: how many batches a loader makes ahead; 0: none, and not before they are wanted.
    """
    ready, taken = np.zeros(pace.shape), np.zeros(pace.shape)
    ends = np.zeros(pace.shape[1] + 1)
    for i in range(pace.shape[1]):
        ready[:, i] = ends[i] if not ahead else ready[:, i - 1] if i else 0.0
        if ahead and i >= ahead:
            ready[:, i] = np.maximum(ready[:, i], taken[:, i - ahead])
        ready[:, i] += pace[:, i]
        taken[:, i] = np.maximum(ready[:, i], ends[i])
        ends[i + 1] = taken[:, i].max() + 17
    length = np.diff(ends)
    return excess(taken - ends[:-1] - 50, np.tile(length, (len(pace), 1)), phase="load")


@pytest.mark.parametrize(
    ("count", "scatter"), [(6, 0.5), (6, 1.0), (20, 0.5), (20, 1.0), (20, 2.0)]
)
def test_loaders_that_are_all_too_slow(count: int, scatter: float) -> None:
    """All wait now and then, one of them most; that its loader is slower is chance."""
    for seed in range(8):
        found = story_of(of_loaders(25 + noise(8, count, scatter, seed)))
        assert not found.slow, seed


@pytest.mark.parametrize("count", [6, 20])
def test_loads_in_the_foreground_do_not_bind(count: int) -> None:
    for seed in range(8):
        pace = 10 + noise(8, count, 1.0, seed)
        pace[2] += 6.0
        found = story_of(of_loaders(pace, ahead=0))
        assert (found.loaders_bind, ranks_of(found)) == (False, [(2,)]), seed


@pytest.mark.parametrize("count", [6, 20])
def test_loads_in_the_foreground_that_differ_by_rank_do_not_bind(count: int) -> None:
    """A rank that always loads longer looks like one that is behind: its loads are independent."""
    for seed in range(8):
        pace = 12 + np.abs(noise(8, 1, 3.0, seed + 99)) + noise(8, count, 0.5, seed)
        pace[2] += 15.0
        found = story_of(of_loaders(pace, ahead=0))
        assert not found.loaders_bind, seed
        assert (2,) in ranks_of(found), seed


def test_a_loader_that_is_too_slow() -> None:
    pace = 10 + noise(8, 20, 1.0)
    pace[2] += 15
    found = story_of(of_loaders(pace))
    assert (found.loaders_bind, ranks_of(found)) == (False, [(2,)])
    found = story_of(of_loaders(pace - 8, ahead=0))
    assert (found.loaders_bind, ranks_of(found)) == (False, [(2,)]), "in the foreground"


def test_a_loader_that_is_slower_than_others_that_are_too_slow() -> None:
    pace = 25 + noise(8, 20, 1.0)
    pace[2] += 5
    found = story_of(of_loaders(pace))
    assert (found.loaders_bind, ranks_of(found)) == (False, [(2,)])


@pytest.mark.parametrize("seed", [39, 41])
def test_a_loader_that_is_slow_now_and_then_beside_small_loads(seed: int) -> None:
    """All load in the foreground; what the others load is a tenth of its slow loads."""
    pace = 0.6 + np.abs(noise(8, 10, 0.6, seed))
    pace[2, ::4] += 20.0
    found = story_of(of_loaders(pace, ahead=0))
    assert (found.loaders_bind, ranks_of(found)) == (False, [(2,)])
