"""Several ranks at once: how many, and one axis for their times."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.model.intervals import Times, union

RANKS_AT_ONCE = 128
"""Ranks whose data a stage has in memory at the same time."""


def firsts(ranks: NDArray[Any]) -> Times:
    """Where the rows of each rank begin; the rows of a rank are adjacent."""
    return np.flatnonzero(np.append(len(ranks) > 0, ranks[1:] != ranks[:-1]))


class RankAxis:
    """An axis on which every rank has a span of its own, so that one pass serves all of them.

    Args:
        parts: rank, start and end of intervals, in ns; those of a rank are mostly adjacent.
        apart: ns between the last end of a rank and the first start of the next one, at least.
    """

    def __init__(self, *parts: tuple[NDArray[Any], Times, Times], apart: int = 1) -> None:
        self._first = min((int(rank.min()) for rank, *_ in parts if len(rank)), default=0)
        count = max((int(rank.max()) for rank, *_ in parts if len(rank)), default=0) + 1
        low = np.full(count - self._first, np.iinfo(np.int64).max)
        high = np.full(count - self._first, np.iinfo(np.int64).min)
        for rank, start, end in parts:
            if len(rank):
                edges = firsts(rank)
                place = rank[edges] - self._first
                np.minimum.at(low, place, np.minimum.reduceat(start, edges))
                np.maximum.at(high, place, np.maximum.reduceat(end, edges))
        low, high = np.where(low <= high, low, 0), np.where(low <= high, high + apart, 0)
        self._shifts = np.cumsum(high - low) - high
        self._begins = low + self._shifts

    def shift(self, rank: NDArray[Any], times: Times) -> Times:
        """The times on this axis."""
        return np.asarray(times + self._shifts[rank - self._first], dtype=np.int64)

    def shift_back(self, rank: NDArray[Any], times: Times) -> Times:
        """Times on this axis as those of the ranks."""
        return np.asarray(times - self._shifts[rank - self._first], dtype=np.int64)

    def begins(self, rank: NDArray[Any]) -> Times:
        """The begins of the ranks' spans on this axis."""
        return np.asarray(self._begins[rank - self._first], dtype=np.int64)

    def union(self, rank: NDArray[Any], start: Times, end: Times) -> tuple[Times, Times]:
        """Intervals, merged, on this axis."""
        return union(self.shift(rank, start), self.shift(rank, end))
