"""A sample of a kernel's launches in an iteration: the same ones on every rank."""

import numpy as np
import polars as pl

from rankscope.model.intervals import Flags, Times, in_order

MOST = 6
"""Launches that are kept of a kernel in one phase of one iteration."""

STEP = 3
"""Every launch is kept while there are few; then every third, every ninth and so on."""

LONGEST = np.iinfo(np.int32).max
"""A longer launch has an unknown length."""

UNKNOWN = LONGEST + 1


class LaunchSample:
    """Evenly spaced launches of each row of totals, as chunks of operations come in.

    Which ones depends on their number alone, so ranks with as many launches keep the same.
    """

    def __init__(self) -> None:
        """Start empty."""
        nothing: Times = np.empty(0, dtype=np.int64)
        self._kept: list[tuple[Times, Times, Times]] = [(nothing, nothing, nothing)]

    def add(self, place: Times, before: Times, offset: int, length: Times) -> None:
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
        self._kept.append((row[kept] + offset, nth[kept], length[order[kept]]))

    def lists(self, group: Times, counts: Times) -> pl.Series:
        """A list for each group of rows; null where there is none.

        Args:
            group: the group of each row of all chunks, -1 for a row whose launches are not kept.
            counts: of each group, how many launches it has.

        Returns:
            Lengths in order of the starts, as `signed` gives; null for unknown ones.
        """
        row, nth, length = (np.concatenate(each) for each in zip(*self._kept, strict=True))
        own = np.flatnonzero(group[row] >= 0)
        own = own[nth[own] % stride(counts)[group[row[own]]] == 0]
        own = own[in_order(group[row[own]])]  # chunks come in order of the starts
        known = pl.col("launches").abs() <= LONGEST
        lists = (
            pl.DataFrame({"group": group[row[own]], "launches": length[own]})
            .group_by("group", maintain_order=True)
            .agg(pl.when(known).then("launches").cast(pl.Int32))
        )
        groups = pl.DataFrame({"group": np.arange(len(counts))})
        return groups.join(lists, on="group", how="left", maintain_order="left")["launches"]


def signed(length: Times, clear: Flags, within: Flags) -> Times:
    """Lengths with a sign that says what else ran.

    Args:
        length: of each operation.
        clear: whether no collective ran at the same time.
        within: whether a collective ran all the time.

    Returns:
        The length where clear, the negative length within collectives, UNKNOWN where a collective
        ran a part of the time: no other launch is comparable.
    """
    lengths: Times = np.where(clear, length, np.where(within, -length, UNKNOWN))
    return lengths


def stride(count: Times) -> Times:
    """The power of STEP that leaves at most MOST of so many launches."""
    steps = np.ones_like(count)
    while (more := -(-count // steps) > MOST).any():
        steps[more] *= STEP
    return steps
