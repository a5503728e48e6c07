"""The interval algebra against arrays with a cell per nanosecond."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.model.intervals import (
    cells,
    count_before,
    covered,
    exclusive,
    in_order,
    lanes,
    length_before,
    outside,
    owners,
    union,
)

END = 40
INTERVALS = st.lists(
    st.tuples(st.integers(0, END), st.integers(0, END)).map(lambda pair: tuple(sorted(pair))),
    max_size=25,
)


def arrays(intervals: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(intervals, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def painted(intervals: list[tuple[int, ...]]) -> np.ndarray:
    """The first interval over each nanosecond; their number where there is none."""
    line = np.full(END, len(intervals))
    for index, (start, end) in reversed(list(enumerate(intervals))):
        line[start:end] = index
    return line


def per_ns(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.repeat(values, np.diff(points))


@settings(max_examples=80, deadline=None)
@given(INTERVALS)
def test_owners_are_the_first_that_cover(intervals: list[tuple[int, ...]]) -> None:
    start, end = arrays(intervals)
    points = cells(np.array([0, END]), start, end)
    assert (per_ns(points, owners(points, start, end)) == painted(intervals)).all()


@pytest.mark.parametrize(
    ("low", "dtype"), [(-7, np.int64), (-(2**63), np.int64), (2**31 - 1, np.int32), (9, np.uint32)]
)
def test_integers_in_any_order_are_put_in_order(low: int, dtype: type[np.integer[Any]]) -> None:
    spread = np.append(np.arange(200) // 3 * 40_009, low)
    numbers = np.random.default_rng(0).permutation(spread).astype(dtype)
    assert (in_order(numbers) == np.argsort(numbers, kind="stable")).all()


@settings(max_examples=80, deadline=None)
@given(INTERVALS, st.data())
def test_exclusive_leaves_each_instant_to_the_most_important(
    intervals: list[tuple[int, ...]], data: st.DataObject
) -> None:
    some = sorted(each for each in intervals if each[1] > each[0])
    rank = np.array(data.draw(st.lists(st.integers(0, 2), min_size=25, max_size=25)))
    low, high, owner = exclusive(
        *arrays(some), lambda which: which[np.argsort(rank[which], kind="stable")]
    )
    expected, line = np.full(END, -1), np.full(END, -1)
    for index in sorted(range(len(some)), key=lambda index: (rank[index], index), reverse=True):
        expected[slice(*some[index])] = index
    for start, end, index in zip(low, high, owner, strict=True):
        line[start:end] = index
    assert (line == expected).all()
    assert (low < high).all()
    assert (low[1:] >= high[:-1]).all()


def test_exclusive_leaves_alone_what_overlaps_nothing() -> None:
    start, end = np.array([0, 5, 9, 10, 20]), np.array([5, 8, 15, 12, 30])
    asked: list[list[int]] = []

    def by_importance(some: np.ndarray) -> np.ndarray:
        asked.append(some.tolist())
        return some[::-1]

    low, high, owner = exclusive(start, end, by_importance)
    assert asked == [[2, 3]]
    assert low.tolist() == [0, 5, 9, 10, 12, 20]
    assert high.tolist() == [5, 8, 10, 12, 15, 30]
    assert owner.tolist() == [0, 1, 2, 3, 2, 4]
    apart = start[[0, 1, 4]], end[[0, 1, 4]]
    assert [part.tolist() for part in exclusive(*apart, by_importance)][2] == [0, 1, 2]
    assert len(asked) == 1


@given(INTERVALS, INTERVALS)
def test_parts_that_others_do_not_cover(
    some: list[tuple[int, ...]], others: list[tuple[int, ...]]
) -> None:
    start, end = union(*arrays(some))
    low, high, index = outside(start, end, *union(*arrays(others)))
    line = np.full(END, -1)
    for begin, until, which in zip(low, high, index, strict=True):
        line[begin:until] = which
    expected = np.full(END, -1)
    for which, (begin, until) in enumerate(zip(start, end, strict=True)):
        expected[begin:until] = which
    for begin, until in others:
        expected[begin:until] = -1
    assert (line == expected).all()
    assert (low < high).all()
    assert (low[1:] >= high[:-1]).all()


MOMENTS = st.lists(st.integers(-3, END + 3), max_size=60).map(sorted)


@settings(max_examples=80, deadline=None)
@given(MOMENTS, st.lists(st.integers(0, END), max_size=20))
def test_passed_counts_what_has_come(moments: list[int], times: list[int]) -> None:
    got = count_before(np.array(moments, dtype=np.int64), np.array(times, dtype=np.int64))
    assert got.tolist() == [sum(time <= moment for time in times) for moment in moments]


@settings(max_examples=80, deadline=None)
@given(MOMENTS, INTERVALS)
def test_covered_is_where_anything_is(moments: list[int], intervals: list[tuple[int, ...]]) -> None:
    got = covered(np.array(moments, dtype=np.int64), *arrays(intervals))
    assert got.tolist() == [
        any(start <= moment < end for start, end in intervals) for moment in moments
    ]


@settings(max_examples=80, deadline=None)
@given(INTERVALS)
def test_union_covers_the_same_and_is_disjoint_and_ordered(
    intervals: list[tuple[int, ...]],
) -> None:
    start, end = union(*arrays(intervals))
    line = np.zeros(END, dtype=int)
    for low, high in zip(start, end, strict=True):
        line[low:high] += 1
    assert (line == (painted(intervals) < len(intervals))).all()
    assert (start < end).all()
    assert (start[1:] > end[:-1]).all(), "touching ones become one"


@settings(max_examples=80, deadline=None)
@given(INTERVALS, st.lists(st.integers(-5, END + 5), min_size=1, max_size=8))
def test_length_before_counts_nanoseconds(
    intervals: list[tuple[int, ...]], moments: list[int]
) -> None:
    start, end = union(*arrays(intervals))
    line = painted(intervals) < len(intervals)
    got = length_before(start, end, np.array(moments))
    assert got.tolist() == [int(line[: max(0, moment)].sum()) for moment in moments]


@settings(max_examples=80, deadline=None)
@given(INTERVALS)
def test_lanes_keep_overlapping_intervals_apart_and_are_few(
    intervals: list[tuple[int, ...]],
) -> None:
    start, end = arrays(intervals)
    found = lanes(start, end)
    end = np.maximum(end, start + 1)
    depth = np.zeros(END + 1, dtype=int)
    for lane in {*found.tolist()}:
        taken = np.zeros(END + 1, dtype=int)
        for index in np.flatnonzero(found == lane):
            taken[start[index] : end[index]] += 1
        assert taken.max() == 1
        depth += taken
    assert len({*found.tolist()}) == depth.max()


def test_large_times_are_exact() -> None:
    epoch = 1_795_249_000_000_000_001
    start = np.array([epoch, epoch + 2, epoch + 2**40])
    end = np.array([epoch + 1, epoch + 5, epoch + 2**40 + 1])
    points = cells(start, end)
    assert owners(points, start, end).tolist() == [0, 3, 1, 3, 2]
    assert length_before(start, end, np.array([epoch + 4])).tolist() == [3]


def test_deep_nesting_is_no_trouble() -> None:
    n = 20_000
    start, end = np.arange(n), 2 * n - np.arange(n)
    points = cells(start, end)
    owner = owners(points, start[::-1], end[::-1])  # innermost first
    assert owner.tolist() == [*range(n - 1, -1, -1), *range(1, n)]


def test_nothing_gives_nothing() -> None:
    none = np.array([], dtype=np.int64)
    points = np.array([0, 10])
    assert owners(points, none, none).tolist() == [0]
    assert covered(points, none, none).tolist() == [False, False]
    assert count_before(points, none).tolist() == [0, 0]
    assert count_before(none, points).tolist() == []
    assert [part.tolist() for part in exclusive(none, none, lambda some: some)] == [[], [], []]
    assert [part.tolist() for part in union(none, none)] == [[], []]
    assert length_before(none, none, np.array([3])).tolist() == [0]
    assert owners(points, np.array([4]), np.array([4])).tolist() == [1], "empty ones own nothing"
