"""Several ranks that are slow by turns, and pieces of what is slow as one claim."""

import numpy as np
import pytest
from msgspec.structs import replace

from rankscope.judge.story import story_of
from rankscope.model.intervals import Floats
from rankscope.model.kinds import VerdictKind
from tests.judge.made import excess, noise, ranks_of, story


def stalling(seed: int, count: int, often: Floats) -> Floats:
    """16 ranks, which stall in some iterations, each as `often` and as long as chance has it."""
    draw = np.random.default_rng(seed)
    stalls = draw.random((16, count)) < often[:, None]
    return noise(16, count, 0.3, seed) + stalls * draw.exponential(60.0, (16, count))


@pytest.mark.parametrize("count", [20, 40])
def test_ranks_that_stall_by_turns_are_one_claim(count: int) -> None:
    """They share a storage that is slow now and then; no host is known."""
    often = np.zeros(16)
    often[4:8] = 0.5
    named = list[bool]()
    for seed in range(6):
        late = stalling(seed, count, often)
        found = story(late).slow
        named.append([each.ranks for each in found] == [(4, 5, 6, 7)])
        slow = np.flatnonzero((late > 10.0).any(axis=0)) + 1
        assert np.isin(slow, [n for each in found for n in each.pattern.iterations]).all()
    assert sum(named) >= 5, named


def test_a_rank_that_stalls_no_more_than_others_is_none_of_those_that_do() -> None:
    """All stall now and then, three of them much more often."""
    often = np.full(16, 0.06)
    often[[2, 7, 11]] = 0.6
    named = [
        {rank for each in story(stalling(seed, 20, often)).slow for rank in each.ranks}
        for seed in range(9)
    ]
    assert all(each <= {2, 7, 11} for each in named), named
    assert sum(each == {2, 7, 11} for each in named) >= 4, named


@pytest.mark.parametrize("often", [0.1, 0.3])
def test_ranks_that_all_stall_by_turns_are_nobody(often: float) -> None:
    for seed in range(12):
        assert ranks_of(story(stalling(seed, 20, np.full(16, often)))) == [], seed


def test_all_ranks_of_a_host_are_one_claim_though_some_are_slower() -> None:
    late = noise(8, 9, 0.3)
    late[:4] += np.array([[25.0], [28.0], [45.0], [80.0]]) + noise(4, 9, 3.0, seed=1)
    (found,) = story_of(excess(late, per_host=4)).slow
    assert (found.ranks, found.pattern.always) == ((0, 1, 2, 3), True)
    assert ranks_of(story(late)) == [(2, 3), (0, 1)], "without their host they differ"


def test_ranks_of_a_host_of_which_one_is_quick_are_not_the_host() -> None:
    late = noise(8, 9, 0.3)
    late[1:4] += np.array([[25.0], [45.0], [80.0]]) + noise(3, 9, 3.0, seed=1)
    named = {rank for each in story_of(excess(late, per_host=4)).slow for rank in each.ranks}
    assert 0 not in named


def test_a_rank_that_exceeds_an_event_now_and_then_is_slow_in_the_other_iterations_too() -> None:
    """Two of the three others differ by so much that chance may have made a fourth one slow."""
    late = noise(4, 5, 0.1) + np.array([[0.6], [-0.8], [0.0], [0.0]])
    late[3] = [3.9, 5.8, 5.7, 4.7, 5.6]
    (found,) = story(late).slow
    assert (found.ranks, found.pattern.kind) == ((3,), VerdictKind.PERSISTENT)
    assert found.pattern.iterations == (1, 2, 3, 4, 5)


def test_a_rank_with_an_event_of_its_own_beside_those_of_others_is_none_of_them() -> None:
    late = noise(16, 20, 0.3)
    late[4:8, [2, 3, 4, 12, 13, 14]] += 60.0
    late[8, 13] += 8.0
    assert (4, 5, 6, 7) in ranks_of(story(late))


def test_one_phase_tells_what_the_noise_of_the_others_hides() -> None:
    """A rank is always slow in one phase; others have spells of noise in another one."""
    late = noise(8, 9, 0.3)
    late[0, 4:8] += [2.4, 4.4, 10.7, 8.7]
    late[3, 4:9] += [2.3, 9.0, 8.7, 5.2, 5.9]
    late[6, 0] += 9.3
    optimizer = noise(8, 9, 0.2, seed=1)
    optimizer[7] += 10.0
    assert (7,) in ranks_of(story_of(excess(late, optimizer=optimizer)))


@pytest.mark.parametrize("less", [3.0, 12.0])
def test_a_host_is_not_slow_where_one_of_its_ranks_costs_nearly_all(less: float) -> None:
    """Its other rank is always a little slow as well, but healing it saves next to nothing."""
    late = noise(8, 12, 0.1)
    late[0, 7:] += 80.0
    late[1] += less
    first, *others = story_of(excess(late, per_host=2)).slow
    assert (first.ranks, first.pattern.since) == ((0,), 8)
    assert [each.ranks for each in others] == [(1,)]


def test_a_host_is_not_slow_where_that_leaves_out_much_of_what_its_ranks_cost() -> None:
    late = noise(8, 12, 0.1)
    late[0, 7:] += 80.0
    late[1] += 30.0
    found = story_of(excess(late, per_host=2)).slow
    assert {each.ranks: each.pattern.always for each in found} == {(0,): False, (1,): True}


def test_a_host_stalls_more_often_where_it_has_more_ranks() -> None:
    """All ranks stall alike: eight on the first host, one on each of the others."""
    often = np.full(16, 0.0)
    often[:11] = 0.12
    for seed in range(6):
        stalls = excess(stalling(seed, 20, often)[:11], per_host=8)
        alone = replace(stalls, hosts=np.array([0] * 8 + [1, 2, 3]))
        assert not story_of(alone).slow, seed


def test_a_host_stalls_more_often_where_its_stage_does() -> None:
    """Each host has one stage of a pipeline: nobody knows how the stage would do elsewhere."""
    often = np.full(16, 0.03)
    often[:4] = 0.3
    for seed in range(6):
        stalls = excess(stalling(seed, 20, often), per_host=4)
        stages = replace(stalls, roles=stalls.hosts, role_names=("a", "b", "c", "d"))
        assert not story_of(stages).slow, seed


def test_a_host_is_slow_though_none_of_its_ranks_is_beyond_chance() -> None:
    """All ranks vary by as much as it is slow."""
    named = list[tuple[int, ...]]()
    for seed in range(20):
        late = noise(32, 10, 2.0, seed)
        late[8:16] += 3.0
        named += ranks_of(story_of(excess(late, per_host=8)))
    assert named.count((8, 9, 10, 11, 12, 13, 14, 15)) >= 6
    assert all({*ranks} <= {*range(8, 16)} for ranks in named)


def test_ranks_of_a_host_that_are_slow_one_after_the_other_are_named_each() -> None:
    late = noise(4, 9, 0.3)
    late[0, :4] += 12.0
    late[1, 4:] += 12.0
    assert sorted(ranks_of(story_of(excess(late, per_host=2)))) == [(0,), (1,)]
