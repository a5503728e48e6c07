"""The sequences of calls that streams have in common."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.match.communicators import MATCHED, SPLITTABLE

CALL = ["operation", "iteration", "ordinal"]
"""Columns of `Pattern.frame`."""

UNMATCHED = pl.Schema(
    {
        "rank": pl.Int64,
        "group": pl.Int64,
        "operation": pl.String,
        "reason": pl.String,
        "count": pl.UInt32,
    }
)
"""Columns of `Layout.unmatched`."""

Numbers = NDArray[np.int64]


class Pattern(NamedTuple):
    """The instances, ascending, that streams with the same calls share."""

    operation: Numbers  # its place in MATCHED
    iteration: Numbers
    ordinal: Numbers

    @property
    def repeats(self) -> bool:
        """Whether a call comes twice."""
        same = [column[1:] == column[:-1] for column in self]
        return bool(np.logical_and.reduce(same).any())

    @property
    def splittable(self) -> NDArray[np.bool_]:
        """Whether each is one of SPLITTABLE."""
        return self.operation < len(SPLITTABLE)

    def frame(self) -> pl.DataFrame:
        """A row per call."""
        return pl.DataFrame(self._asdict())

    def at(self, places: Numbers) -> Pattern:
        """Some of the calls."""
        return Pattern(*(column[places] for column in self))

    def without(self, places: Numbers) -> Pattern:
        """The other calls."""
        return Pattern(*(np.delete(column, places) for column in self))

    def counted(self, rank: int, group: int, reason: str) -> pl.DataFrame:
        """UNMATCHED of a rank that makes these calls."""
        names = pl.col("operation").replace_strict(dict(enumerate(MATCHED)), return_dtype=pl.String)
        counts = self.frame().group_by("operation").agg(count=pl.len())
        return counts.select(
            rank=pl.lit(rank, pl.Int64),
            group=pl.lit(group, pl.Int64),
            operation=names.cast(pl.String),
            reason=pl.lit(reason),
            count="count",
        )


class Stream(NamedTuple):
    """The calls of a stream: rows of a part, their order, and the number of their pattern."""

    rank: int
    part: int
    rows: slice  # of all calls of the rank
    order: Numbers  # of the stream's calls among these
    pattern: int


class Selected(NamedTuple):
    """Some calls of a stream, by their places in it."""

    stream: Stream
    places: Numbers


def common(
    patterns: dict[int, Pattern], of_streams: list[int], members: int
) -> tuple[Pattern, dict[int, Numbers]]:
    """The instances that all members have once, and their places in each pattern.

    Args:
        patterns: number → pattern.
        of_streams: the pattern of each stream.
        members: how many streams there should be.
    """
    calls = pl.concat(
        each.frame().with_columns(
            place=pl.int_range(pl.len()),
            pattern=pl.lit(number, pl.Int64),
            streams=pl.lit(of_streams.count(number), pl.Int64),
        )
        for number, each in patterns.items()
    )
    once = pl.col("pattern").n_unique() == pl.len()
    counts = calls.group_by(CALL).agg(pl.col("streams").sum(), once=once)
    fits = counts.filter((pl.col("streams") == members) & pl.col("once") & (members > 1))
    shared = calls.join(fits.select(CALL), on=CALL, how="semi").sort("place")
    places = {number: shared.filter(pattern=number)["place"].to_numpy() for number in patterns}
    first = next(iter(patterns))
    return patterns[first].at(places[first]), places


def lacking(patterns: dict[int, Pattern]) -> pl.DataFrame:
    """Where members of a communicator lack calls that others of it have.

    Args:
        patterns: number → pattern, of the members of one communicator.

    Returns:
        pattern and iteration, a row for each iteration in which an operation is called less often.
    """
    counts = pl.concat(
        each.frame()
        .group_by("operation", "iteration")
        .agg(own=pl.len())
        .with_columns(pattern=pl.lit(number, pl.Int64))
        for number, each in patterns.items()
    )
    calls = ["operation", "iteration"]
    most = counts.group_by(calls).agg(pl.col("own").max().alias("most"))
    each = most.join(pl.DataFrame({"pattern": [*patterns]}), how="cross")
    rows = each.join(counts, on=[*calls, "pattern"], how="left")
    fewer = pl.col("own").fill_null(0) < pl.col("most")
    return rows.filter(fewer).select("pattern", "iteration").unique()
