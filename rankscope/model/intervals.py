"""Interval algebra on numpy arrays: who owns each instant, unions, and covered lengths.

All times are int64 nanoseconds, intervals half-open. Everything here is sorting and sweeping,
O((n + m) log n) for n intervals and m points; nothing compares every pair.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
Index = Times
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]

SELDOM = 16
"""Numbers are nearly in order if fewer than one in this many is below the one before it."""

DIGIT = 16
"""Bits of a number that are sorted at once: NumPy counts values of 16 bits, and compares longer."""


def in_order(numbers: Times) -> Times:
    """The places of integers in ascending order; a stable sort, as `np.argsort`, but faster."""
    if SELDOM * np.count_nonzero(numbers[1:] < numbers[:-1]) <= len(numbers):
        return np.argsort(numbers, kind="stable")  # merges runs
    above = (numbers.astype(np.int64) - int(numbers.min())).view(np.uint64)  # never overflows
    order = np.argsort(above.astype(np.uint16), kind="stable")
    for shift in range(DIGIT, int(above.max()).bit_length(), DIGIT):
        digit = (above >> np.uint64(shift)).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def cells(*edges: Times) -> Times:
    """The sorted distinct edges; neighbours bound the cells that `owners` speaks of.

    Shape: (m + 1,) for m cells.
    """
    ordered = np.sort(np.concatenate(edges), kind="stable")  # merges edges that come in order
    fresh: Flags = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return ordered[fresh]


def owners(points: Times, start: Times, end: Times) -> Times:
    """For each cell the first of the intervals that cover it; n where none does.

    Intervals come most important first, and their edges are among `points`. An interval over w
    cells is the union of two overlapping blocks of 2^floor(log2 w) cells; blocks hand their
    minimum down to their halves, level by level (a sparse table run backwards), so the cost is
    O((n + m) log m) however deeply intervals nest.

    Shape: (m,) for m + 1 points.
    """
    count, none = max(len(points) - 1, 0), len(start)
    first, last = np.searchsorted(points, start), np.searchsorted(points, end)
    index = np.flatnonzero(last > first)
    first, last = first[index], last[index]
    best = np.full(count, none, dtype=np.int64)
    if not len(index):
        return best
    level = np.frexp((last - first).astype(np.float64))[1] - 1  # exact: widths are below 2^53
    for k in range(int(level.max()), -1, -1):
        half = best.copy()
        half[2**k :] = np.minimum(half[2**k :], best[: -(2**k)])
        best = half
        here = level == k
        np.minimum.at(best, first[here], index[here])
        np.minimum.at(best, last[here] - 2**k, index[here])
    return best


def exclusive(
    start: Times, end: Times, by_importance: Callable[[Times], Times]
) -> tuple[Times, Times, Times]:
    """Disjoint intervals in order that cover what these do, each with the index of its owner.

    Where intervals that overlap come in the order of their importance, as on a device nearly all
    do, each owns what the earlier ones leave.

    Args:
        start, end: of intervals in the order of their starts, none empty.
        by_importance: sorts indices of intervals by importance, the most important first.
    """
    # a group is a run of intervals that overlap; its first one begins after all earlier ones end
    before = np.append(start[:1], np.maximum.accumulate(end)[:-1])
    begins_group = start >= before
    if begins_group.all():
        return start, end, np.arange(len(start))
    group = np.cumsum(begins_group) - 1
    # the importance of the intervals that overlap others
    alone = begins_group & np.append(begins_group[1:], True)
    important = by_importance(np.flatnonzero(~alone))
    rank = np.zeros_like(start)
    rank[important] = np.arange(len(important))
    # groups in which an interval is more important than the one before it are mixed
    overtakes = ~begins_group
    overtakes[1:] &= rank[1:] < rank[:-1]
    mixed = np.isin(group, group[overtakes]) if overtakes.any() else overtakes
    # in the other groups, an interval owns what the earlier ones leave
    begin = np.maximum(start, before)
    owner = np.flatnonzero(~mixed & (end > begin))
    starts, ends = begin[owner], end[owner]
    if not mixed.any():
        return starts, ends, owner
    # in mixed groups, the most important interval owns each cell
    crowd = important[mixed[important]]
    points = cells(start[crowd], end[crowd])
    first = owners(points, start[crowd], end[crowd])
    owned = first < len(crowd)
    starts = np.concatenate((starts, points[:-1][owned]))
    order = np.argsort(starts, kind="stable")
    ends = np.concatenate((ends, points[1:][owned]))
    return starts[order], ends[order], np.concatenate((owner, crowd[first[owned]]))[order]


def outside(start: Times, end: Times, low: Times, high: Times) -> tuple[Times, Times, Times]:
    """The parts of intervals that others do not cover, in order, each with its interval's index.

    Args:
        start, end: of disjoint intervals, in order.
        low, high: of the others, which are disjoint and in order as well.
    """
    # an interval that n others overlap has n + 1 parts, some of which may be empty
    first = np.searchsorted(high, start, side="right")
    cuts = np.maximum(np.searchsorted(low, end) - first, 0)
    index = np.repeat(np.arange(len(start)), cuts + 1)
    nth = np.arange(len(index)) - np.repeat(np.cumsum(cuts + 1) - cuts - 1, cuts + 1)
    following = first[index] + nth  # the other that ends the part
    begin = np.where(nth == 0, start[index], np.append(high, 0)[following - 1])
    until = np.where(nth == cuts[index], end[index], np.append(low, 0)[following])
    real = until > begin
    return begin[real], until[real], index[real]


def count_before(moments: Times, times: Times) -> Times:
    """How many of the times have come by each of the moments, which are in order.

    As `np.searchsorted` from the right, but far faster: few times are looked up among the
    moments instead, many merged with them (which is what sorting does to two sorted runs).

    Shape: that of `moments`.
    """
    if 8 * len(times) < len(moments):
        first = np.searchsorted(moments, np.sort(times))
        return np.repeat(np.arange(len(times) + 1), np.diff(first, prepend=0, append=len(moments)))
    order = np.argsort(np.concatenate((times, moments)), kind="stable")
    return np.flatnonzero(order >= len(times)) - np.arange(len(moments))


def covered(moments: Times, start: Times, end: Times) -> Flags:
    """For each of the moments, which are in order, whether any of the intervals covers it.

    Shape: that of `moments`.
    """
    real = end > start
    return count_before(moments, start[real]) > count_before(moments, end[real])


def union(start: Times, end: Times) -> tuple[Times, Times]:
    """The intervals merged into disjoint ones, in order; touching ones become one."""
    real = end > start
    start, end = start[real], end[real]
    if (start[1:] > end[:-1]).all():
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    fresh = np.concatenate(([True], start[1:] > end[:-1]))
    return start[fresh], end[np.concatenate((fresh[1:], [True]))]


def length_before(start: Times, end: Times, moment: Times, *, in_order: bool = False) -> Times:
    """How much of disjoint sorted intervals lies before each moment.

    Args:
        moment: many are found sooner `in_order`.

    Shape: that of `moment`.
    """
    if not len(start):
        return np.zeros_like(moment)
    before = np.concatenate(([0], np.cumsum(end - start)))
    # intervals begun by then
    index = count_before(moment, start) if in_order else start.searchsorted(moment, side="right")
    # of the last one only what lies before the moment
    rest = before - np.concatenate(([moment.min(initial=0)], end))
    return np.asarray(np.minimum(before[index], rest[index] + moment), dtype=np.int64)


def lanes(start: Times, end: Times) -> Times:
    """For each interval a lane in which no two overlap; as few lanes as possible.

    In order of their starts, an interval takes the lane that was left earliest, or a new one: so
    there are as many lanes as ever were in use at once. Empty intervals take up one ns.

    Shape: (n,) for n intervals.
    """
    order = np.lexsort((end, start))
    start, end = start[order], np.maximum(end, start + 1)[order]
    by_end = np.argsort(end, kind="stable")
    place = np.arange(len(start))
    left = np.searchsorted(end[by_end], start, side="right")  # intervals over by then
    used = np.maximum.accumulate(place + 1 - left) if len(start) else place
    fresh = np.diff(used, prepend=0) > 0
    before = np.where(fresh, place, by_end[np.maximum(place - used, 0)])  # whose lane it takes
    while (before != before[before]).any():  # follow all chains at once, twice as far each time
        before = before[before]
    lane = np.empty_like(place)
    lane[order] = (np.cumsum(fresh) - 1)[before]
    return lane
