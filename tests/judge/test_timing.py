"""When a rank is slow: made by hand, so that each rule stands alone."""

import numpy as np
import polars as pl
import pytest

from rankscope.judge.claims import Pattern
from rankscope.judge.healing import Prices
from rankscope.judge.judgement import decide
from rankscope.judge.timing import pattern_of as amount_pattern
from rankscope.judge.timing import period_of, quick_part
from tests.support import MS, inputs_of

LENGTH = 100 * MS
NUMBERS = list(range(1, 41))


def pattern_of(slow: dict[int, float], numbers: list[int] | None = None) -> Pattern:
    """The pattern of one of eight ranks that needs more in `slow` (iteration → ms)."""
    numbers = numbers or NUMBERS
    noise = np.random.default_rng(0).normal(0, 0.2, (8, len(numbers)))
    rows = [
        (
            rank,
            "all",
            i,
            round((50 + slow.get(i, 0) * (rank == 3) + noise[rank, place]) * MS),
            LENGTH,
        )
        for rank in range(8)
        for place, i in enumerate(numbers)
    ]
    names = ["rank", "role", "iteration", "work_ns", "iteration_ns"]
    wide = pl.DataFrame(rows, schema=names, orient="row").with_columns(load_ns="work_ns")
    inputs = inputs_of(wide)
    straggler = decide(inputs, Prices(inputs.excess)).straggler
    assert straggler is not None
    assert straggler.claim.ranks == (3,)
    return straggler.claim.pattern


def test_one_of_two_iterations_is_an_event() -> None:
    found = amount_pattern(np.array([0.0, 50.0]), 1.0, np.array([1, 2]))
    assert (found.kind, found.iterations) == ("transient", (2,))


def test_always() -> None:
    found = pattern_of({i: 20 + i % 3 for i in NUMBERS})
    assert (found.kind, found.since, found.period, found.spells) == ("persistent", None, None, ())
    assert found.iterations == tuple(NUMBERS)


def test_an_end_that_is_not_clear_is_none() -> None:
    """Data that scatters: the last iterations are below half of the usual by chance."""
    amount = np.array([0.15, 0.13, 0.16, 0.14, 0.15, 0.12, 0.17, 0.14, 0.06, 0.05])
    assert amount_pattern(amount, 0.2, np.arange(10)).always
    assert not amount_pattern(amount, 0.02, np.arange(10)).always


def test_less_is_enough_where_it_is_expected() -> None:
    amount = np.full(22, 0.01)
    amount[[1, 6, 11, 16, 21]] = 12.3, 12.5, 10.0, 12.3, 5.8
    found = amount_pattern(amount, 0.8, np.arange(2, 24))
    assert (found.period, found.iterations) == (5, (3, 8, 13, 18, 23))


def test_a_period_holds_most_of_the_amount() -> None:
    """A host that runs ahead pays where it synchronises, but is late in the others as well."""
    amount = np.tile([17.0, 8.0, 4.0, 4.0], 5)
    found = amount_pattern(amount, 1.5, np.arange(1, 21))
    assert (found.period, len(found.iterations)) == (None, 5)
    amount = np.tile([27.0, 2.0, 1.0, 1.0], 5)
    assert amount_pattern(amount, 1.5, np.arange(1, 21)).period == 4


def test_always_in_every_tenth_step() -> None:
    tenth = [10 * i for i in NUMBERS]
    found = pattern_of({i: 20 for i in tenth}, tenth)
    assert (found.kind, found.period) == ("persistent", None)


@pytest.mark.parametrize("every", [2, 3, 5, 7, 13])
@pytest.mark.parametrize("offset", [0, 1])
def test_every_kth(every: int, offset: int) -> None:
    slow = {i: 25 for i in NUMBERS if i % every == offset}
    found = pattern_of(slow)
    assert (found.kind, found.period, found.iterations) == ("periodic", every, tuple(slow))


def test_every_kth_but_one() -> None:
    slow = {i: 20 for i in NUMBERS if i % 5 == 2 and i != 17}
    assert (pattern_of(slow).kind, pattern_of(slow).period) == ("periodic", 5)


def test_iterations_that_are_missing_make_no_period() -> None:
    """All that are compared are slow."""
    numbers = [1, 3, 4, 5, 9, 11]
    found = pattern_of(dict.fromkeys(numbers, 20), numbers)
    assert (found.kind, found.period, found.iterations) == ("persistent", None, tuple(numbers))


def test_three_of_five_iterations_make_no_period() -> None:
    assert period_of(np.array([1, 3, 5]), np.arange(1, 6)) is None
    assert period_of(np.array([2, 4, 6]), np.arange(1, 7)) == 2


def test_iterations_of_which_nobody_knows_are_not_missing() -> None:
    numbers = np.arange(1, 20)
    hits = np.array([1, 7, 10, 13, 16])
    assert period_of(hits, numbers) is None
    assert period_of(hits, numbers, np.isin(numbers, [4, 9, 14, 19])) == 3


@pytest.mark.parametrize("slow", [(16, 32), (15, 31)])
def test_two_multiples_make_a_period(slow: tuple[int, int]) -> None:
    """As checkpoints do: a third one would be before the first iteration or after the last."""
    found = pattern_of(dict.fromkeys(slow, 50.0))
    assert (found.kind, found.period, found.iterations) == ("periodic", 16, slow)


@pytest.mark.parametrize("slow", [(14, 30), (12, 24), (3, 6)])
def test_other_two_make_none(slow: tuple[int, int]) -> None:
    assert pattern_of(dict.fromkeys(slow, 50.0)).period is None


def test_a_period_starts_anywhere_and_in_any_window() -> None:
    numbers = list(range(1_003, 1_043))
    found = pattern_of({i: 20 for i in numbers if i % 6 == 5}, numbers)
    assert (found.kind, found.period) == ("periodic", 6)


@pytest.mark.parametrize("slow", [[5], [5, 23], [3, 4], [2, 9, 11, 30], [7, 8, 20, 21]])
def test_now_and_then(slow: list[int]) -> None:
    found = pattern_of(dict.fromkeys(slow, 50.0))
    assert (found.kind, found.iterations) == ("transient", tuple(slow))
    assert found.period is found.since is None


def test_small_excess_beside_large_is_not_the_pattern() -> None:
    small = {i: 6 for i in (3, 6, 14, 21, 28, 33)}
    found = pattern_of(small | {i: 40 for i in NUMBERS if i % 8 == 0})
    assert (found.kind, found.period) == ("periodic", 8)


@pytest.mark.parametrize("begin", [7, 12, 20, 30, 35])
def test_since_a_moment(begin: int) -> None:
    """A rank that gets slow and stays so: the first slow iteration is named."""
    found = pattern_of({i: 20 for i in NUMBERS if i >= begin})
    assert (found.kind, found.since) == ("persistent", begin)
    assert found.iterations == tuple(i for i in NUMBERS if i >= begin)


def test_one_quiet_iteration_does_not_end_a_change() -> None:
    found = pattern_of({i: 20 for i in NUMBERS if i >= 20 and i != 29})
    assert found.since == 20


def test_one_slow_iteration_before_a_change_does_not_move_it() -> None:
    found = pattern_of({i: 20 for i in NUMBERS if i >= 25 or i == 9})
    assert found.since == 25


def test_the_last_few_are_no_change() -> None:
    found = pattern_of({i: 50 for i in NUMBERS if i > 38})
    assert (found.kind, found.since) == ("transient", None)


def test_two_slow_iterations_are_no_change() -> None:
    found = pattern_of(dict.fromkeys((4, 5), 50.0), [1, 2, 3, 4, 5])
    assert (found.kind, found.since, found.spells) == ("transient", None, ())
    found = pattern_of(dict.fromkeys((3, 4, 5), 50.0), [1, 2, 3, 4, 5])
    assert (found.kind, found.since) == ("persistent", 3)


def test_a_slow_spell() -> None:
    """A dense spell is neither the usual speed nor a few events."""
    found = pattern_of({i: 20 for i in NUMBERS if 10 <= i < 28})
    assert (found.kind, found.since, found.spells) == ("persistent", None, ((10, 27),))
    assert found.iterations == tuple(range(10, 28))


def test_on_and_off() -> None:
    slow = {i: 20 for i in NUMBERS if (i - 1) // 8 % 2}
    found = pattern_of(slow)
    assert found.iterations == tuple(slow)
    assert found.spells == ((9, 16), (25, 32))


def test_iterations_may_be_missing() -> None:
    numbers = [i for i in NUMBERS if i not in (13, 14)]
    found = pattern_of({i: 20 for i in numbers if i >= 18}, numbers)
    assert (found.kind, found.since) == ("persistent", 18)


def test_numbers_of_any_size_take_no_memory() -> None:
    """Steps may be numbered by the time of day, and one of them by a mistake."""
    apart = 2 * 10**17
    hits = np.arange(5) * apart + 3
    assert period_of(hits, np.sort(np.append(hits, hits + 1))) == apart


def test_what_varies_does_not_get_slow_for_good() -> None:
    took = np.random.default_rng(0).lognormal(0.0, 0.6, (300, 10))
    assert sum(not quick_part(each).all() for each in took) <= 1
    assert quick_part(np.array([1.0, 1, 2, 2, 2, 2, 2])).all(), "two iterations show nothing"
