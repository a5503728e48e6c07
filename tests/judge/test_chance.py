"""Could chance have done it: METHOD.md#verdict."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rankscope.judge.chance import (
    chance_of_largest,
    chance_of_levels,
    chance_of_sets,
    in_common,
    iterations_to_settle,
)
from rankscope.judge.levels import ALPHA
from rankscope.judge.noise import noise_of
from rankscope.model.intervals import Floats, Index


@pytest.mark.parametrize("common", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("hosts", [2, 8])
def test_what_the_ranks_of_a_host_have_in_common(hosts: int, common: float) -> None:
    draw = np.random.default_rng(0)
    on, roles = np.repeat(np.arange(hosts), 4), np.zeros(4 * hosts, dtype=np.int64)
    noise = np.sqrt(common) * draw.standard_normal((hosts, 800))[on]
    noise += np.sqrt(1 - common) * draw.standard_normal((4 * hosts, 800))
    assert in_common(noise - noise.mean(axis=0), roles, on) == pytest.approx(common, abs=0.05)
    own: Any = SimpleNamespace(share=noise, roles=roles, hosts=on)
    assert noise_of(own) == pytest.approx(1.0, rel=0.1)
    alone = np.arange(4 * hosts)
    assert in_common(noise, roles, alone) == in_common(noise, roles, roles) == 0.0


@pytest.mark.parametrize(("ranks", "count"), [(8, 4), (2, 11)])
def test_how_many_iterations_are_enough(ranks: int, count: int) -> None:
    """A rank that is always the slowest: the exact probability is ranks ** (1 - count)."""
    roles = np.zeros(ranks, dtype=np.int64)
    cells = np.zeros((ranks, count))
    cells[0] = 1.0
    assert chance_of_sets([cells], roles, [(0, np.array([0]))])[0] <= ALPHA
    assert chance_of_sets([cells[:, : count // 2]], roles, [(0, np.array([0]))])[0] > ALPHA


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_the_level_says() -> None:
    """100 matrices of noise, several sizes tried in each: at a level of 5 %, 5 are expected."""
    draw = np.random.default_rng(0)
    roles = np.zeros(6, dtype=np.int64)
    alarms = 0
    for _ in range(100):
        cells = draw.pareto(2.0, (6, 12))
        order = np.argsort(-cells.sum(axis=1))
        sets = [(0, order[:k]) for k in (1, 2, 3)]
        alarms += chance_of_sets([cells], roles, sets).min() <= 0.05
    assert 1 <= alarms <= 12


def test_ranks_are_exchanged_within_their_roles() -> None:
    cells = np.zeros((4, 20))
    cells[2:] = 5.0
    slow = [(0, np.array([2, 3]))]
    assert chance_of_sets([cells], np.array([0, 0, 1, 1]), slow)[0] > 0.5
    assert chance_of_sets([cells], np.zeros(4, dtype=np.int64), slow)[0] <= ALPHA


def test_the_chance_of_the_largest_value() -> None:
    """Of a power law with index 1/2 the largest is twice the next with probability 1/4."""
    draw = np.random.default_rng(0)
    chances = []
    for _ in range(400):
        values = np.sort(draw.pareto(2.0, 200) + 1)
        chances.append(chance_of_largest(values[-1:], values[:-1], 2.0))
    assert 0.02 <= np.mean(np.array(chances) <= 0.05) <= 0.12
    assert chance_of_largest(np.array([5.0]), np.array([0.0]), 1.0) < 1e-9
    assert chance_of_largest(np.array([1.1]), np.array([0.0]), 1.0) > ALPHA, "it may be noise"
    assert chance_of_largest(np.array([1.0]), np.array([2.0]), 0.0) == 1.0
    assert chance_of_largest(np.array([5.0]), np.array([2.0]), 0.0) == 0.0


def test_few_values_tell_less_of_the_noise() -> None:
    """One of four ranks in one step: its noise is known by three values."""
    others, noise = np.full(3, 0.1), 5.0
    assert chance_of_largest(np.array([7.0]), others, noise) <= ALPHA
    assert chance_of_largest(np.array([7.0]), others, noise, 1.0, 3) > ALPHA
    assert chance_of_largest(np.array([15.0]), others, noise, 1.0, 3) <= ALPHA
    draw = np.random.default_rng(2)
    chances = [
        chance_of_largest(values[-1:], values[:-1], 5.0, 1.0, 3)
        for values in np.sort(draw.standard_t(3, (2_000, 4)), axis=1)
    ]
    assert np.mean(np.array(chances) <= ALPHA) <= 2 * ALPHA


def test_several_values_lie_apart_by_the_gap_below_them() -> None:
    few = np.array([0.53, 0.4, 0.21, 0.18])
    assert chance_of_largest(np.full(7, 2.0), few, 0.13) <= ALPHA
    assert chance_of_largest(np.array([2.0]), few, 0.13) > ALPHA
    assert chance_of_largest(np.append(np.full(7, 2.0), 0.55), few, 0.13) > 0.5


def test_values_within_the_noise_tell_nothing_of_a_tail() -> None:
    """Two loads of 12 and 30 ms make a third one of 90 ms no exception."""
    few, quiet = np.array([12.0, 30.0]), np.full(60, 0.5)
    assert chance_of_largest(np.array([90.0]), few, 2.0) > 0.1
    assert chance_of_largest(np.array([90.0]), np.append(quiet, few), 2.0) == chance_of_largest(
        np.array([90.0]), few, 2.0
    )


def test_iterations_that_would_settle_it() -> None:
    """The distance grows with the square root: half of it needs four times as many."""
    assert iterations_to_settle(0.0992, 10) == 41
    assert iterations_to_settle(0.4, 10) == 0, "a number of 1,038 would be noise"
    assert iterations_to_settle(1.0, 1) == 0


def test_levels_of_hosts_are_compared_with_those_of_hosts() -> None:
    """Of two or four alike hosts that wander, with all their ranks: the slowest, at 1 %."""
    draw = np.random.default_rng(1)
    alarms = 0
    for hosts in (2, 4):
        on = np.repeat(np.arange(hosts), 4)
        for _ in range(300):
            noise = draw.standard_normal((hosts, 8))
            for i in range(1, 8):
                noise[:, i] = 0.6 * noise[:, i - 1] + 0.8 * noise[:, i]
            noise = noise[on] + 0.1 * draw.standard_normal((4 * hosts, 8))
            slowest = on[noise.mean(axis=1).argmax()]
            alarms += chance_of(noise, on, np.flatnonzero(on == slowest)) <= 0.01
    assert 1 <= alarms <= 30


def test_two_hosts_that_each_wander_for_all_of_a_run_tell_nothing() -> None:
    on = np.repeat([0, 1], 4)
    assert chance_of(on[:, None] * np.repeat([9.0, 11.0], 4), on, np.flatnonzero(on)) == 1.0


def test_constant_levels_are_no_noise_beyond_those_of_devices() -> None:
    """As of ranks that attend to ever longer parts of a sequence: the last of each four is slow."""
    draw, on, last = np.random.default_rng(0), np.repeat([0, 1], 4), np.array([3, 7])
    ladder = np.tile([-6.0, 0.0, 8.0, 16.0], 2)[:, None] + 0.3 * draw.standard_normal((8, 9))
    assert chance_of(ladder, on, last, 2.0) <= ALPHA < chance_of(ladder, on, last)
    assert chance_of(ladder, on, last, 6.0) > ALPHA, "devices differ as much"
    assert chance_of(ladder / 5, on, last, 2.0) > ALPHA, "these scatter by less than devices"
    assert chance_of(ladder, np.arange(8), last, 2.0) > ALPHA, "nobody knows how hosts wander"
    wandering = ladder + np.linspace(-1, 1, 9) * np.tile([5.0, -5.0, 3.0, 0.0], 2)[:, None]
    assert chance_of(wandering, on, last, 2.0) > ALPHA


def test_three_ranks_that_differ_by_less_than_devices_are_not_all_that_is_known() -> None:
    """Of four ranks on two hosts in five iterations, one needs 9 % more."""
    draw, on, slow = np.random.default_rng(1), np.array([0, 0, 1, 1]), np.array([1])
    cells = np.array([[0.5], [9.0], [-0.6], [0.0]]) + 0.3 * draw.standard_normal((4, 5))
    assert chance_of(cells, on, slow, 2.0) <= ALPHA < chance_of(cells, on, slow)
    assert chance_of(cells / 3, on, slow, 2.0) > ALPHA, "a device may be slower by 3 %"
    assert chance_of(cells, on, slow, 0.5) == chance_of(cells, on, slow), "they differ by more"
    more = 0
    for _ in range(300):
        devices = draw.normal(0, 1.0, (4, 1)) + 0.3 * draw.standard_normal((4, 5))
        slowest = devices.mean(axis=1).argmax(keepdims=True)
        more += chance_of(devices, on, slowest, 2.0) <= ALPHA < chance_of(devices, on, slowest)
    assert more <= 3, "alarms are as rare as before"


def chance_of(cells: Floats, hosts: Index, rows: Index, nature: float = 0.0) -> float:
    return chance_of_levels(cells, np.zeros_like(hosts), hosts, rows, rows, nature=nature)


def test_a_rank_that_is_alone_in_its_role_says_nothing_of_the_noise() -> None:
    share = np.random.default_rng(0).normal(0.0, 0.02, (6, 20))
    share[4:], own = 0.0, np.arange(6)
    alone: Any = SimpleNamespace(share=share, roles=np.array([0, 0, 0, 0, 1, 2]), hosts=own)
    others: Any = SimpleNamespace(share=share[:4], roles=np.zeros(4), hosts=own[:4])
    assert noise_of(alone) == noise_of(others) > 0.0
