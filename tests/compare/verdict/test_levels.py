"""Levels with change points, and who lies apart from the others."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankscope.compare.verdict.candidates import event_candidates, level_candidates
from rankscope.compare.verdict.excess import Excess, excess_of
from rankscope.compare.verdict.levels import levels_of

MS = 1_000_000


def excess(work_ms: np.ndarray) -> Excess:
    """The excess of ranks by iterations that load for so long, and step for 30 ms more."""
    ranks, iterations = work_ms.shape
    rank, iteration = (each.ravel() for each in np.indices((ranks, iterations)))
    load = (work_ms.ravel() * MS).astype(np.int64)
    wide = pl.DataFrame(
        {
            "rank": rank,
            "role": ["all"] * rank.size,
            "iteration": iteration,
            "iteration_ns": load + 30 * MS,
            "work_ns": load,
            "load_ns": load,
        }
    )
    return excess_of(wide, "work")


def noisy(seed: int, ranks: int = 8, iterations: int = 60) -> np.ndarray:
    return np.random.default_rng(seed).normal(10, 0.1, (ranks, iterations))


@pytest.mark.parametrize(
    "slow", [[*range(4), *range(20, 30)], [*range(30, 38), 58, 59], [*range(9, 15)]]
)
@pytest.mark.parametrize("seed", range(5))
def test_a_spell_is_found_whole_also_where_the_run_cuts_it_off(slow: list[int], seed: int) -> None:
    work = noisy(seed)
    work[3, slow] += 3
    levels = levels_of(excess(work))
    assert np.flatnonzero(levels.high[3]).tolist() == slow
    assert not levels.high[[0, 1, 2, 4, 5, 6, 7]].any()
    assert not levels.events.any()


def test_nobody_lies_apart_where_loading_has_a_heavy_tail() -> None:
    found = 0
    for seed in range(60):
        drawn = np.random.default_rng(seed).pareto(1.5, (4, 40))
        run = excess(10 + drawn)
        found += bool(level_candidates(run, levels_of(run), {}))
    assert found <= 1


@pytest.mark.parametrize("seed", range(5))
def test_a_rank_that_is_always_slower_lies_apart_in_spite_of_a_heavy_tail(seed: int) -> None:
    drawn = np.random.default_rng(seed).pareto(1.5, (4, 40))
    drawn[2] += 4
    run = excess(10 + drawn)
    candidates = level_candidates(run, levels_of(run), {})
    assert [each.ranks for each in candidates] == [(2,)]


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_with_large_events_is_also_slow_in_its_smaller_ones(seed: int) -> None:
    large, small = [5, 17, 23, 40, 41], [8, 30, 52]
    work = noisy(seed)
    work[3, large] += 20
    work[3, small] += 5
    work[6, [11, 33]] += 4  # of somebody else, smaller than those
    run = excess(work)
    (candidate,) = event_candidates(run, levels_of(run), {})
    assert candidate.ranks == (3,)
    assert candidate.pattern.iterations == sorted(large + small)


@pytest.mark.parametrize("ranks", [8, 32])
def test_the_largest_of_a_heavy_tail_is_nobodys_fault(ranks: int) -> None:
    found = []
    for seed in range(100):
        run = excess(10 + np.random.default_rng(seed).pareto(2, (ranks, 40)))
        found += event_candidates(run, levels_of(run), {})
    assert len(found) <= 8, "at most 5 % seem lone, and 0.1 % often"


def test_few_events_at_regular_distances_are_chance() -> None:
    found = []
    for seed in range(100):
        work = noisy(seed, ranks=32, iterations=40)
        work[np.random.default_rng(seed).random(work.shape) < 0.04] += 5
        run = excess(work)
        found += [each.pattern.period for each in event_candidates(run, levels_of(run), {})]
    assert len(found) - found.count(None) <= 2


@pytest.mark.parametrize("seed", range(5))
def test_a_lone_stall_stands_out_from_a_heavy_tail(seed: int) -> None:
    work = 10 + np.random.default_rng(seed).pareto(4, (8, 40))
    work[5, 21] += 60
    run = excess(work)
    (candidate,) = event_candidates(run, levels_of(run), {})
    assert candidate.ranks == (5,)
    assert 21 in candidate.pattern.iterations
