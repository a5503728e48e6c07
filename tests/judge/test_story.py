"""Who is slow beyond chance, and what is a fact: on matrices of excess with planted truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rankscope.judge.levels import ALPHA
from rankscope.judge.story import story_of
from rankscope.model.intervals import Floats
from tests.judge.made import excess, noise, ranks_of, story
from tests.support import MS


def test_ranks_that_wait_launch_ahead() -> None:
    """Rank 1 loads 30 ms; after that its device starves for 20 ms, as all would without waits."""
    late = np.zeros((4, 20))
    late[1] = 20.0
    load = np.where(late > 0, 30.0, 0.0)
    wait = 50.0 - late - load

    def found(host: float | Floats, transfer: float = 0.0) -> list[float]:
        more = {"load": load, "wait": wait - 50, "host": np.zeros_like(late) + host - 50}
        one = excess(late, 150.0 + transfer, **more)
        beside = one.beside("load")
        assert np.allclose(beside.total[1], np.nansum(beside.by_phase[1], axis=1))
        means = [
            float(each[1].mean() / MS) for each in (one.total, *np.moveaxis(one.by_phase, 2, 0))
        ]
        return [each for each in means if each > 0]

    assert found(100.0) == [50.0, 30.0, 20.0]
    assert found(120.0) == [30.0, 30.0]
    assert found(140.0) == [10.0, 10.0]
    assert found(145.0) == [50.0, 30.0, 20.0]  # it may wait unseen
    assert found(120.0, transfer=15.0) == [45.0, 30.0, 15.0]  # hosts launch ahead meanwhile, too
    hidden = np.full(late.shape, 120.0)
    hidden[:, 5:] = 130.0  # nor does any call tell of waits in most iterations
    assert found(hidden) == [30.0, 30.0]


def test_ranks_are_not_quick_where_their_slow_phase_is_unknown() -> None:
    """As loading, in the first iteration of a report."""
    late = noise(4, 12)
    late[2] += 10.0
    late[:, 0] = np.nan
    (found,) = story(late).slow
    assert (found.pattern.always, found.pattern.since) == (True, None)
    late[:, 0], late[2, 1:3] = 0.0, 0.0
    (found,) = story(late).slow
    assert found.pattern.since == 4


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_slow_in_noise(seed: int) -> None:
    assert ranks_of(story(noise(8, 20, 3.0, seed))) == []
    tails = np.random.default_rng(seed).pareto(1.5, (8, 30)).clip(0, 20)
    assert ranks_of(story(tails)) == []


@pytest.mark.parametrize("ranks", [8, 16])
def test_devices_that_always_differ_by_nature_are_not_slow(ranks: int) -> None:
    draw = np.random.default_rng(ranks)
    for _ in range(10):
        late = draw.normal(0.0, 1.5, (ranks, 1)) + draw.normal(0.0, 0.1, (ranks, 10))
        assert not story_of(excess(late, per_host=4)).slow


def test_ranks_that_are_given_ever_more_are_slow() -> None:
    """Of four parts of a sequence, the last one costs most."""
    late = np.tile([-6.0, 0.0, 8.0, 16.0], 2)[:, None] + noise(8, 9)
    assert (3, 7) in ranks_of(story_of(excess(late, per_host=4)))


def test_a_rank_that_is_slower_than_noise_by_little() -> None:
    late = noise(8, 40, 2.0)
    late[3] += 3.0
    (found,) = story(late).slow
    assert found.ranks == (3,)
    assert found.chance is not None
    assert found.chance <= ALPHA


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_rank_in_a_phase_that_is_quiet_beside_another(seed: int) -> None:
    """It loads longer in every fourth iteration, while backward varies by nearly as much."""
    late, load = noise(4, 24, 25.0, seed), noise(4, 24, 0.3, seed + 9)
    load[3, ::4] += 40.0
    (found,) = story_of(excess(late, load=load)).slow
    assert (found.ranks, found.pattern.iterations) == ((3,), (1, 5, 9, 13, 17, 21))
    late = noise(4, 24, 5.0, seed)
    late[3, ::4] -= 40.0
    assert ranks_of(story_of(excess(late, load=load))) == [], "less of the other phase makes up"


def test_many_phases_are_tried_in_noise() -> None:
    named = 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        quiet = {name: draw.normal(0, 1, (4, 8)) for name in ("load", "forward", "optimizer")}
        named += len(story_of(excess(draw.normal(0, 5, (4, 8)), **quiet)).slow)
    assert named <= 1


def lasting(seed: int, kept: float, ranks: int = 8, count: int = 20) -> Floats:
    """Noise of 4 % of which an iteration hands a share to the next one."""
    late = noise(ranks, count, 4.0, seed)
    for i in range(1, count):
        late[:, i] = kept * late[:, i - 1] + np.sqrt(1 - kept**2) * late[:, i]
    return late


def test_noise_that_lasts_makes_nobody_slow() -> None:
    """Every rank is slow for some iterations, each in others."""
    named = [ranks_of(story(lasting(seed, kept))) for kept in (0.8, 0.95) for seed in range(6)]
    assert sum(map(bool, named)) <= 1, named


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_rank_beyond_noise_that_lasts(seed: int) -> None:
    late = lasting(seed, 0.8)
    late[3] += 40.0
    assert ranks_of(story(late)) == [(3,)]


@pytest.mark.parametrize("slow_ms", [0.0, 15.0])
def test_noise_that_the_ranks_of_a_host_share_makes_nobody_slow(slow_ms: float) -> None:
    """They are slow together for some iterations, as another job on the host makes them."""
    named = []
    for seed in range(12):
        late = np.repeat(lasting(seed, 0.6, 4, 10), 4, axis=0) + noise(16, 10)
        late[5] += slow_ms
        named.append([each.ranks for each in story_of(excess(late, per_host=4)).slow])
    assert sum(each != ([(5,)] if slow_ms else []) for each in named) <= 2, named


def by_turns(seed: int, stalls: int) -> Floats:
    """Four hosts of two ranks; in some of 20 iterations a rank of the second one is late."""
    draw = np.random.default_rng(seed)
    late = draw.normal(0.0, 0.2, (8, 20))
    then = draw.choice(20, stalls, replace=False)
    late[2 + np.arange(stalls) % 2, then] += draw.uniform(20.0, 90.0, stalls)
    return late


@pytest.mark.parametrize("seed", range(3))
def test_a_host_whose_ranks_are_slow_by_turns(seed: int) -> None:
    """As where its storage stalls: no other rank ever is."""
    late = by_turns(seed, 8)
    (found,) = story_of(excess(late, per_host=2)).slow
    assert found.ranks == (2, 3)
    slow = {each.ranks for each in story_of(excess(late)).slow}
    assert (2, 3) not in slow, "without their host they are two ranks"


@pytest.mark.parametrize(
    ("size", "turns", "is_host"),
    [
        (8, [0, 1, 2, 3, 4, 5, 6, 7] * 2, True),
        (8, [0, 1, 2, 3, 0, 1, 2], True),  # of seven events
        (8, [0, 1, 2, 3] * 4, False),
        (8, [0, 1] * 7 + [2, 3, 4], False),
        (3, [0, 1] * 7, False),
        (3, [0, 1, 2] * 5, True),
    ],
)
def test_a_host_is_named_if_most_of_its_ranks_take_part(
    size: int, turns: list[int], is_host: bool
) -> None:
    draw = np.random.default_rng(1)
    late = noise(4 * size, 40)
    then = np.sort(draw.choice(40, len(turns), replace=False))
    late[size + draw.permuted(turns), then] += 90.0
    late[size + turns[0], then[0]] += 900.0  # single events hardly count
    named = ranks_of(story_of(excess(late, per_host=size)))
    assert (tuple(range(size, 2 * size)) in named) == is_host


def test_each_rank_of_a_host_has_its_own_period() -> None:
    """While one waits for the other it does what was due; or another one hides it."""
    numbers = np.arange(1, 40)
    five, three = numbers % 5 == 4, numbers % 3 == 1
    for then, more in ((three & ~five, 60.0), (three & ~five, 40.0), (three, 60.0)):
        late = noise(32, 39)
        late[29] += 60.0 * five
        late[30] += more * then
        slow = story_of(excess(late, per_host=8)).slow
        assert {each.ranks: each.pattern.period for each in slow} == {(29,): 5, (30,): 3}


@pytest.mark.parametrize("seed", range(3))
def test_a_single_event_of_a_rank_blames_no_host(seed: int) -> None:
    draw = np.random.default_rng(seed)
    late = 2.0 * draw.lognormal(0.0, 1.0, (16, 20))
    assert not [each for each in story_of(excess(late, per_host=4)).slow if len(each.ranks) > 1]


def test_a_host_of_which_most_ranks_are_slow_is_named_as_a_whole() -> None:
    for late_ms, others in ((2.3, [0.0] * 12), (1.8, [0.0, -0.5, -1.0, -1.0])):
        late = np.array([[late_ms, 5.0, 5.0, 5.0, *others]]).T + noise(4 + len(others), 20, 0.3)
        (of_host,) = story_of(excess(late, per_host=4)).slow
        assert of_host.ranks == (0, 1, 2, 3)
        assert (1, 2, 3) in {each.ranks for each in story_of(excess(late)).slow}


@pytest.mark.parametrize("late_ms", [0.3, 1.0])
def test_a_rank_that_is_hardly_late_is_not_slow_because_its_host_is(late_ms: float) -> None:
    late = np.repeat([[late_ms], [15.0], [0.0]], [1, 3, 12], axis=0) + noise(16, 20, 0.3)
    (found,) = story_of(excess(late, per_host=4)).slow
    assert found.ranks == (1, 2, 3)


def test_a_named_rank_is_no_peer_of_the_others() -> None:
    """One of three others is the slowest in 12 of 16 iterations, another one in the rest."""
    named = []
    for seed in range(6):
        late = np.random.default_rng(seed).normal([[0], [0], [0], [20]], 1.0, (4, 16))
        late[[0] * 12 + [1] * 4, range(16)] += 3.0
        named.append(ranks_of(story(late)))
    assert sum(each != [(3,)] for each in named) <= 1, named


def test_a_slow_host_beyond_what_its_ranks_share() -> None:
    late = np.repeat(noise(2, 8, 1.0), 4, axis=0) + noise(8, 8)
    late[4:] += 10.0
    (found,) = story_of(excess(late, per_host=4)).slow
    assert found.ranks == (4, 5, 6, 7)


@pytest.mark.parametrize("seed", [1, 5, 9, 14])
def test_ranks_that_are_all_slow_for_some_iterations(seed: int) -> None:
    """Each by as much; which of them are so for longest is chance, however they are grouped."""
    draw = np.random.default_rng(seed)
    late = noise(12, 12, 0.5, seed)
    for rank in range(12):
        slow = draw.random() < 0.25
        for i in range(12):
            late[rank, i] += 9.0 * slow
            slow = draw.random() < (0.8 if slow else 0.08)
    assert ranks_of(story(late)) == []


def test_a_change_that_stays_is_no_noise_that_lasts() -> None:
    """One by less than an event."""
    late = noise(8, 11)
    late[3, 5:] += 4.0
    (found,) = story(late).slow
    assert (found.ranks, found.pattern.since) == ((3,), 6)


def test_noise_that_lasts_hides_no_pause() -> None:
    late = lasting(4, 0.95)
    late[5, 17] += 60.0
    assert ranks_of(story(late)) == [(5,)], "another rank's spell costs more, and is noise"


def test_ranks_differ_by_nature() -> None:
    """By 1 % of the time in every iteration, far beyond their noise."""
    late = noise(8, 40, 0.1)
    late[3] += 1.4
    assert ranks_of(story(late)) == []
    late[3] += 1.4
    assert ranks_of(story(late)) == [(3,)]


def test_an_unknown_load_is_no_quick_one() -> None:
    """The load of the first iteration of a report is unknown."""
    late = noise(8, 20, 0.1)
    late[1, :10] += 12.0
    known = excess(late, phase="load")
    spent = known.spent.copy()
    spent[:, 0] = np.nan
    found = story_of(replace(known, spent=spent))
    assert (found.loaders_bind, ranks_of(found)) == (False, [(1,)])


def test_an_iteration_in_which_all_ranks_differ_is_no_fact() -> None:
    """All ranks compile once, each for another time."""
    late = noise(8, 20)
    late[:, 4] = [25.0, 3.0, 41.0, 9.0, 33.0, 14.0, 19.0, 29.0]
    assert ranks_of(story(late)) == []
    late[:, 4] = noise(1, 8)
    late[2, 4] += 41.0
    assert ranks_of(story(late)) == [(2,)]


def test_the_largest_of_an_iteration_in_which_all_ranks_differ_is_no_fact() -> None:
    """Caches of all ranks are cold in the first of six iterations."""
    late = noise(8, 6, ms=0.8)
    late[:, 0] = [0.0, 0.5, 4.0, 4.2, 12.0, 2.0, 2.2, 4.1]
    assert ranks_of(story(late)) == []
    late[4, 3] += 30.0  # an event of its own is enough
    assert ranks_of(story(late)) == [(4,)]
    late[:, [0, 3]] = noise(2, 8).T
    late[4, 0] += 12.0
    assert ranks_of(story(late)) == [(4,)]


def test_a_host_that_is_slow_together() -> None:
    late = noise(16, 20)
    late[4:8] += 10.0
    assert ranks_of(story(late)) == [(4, 5, 6, 7)]


def test_half_of_the_ranks_need_more_evidence() -> None:
    """A rank of two that is slow is one that is fast: either would be found."""
    late = noise(2, 12, 0.1)
    late[0] += 10.0
    (found,) = story(late[:, :9]).slow
    assert found.chance is None, "a fact, of which chance would find either in 1 of 128 runs"
    (found,) = story(late).slow
    assert found.chance is not None


def test_ranks_that_are_fast() -> None:
    """Four of seven may be slow, or three be fast."""
    late = noise(7, 20)
    late[[0, 3, 5, 6]] += 10.0
    found = story(late)
    assert found.slow == ()
    assert found.fast is not None
    assert found.fast.ranks == (1, 2, 4)


def test_ranks_as_slow_as_usual_hide_no_fact() -> None:
    """Where most ranks wait for a late one, their hosts get ahead: the median rank works less."""
    late = noise(8, 10) + 40.0
    late[3:, 8:] -= 20.0
    late[2, 8:] += 35.0
    assert ranks_of(story(late)) == [(2,)]
    assert story(late).slow[0].pattern.iterations == (9, 10)


def test_a_host_that_stalls_once_is_one_fact() -> None:
    late = noise(16, 30)
    late[4:8, 11] += 40.0
    (found,) = story(late).slow
    assert (found.ranks, found.pattern.iterations, found.chance) == ((4, 5, 6, 7), (12,), None)


def test_the_first_rank_of_each_host_waits_for_storage() -> None:
    late = noise(16, 40)
    late[np.ix_([0, 4, 8, 12], [3, 9, 10, 17, 22, 25, 31])] += 20.0
    assert (0, 4, 8, 12) in ranks_of(story(late))


@pytest.mark.parametrize(("missed", "named"), [(0, [(0, 4)]), (1, [(0, 4)]), (2, [(0,), (4,)])])
def test_ranks_that_are_slow_together_are_one_though_small_differences_hide_one(
    missed: int, named: list[tuple[int, ...]]
) -> None:
    """Four fifths of their iterations are enough."""
    late = noise(8, 20) + np.array([0, 1.04, 0.6, 0.6, -0.8, 0, 0, 0])[:, None]
    together = [1, 5, 9, 13, 17]
    late[0, together] += 22.0
    late[4, together[missed:]] += 17.0
    assert ranks_of(story(late)) == named


def test_no_iteration_of_a_rank_is_claimed_twice() -> None:
    """Each third time it loads for long, and it is always a little slower."""
    late = noise(4, 12)
    late[0] += 6.0
    late[0, 1::3] += 60.0
    loads, *others = story(late).slow
    assert (loads.ranks, loads.pattern.period) == ((0,), 3)
    assert not any({*each.pattern.iterations} & {*loads.pattern.iterations} for each in others)


def test_a_slower_rank_hides_another_one() -> None:
    """Healing rank 6 saves nothing before rank 2 is healed."""
    late = noise(8, 30)
    late[2] += 20.0
    late[6] += 8.0
    assert ranks_of(story(late)) == [(2,), (6,)]


def test_a_single_event_is_a_fact_and_many_are_a_habit() -> None:
    late = noise(8, 30)
    late[5, 17] += 60.0
    (found,) = story(late).slow
    assert (found.ranks, found.pattern.iterations) == ((5,), (18,))
    for rank in range(8):
        late[rank, 3 * rank + 1] += 55.0 + rank
    assert ranks_of(story(late)) == []


def test_ranks_that_take_turns_for_some_iterations_each() -> None:
    """An expert is asked for in three iterations; rank 0 holds it four times of seven."""
    late = noise(8, 19)
    for turn, rank in enumerate((6, 0, 2, 0, 5, 0, 0)):
        late[rank, 3 * turn : 3 * turn + 3] += 9.0
    assert ranks_of(story(late)) == []
    for rank in (6, 2, 5):
        late[rank] = noise(1, 19, seed=rank)
    assert ranks_of(story(late)) == [(0,)]


@pytest.mark.parametrize("per_host", [1, 8, 32])
def test_a_slow_set_has_members_below_what_is_natural_if_it_is_most_of_a_host(
    per_host: int,
) -> None:
    """Eight devices are 3 % slower, one of them by 1.8 %."""
    late = noise(32, 30)
    late[:8] += 3.0
    late[2] -= 1.2
    (slow,) = ranks_of(story_of(excess(late, per_host=per_host)))
    assert slow == tuple(rank for rank in range(8) if rank != 2 or per_host == 8)


def test_a_pause_lies_beyond_the_level_of_a_slow_rank() -> None:
    """Rank 2 may lead four iterations by chance; the pause is a fact all the same."""
    late = noise(4, 4)
    late[2] += 15.0
    late[0, 3] += 150.0
    assert ranks_of(story(late)) == [(0,)]


def test_spells_of_several_ranks_are_facts() -> None:
    """What makes a rank slow for a while is one event, which may move to other ranks."""
    late = noise(8, 18)
    for place, rank in enumerate((1, 4, 6)):
        late[rank, 6 * place : 6 * place + 6] += 20.0
    assert sorted(ranks_of(story(late))) == [(1,), (4,), (6,)]


def test_the_weakest_iteration_of_a_spell_decides_nothing() -> None:
    """It hardly exceeds the noise, which is 5 * 3.2 ms; the others do by far."""
    late = noise(2, 11, 2.0)
    late[1, 1:10] += 40.0
    late[1, 5] = late[0, 5] + 16.2
    (found,) = story(late).slow
    assert (found.ranks, found.chance) == ((1,), None)


def test_events_of_several_ranks_in_few_iterations_are_no_spells() -> None:
    """Each pauses in one or two iterations, as where kernels are tuned."""
    late = noise(4, 5)
    for rank, iteration, amount in ((2, 3, 32), (2, 4, 49), (3, 0, 13), (3, 1, 16), (1, 2, 22)):
        late[rank, iteration] += amount
    assert ranks_of(story(late)) == []


def test_halves_of_a_job_that_are_slow_in_turn_are_nobody() -> None:
    """Two groups that compute sequences of other lengths: together they are all ranks."""
    draw = np.random.default_rng(2)
    late = noise(4, 40)
    lead = np.where(draw.random(40) < 0.45, draw.normal(6.0, 12.0, 40), 0.0)
    late[:2] += np.maximum(lead, 0.0)
    late[2:] += np.maximum(-lead, 0.0)
    assert ranks_of(story(late)) == []


@given(st.integers(0, 1_000), st.integers(0, 7))
@settings(max_examples=6, deadline=None)
def test_the_order_of_ranks_and_the_numbers_of_iterations_change_nothing(
    seed: int, slow: int
) -> None:
    late = noise(8, 24, 0.5, seed)
    late[slow, ::3] += 15.0
    order = np.random.default_rng(seed).permutation(8)
    moved = story(late[order])
    (found,) = story(late).slow
    (again,) = moved.slow
    assert [int(order[rank]) for rank in again.ranks] == [*found.ranks] == [slow]
    assert again.pattern == found.pattern


@given(st.integers(0, 1_000), st.integers(2, 6))
@settings(max_examples=6, deadline=None)
def test_fewer_reports_of_others_tell_the_same(seed: int, kept: int) -> None:
    late = noise(8, 30, 0.5, seed)
    late[7] += 9.0
    some = np.append(np.arange(kept), 7)
    assert ranks_of(story(late)) == [(7,)]
    assert ranks_of(story(late[some])) == [(kept,)]


def test_within_one_step_the_collectives_are_exchanged() -> None:
    """Two of eight ranks are last at 60 of 84 collectives; the whole step alone shows no chance."""
    draw = np.random.default_rng(3)
    spans = draw.normal(1.0, 0.05, (8, 84)) * MS
    late = draw.random((8, 84)) < 0.05
    late[[2, 5]] = draw.random((2, 84)) < 0.5
    spans += late * 0.4 * MS
    totals = spans.sum(axis=1)[:, None] / MS
    found = story_of(excess(totals - totals.min(), 150.0), spans)
    assert ranks_of(found)[0] == (2, 5)
    assert found.slow[0].chance is not None


def test_a_rank_with_one_long_span_is_not_slow_because_another_one_is_slow_in_all() -> None:
    spans = np.random.default_rng(5).normal(1.0, 0.02, (8, 84)) * MS
    spans[0] *= 1.3
    spans[1, 10] += 8 * MS
    totals = spans.sum(axis=1)[:, None] / MS
    found = story_of(excess(totals - totals.min(), 150.0), spans)
    assert ranks_of(found) == [(0,), (1,)]
    assert [each.chance is None for each in found.slow] == [False, True]


def test_a_stop_is_no_level_because_another_rank_is_always_a_little_slow() -> None:
    late = noise(32, 3, 0.2)
    late[4] += 2.4
    late[27, :2] += [101.0, 5.2]
    assert all(each.chance is None for each in story(late).slow if 27 in each.ranks)


def test_noise_that_lasts_for_many_spans_blames_nobody() -> None:
    spans = (1 + np.random.default_rng(0).normal(0.0, 0.1, (8, 8)).repeat(15, axis=1)) * MS
    totals = spans.sum(axis=1)[:, None] / MS
    assert not ranks_of(story_of(excess(totals - totals.min(), 150.0), spans))


def test_small_differences_in_spans_do_not_prove_long_stops_beside_them() -> None:
    """Devices differ by some per cent in all spans; the same ranks stop for long before them."""
    late = noise(8, 3)
    late[[1, 1, 4, 4, 5], [0, 2, 1, 2, 0]] += [40.0, 80.0, 50.0, 90.0, 30.0]
    spans = np.random.default_rng(5).normal(1.0, 0.01, (8, 12)) * MS
    spans[[1, 4]] *= 1.03
    assert not ranks_of(story_of(excess(late), spans))
    spans[[1, 4]] *= 1.8
    assert ranks_of(story_of(excess(late), spans))[0] == (1, 4)


def test_spans_are_compared_within_roles() -> None:
    """Those of half of the ranks are half as long."""
    late = noise(8, 3, 4.0)
    late[5] += 12
    spans = np.random.default_rng(0).normal(1.0, 0.05, (8, 40)) * MS
    spans[4:] *= 0.5
    spans[5] *= 1.3
    roles = np.repeat([0, 1], 4)
    (found,) = story_of(replace(excess(late), roles=roles), spans).slow
    assert (found.ranks, found.chance is None) == ((5,), False)


def test_spans_hold_more_than_the_loading_that_alone_is_known() -> None:
    late = noise(8, 1, 4.0)
    late[5] += 12
    spans = np.random.default_rng(0).normal(20.0, 0.2, (8, 10)) * MS
    spans[5] += 1.2 * MS
    (found,) = story_of(excess(late, phase="load"), spans).slow
    assert (found.ranks, found.chance is None) == ((5,), False)


def test_a_set_has_no_rank_that_chance_explains() -> None:
    """Ranks differ for some iterations each; of a simulated job in which none is slow."""
    late = np.array(
        [
            [-0.1, -1.6, 0.0, -0.2, 0.0],
            [-1.1, 0.1, -1.6, -0.9, -0.8],
            [1.2, -0.1, -0.0, 0.5, 2.5],
            [-1.6, -1.7, 0.7, 0.4, -0.0],
            [0.5, -1.8, -0.9, 2.4, -0.7],
            [-0.0, -1.4, -1.5, -1.8, -1.2],
            [-1.4, -2.5, -1.1, -0.9, 5.2],
            [8.0, 5.3, 4.6, -1.5, 0.0],
            [4.9, 1.4, 3.2, 2.6, 4.2],
            [0.0, 0.0, -2.3, -0.1, -0.3],
            [-0.8, -2.4, -2.3, -1.0, -1.3],
            [-0.3, 3.8, 1.0, 0.0, -0.3],
            [2.2, 1.3, 2.2, 0.0, 2.9],
            [4.6, 0.8, 3.5, 2.2, 3.9],
            [2.6, 1.8, 1.2, 1.3, 3.9],
            [3.4, 0.7, 5.0, 2.8, 2.4],
        ]
    )
    assert not ranks_of(story_of(excess(late, per_host=4)))


def test_two_ranks_of_which_one_is_slow_after_the_other() -> None:
    """Two successive events of rank 0 may have one reason, as a spell of rank 6 has."""
    late = noise(8, 5, 0.5)
    late[0, :2] += 25.0
    late[6, 2:] += 22.0
    assert sorted(ranks_of(story_of(excess(late, per_host=4)))) == [(0,), (6,)]


def test_a_host_is_as_slow_though_another_rank_is_slower_than_one_of_its_ranks() -> None:
    """What it needs exceeds 5 % in the first and the last of four iterations."""
    late = noise(32, 10, 0.3)
    late[:8, 4:8] += np.array([6.0, 4.5, 4.5, 6.0])
    late[0, 5:7] -= 2.0
    late[20, 5:7] += 3.0
    (found,) = story_of(excess(late, per_host=8)).slow
    assert (found.ranks, found.pattern.iterations) == ((*range(8),), (5, 6, 7, 8))


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_two_ranks_that_get_slow_are_named_both(seed: int) -> None:
    """In half of the iterations they do not lead."""
    late = noise(8, 10, 0.7, seed)
    late[:2, 5:] += 5.0
    assert ranks_of(story(late)) == [(0, 1)]
