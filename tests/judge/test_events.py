"""Single events and lasting changes, beside what is always so."""

import numpy as np
import pytest
from msgspec.structs import replace

from rankscope.judge.rules import judge
from rankscope.judge.story import story_of
from rankscope.model.kinds import VerdictKind
from tests.judge.made import SUMMARY, excess, noise, ranks_of, story, wide_of
from tests.support import inputs_of


def test_a_change_is_compared_with_how_the_others_change() -> None:
    """Three devices differ by up to 2 % all the time; that is no noise of a fourth one."""
    late = noise(4, 40, 0.25) + np.array([[0.0], [-1.4], [0.6], [0.3]])
    late[0, 24:] += 18.0
    (found,) = story(late).slow
    assert (found.ranks, found.pattern.since) == ((0,), 25)


def test_single_events_make_no_rank_slow_all_the_time() -> None:
    """Each of three stalls takes five iterations; 16 hosts vary by 7 % of one."""
    named = []
    for seed in range(8):
        late = noise(16, 19, 7.0, seed)
        late[14, [11, 15, 17]] += 480.0
        (found,) = story(late).slow
        named.append((found.ranks, found.pattern.kind, found.pattern.iterations))
    assert named == [((14,), VerdictKind.TRANSIENT, (12, 16, 18))] * 8


def test_events_of_a_rank_that_is_always_slow_are_no_change() -> None:
    late = noise(8, 30)
    late[2] += 10.0
    late[2, [4, 20]] += 60.0
    first, *others = story(late).slow
    assert (first.ranks, first.pattern.always) == ((2,), True)
    assert not [each for each in others if each.ranks != (2,)]


def test_a_slow_rank_with_some_events_is_slow_in_all_iterations() -> None:
    """Some of its iterations exceed 5 %, from which on they are events."""
    late = noise(4, 11)
    late[0] += [5.6, 4.4, 4.6, 4.3, 4.5, 5.7, 5.6, 4.4, 5.8, 4.6, 5.7]
    (found,) = story(late).slow
    assert (found.ranks, found.pattern.always) == ((0,), True)


def test_ranks_with_a_period_and_a_single_event_are_said_once() -> None:
    late = noise(8, 20)
    late[0, [1, 5, 9, 13, 17]] += 22.0
    late[4, [5, 9, 13, 17]] += 17.0
    assert ranks_of(story(late)) == [(0, 4)]


@pytest.mark.parametrize(
    ("ranks", "per_host", "level_ms"), [(4, 1, 0.0), (4, 2, 0.4), (16, 1, 0.0)]
)
@pytest.mark.parametrize("count", [20, 40])
def test_a_rank_gets_slow_when_another_one_recovers(
    ranks: int, per_host: int, level_ms: float, count: int
) -> None:
    """Both are slow in half of the iterations: neither always, nor is it noise."""
    late = noise(ranks, count, 0.2, seed=count)
    late[2, : count // 2] += 10.0
    late[1, count // 2 :] += 10.0
    late[0] -= level_ms  # ranks always differ a little
    late[3] += level_ms
    found = story_of(excess(late, per_host=per_host)).slow
    assert {(*each.ranks, each.pattern.since, each.pattern.spells) for each in found} == {
        (1, count // 2 + 1, ()),
        (2, None, ((1, count // 2),)),
    }


def test_a_rank_is_compared_with_how_the_others_of_its_only_host_change() -> None:
    late = noise(4, 40, 0.5)
    late[1, :14] += 4.0
    late[2, 14:] += 4.0
    found = story_of(excess(late, per_host=4)).slow
    assert {each.ranks: (each.pattern.since, each.pattern.spells) for each in found} == {
        (2,): (15, ()),
        (1,): (None, ((1, 14),)),
    }


@pytest.mark.parametrize("more_ms", [12.0, 18.0])
@pytest.mark.parametrize("count", [6, 10, 40])
def test_two_ranks_that_are_slow_in_turn_are_named_each(count: int, more_ms: float) -> None:
    late = noise(8, count, 0.8)
    late[1, ::2] += 12.0
    late[2, 1::2] += more_ms
    slow = story(late).slow
    assert {each.ranks: each.pattern.period for each in slow} == {(1,): 2, (2,): 2}


def test_two_hosts_that_are_slow_by_turns_are_nobody() -> None:
    """A coin decides which one waits for storage: none of the other hosts tells how they change."""
    turns = np.array([int(each) for each in "1100000100100001001"])  # 13 to 6
    late = noise(16, len(turns))
    late[:8] += 12.0 * (turns == 0)
    late[8:] += 12.0 * (turns == 1)
    assert story_of(excess(late, per_host=8)).slow == ()


@pytest.mark.parametrize(("ranks", "count"), [(8, 20), (8, 40), (32, 20)])
def test_two_ranks_with_frequent_events_are_named_each(ranks: int, count: int) -> None:
    """They stall in two of five iterations by chance, sometimes at once."""
    late = noise(ranks, count)
    turns = np.random.default_rng(count + ranks).random((2, count)) < 0.4
    late[1] += 20.0 * turns[0]
    late[6] += 20.0 * turns[1]
    found = {each.ranks: each.pattern.iterations for each in story(late).slow}
    assert found == {
        (rank,): tuple((np.flatnonzero(of) + 1).tolist())
        for rank, of in zip((1, 6), turns, strict=True)
    }


def test_a_rank_with_events_in_most_iterations_is_slow_persistently() -> None:
    """Beside another one that stalls in half of them, often at the same time."""
    late = noise(4, 20)
    turns = np.random.default_rng(18).random((2, 20)) < np.array([[0.7], [0.5]])
    late[1] += 20.0 * turns[0]
    late[2] += 20.0 * turns[1]
    found = {each.ranks: each.pattern.kind for each in story(late).slow}
    assert turns.sum(axis=1).tolist() == [13, 9]
    assert found == {(1,): VerdictKind.PERSISTENT, (2,): VerdictKind.TRANSIENT}


def test_two_of_many_ranks_with_frequent_events_are_nobody() -> None:
    """Four of eight ranks stall as often as each other: a habit of all, of which two lead."""
    late = noise(8, 20)
    turns = np.random.default_rng(3).random((8, 20)) < 0.2
    late += 20.0 * turns
    assert story(late).slow == ()


def test_an_event_after_a_spell_is_no_part_of_it() -> None:
    """Of the two ranks of a real job, in which one paused in each of 13 steps."""
    late = np.zeros((2, 15))
    late[0, [6, 13]] = 3.0, 7.0
    late[1] = [18, 18, 19, 18, 18, 28, 0, 15, 17, 17, 16, 16, 17, 0, 32]
    spell, event = story_of(excess(late, per_host=2)).slow
    assert (spell.ranks, spell.pattern.spells) == ((1,), ((1, 13),))
    assert (event.ranks, event.pattern.iterations) == ((1,), (15,))


def test_levels_that_all_exceed_the_noise_are_told_apart() -> None:
    """Ranks attend to ever longer parts of a sequence; where the shortest ones wander, half of the
    ranks are unsure. Those with the longest parts are sure.
    """
    late = np.tile([-7.0, 0.0, 8.0, 14.0], 4)[:, None] + noise(16, 5, 0.4, 1)
    late[::4] += 0.6 * np.array([[1.0], [-1.0], [1.0], [-1.0]]) * np.linspace(-1, 1, 5)
    named = {rank for ranks in ranks_of(story_of(excess(late, per_host=8))) for rank in ranks}
    assert {3, 7, 11, 15} <= named


def test_a_large_event_and_smaller_ones_of_a_rank_are_of_one_owner() -> None:
    """As of a rank that writes logs in three of five iterations, much in one of them."""
    late = noise(16, 5, 0.6, 1)
    late[0, [1, 2, 4]] += [19.0, 81.0, 20.0]
    late[12, 1] += 5.5
    (found,) = story(late).slow
    assert (found.ranks, found.pattern.iterations) == ((0,), (2, 3, 5))


def test_a_small_event_does_not_hide_the_large_ones_of_its_rank() -> None:
    """It lies among those of others, which are nothing."""
    late = noise(8, 19, 0.4, 1)
    late[2, [1, 12, 13]] += [800.0, 1500.0, 700.0]
    late[2, 3] += 5.7
    late[[0, 1, 3], [13, 15, 18]] += [4.4, 2.5, 2.9]
    (found,) = story(late).slow
    assert (found.ranks, found.pattern.iterations) == ((2,), (2, 13, 14))


def test_events_of_a_rank_hide_no_other_that_is_always_slow() -> None:
    """Nor is a rank less slow for being very slow in a third of the iterations."""
    late = noise(4, 6, 0.4, 1)
    late[0] += 5.0
    late[2, [1, 4]] += [40.0, 25.0]
    assert {(0,), (2,)} == {*ranks_of(story(late))}
    late = 8.0 * np.random.default_rng(1).lognormal(0, 0.5, (4, 40))
    late[1] += 35.0
    late[1, ::3] += 40.0
    assert (1,) in [each.ranks for each in story(late).slow if each.pattern.always]


@pytest.mark.parametrize(("event", "ranks"), [(286, (0,)), (120, ())])
def test_an_event_that_costs_more_than_all_that_is_left_is_named(
    event: int, ranks: tuple[int, ...]
) -> None:
    """Rank 1 stalls, too, and rank 2 is a little slow in most of five iterations."""
    late = np.zeros((4, 6))
    late[0, 4:] = 9, event
    late[1, 2] = 38
    late[2] = 2, 6, 6, 5, 5, 5
    rows = [(rank, i, float(late[rank, i])) for rank in range(4) for i in range(6)]
    verdict = judge(inputs_of(wide_of(rows), run=replace(SUMMARY, ranks=4, iterations=6)))
    assert verdict.ranks == ranks
    assert verdict.kind is (VerdictKind.TRANSIENT if ranks else VerdictKind.ROTATING)


def test_events_are_facts_where_ranks_are_quiet() -> None:
    """Rank 6 differs by 3 and 7 % twice: ranks differ by 2 % by nature, however quiet they are."""
    late = np.random.default_rng(2).normal(0, 0.1, (8, 4))
    late[1, [0, 3]] = 120, 60
    late[6, :2] = 7, 3
    rows = [(rank, i, float(late[rank, i])) for rank in range(8) for i in range(4)]
    verdict = judge(inputs_of(wide_of(rows), run=replace(SUMMARY, ranks=8, iterations=4)))
    assert (verdict.ranks, verdict.iterations) == ((1,), (0, 3))


def test_an_event_of_three_ranks_is_no_later_one_of_two_of_them() -> None:
    late = noise(8, 10, 0.3)
    late[:3, 3] += 12.0
    late[:2, 6] += 7.0
    found = {each.ranks: each.pattern.iterations for each in story(late).slow}
    assert found[0, 1, 2] == (4,)
