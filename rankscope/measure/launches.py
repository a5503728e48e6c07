"""A sample of a kernel's launches in an iteration: the same ones on every rank."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.model.arrays import known_if
from rankscope.model.frames import framed
from rankscope.model.intervals import Flags, Times, in_order

MOST = 6
"""Launches that are kept of a kernel in one phase of one iteration."""

STEP = 3
"""Every launch is kept while there are few; then every third, every ninth and so on."""

UNKNOWN = np.iinfo(np.int32).min
"""A length that is unknown, or longer than others can be."""

Numbers = NDArray[np.int32]


class LaunchSample:
    """Evenly spaced launches of each row of totals, as chunks of operations come in.

    Which ones depends on their number alone, so ranks with as many launches keep the same.
    """

    def __init__(self) -> None:
        """Start empty."""
        nothing = np.empty(0, dtype=np.int32)
        self._kept = [(nothing, nothing, nothing)]  # row, number in it, and length

    def add(self, place: Times, before: Times, offset: int, length: Numbers) -> None:
        """Add a chunk of operations, in order of their starts.

        Args:
            place: the row that each belongs to, from 0 in this chunk.
            before: of each row, how many came in earlier chunks.
            offset: to add to `place` to get the row among the rows of all chunks.
            length: how long each ran, as `signed` gives.
        """
        order = in_order(place)
        count = np.bincount(place, minlength=len(before))
        first = np.repeat(np.cumsum(count) - count, count)
        row = place[order]
        nth = np.arange(len(place)) - first + before[row]
        kept = nth % stride(before + count)[row] == 0  # whatever comes later: strides only grow
        own = (row + offset)[kept].astype(np.int32), nth[kept].astype(np.int32)
        self._kept.append((*own, length[order[kept]]))

    def lists(self, group: Times, counts: Times) -> pl.Series:
        """A list for each group of rows; null where there is none.

        Args:
            group: the group of each row of all chunks.
            counts: of each group, how many launches it has; 0 where they are not kept.

        Returns:
            Lengths in order of the starts, as `signed` gives; null for unknown ones.
        """
        row, nth, length = (np.concatenate(each) for each in zip(*self._kept, strict=True))
        place, steps = group[row], stride(counts)
        column, remainder = np.divmod(nth, steps[place])
        own = remainder == 0
        lengths = np.full((len(counts), MOST), UNKNOWN, dtype=np.int32)
        lengths[place[own], column[own]] = length[own]
        flat = lengths.ravel()
        values = known_if(pl.Series(flat), flat != UNKNOWN).reshape(lengths.shape).arr.to_list()
        lists = framed({"launches": values, "kept": -(-counts // steps)})
        known = pl.when(pl.col("kept") > 0).then(pl.col("launches").list.head("kept"))
        return lists.select_seq(known).to_series()


def signed(length: Times, clear: Flags, within: Flags) -> Numbers:
    """Lengths with a sign that says what else ran.

    Args:
        length: of each operation.
        clear: whether no collective ran at the same time.
        within: whether a collective ran all the time.

    Returns:
        The length where clear, the negative length within collectives, UNKNOWN where a collective
        ran a part of the time: no other launch is comparable.
    """
    known = (clear | within) & (length <= np.iinfo(np.int32).max)
    return np.where(known, np.where(clear, length, -length), UNKNOWN).astype(np.int32)


def stride(count: Times) -> Times:
    """The power of STEP that leaves at most MOST of so many launches."""
    steps = np.ones_like(count)
    while (more := -(-count // steps) > MOST).any():
        steps[more] *= STEP
    return steps
