"""Forward and backward from the framework's operators, where no range names them."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.measure.segment.iterations import IterationRanges
from rankscope.model.events import Events
from rankscope.model.intervals import Flags, Times, union
from rankscope.model.schema import MARKS, conform, empty

LEAST = 2
"""Fewest operators of a kind in an iteration from which its phase is derived."""


def operator_phases(
    process: int, ranges: Events, found: IterationRanges, explicit: pl.DataFrame
) -> pl.DataFrame:
    """Marks for forward and backward where operators alternate between the two.

    Operators of autograd, on any thread of the process, are backward. Other operators of the
    training thread are forward if backward operators follow them in the same iteration and no
    explicit mark contains them. A mark spans consecutive operators of one kind.

    Args:
        process: key of the process.
        ranges: RANGES of the report with the columns of MEANINGS joined on.
        found: its iterations.
        explicit: MARKS from named ranges.

    Returns:
        MARKS, `forward` and `backward` only; empty where operators show neither.
    """
    is_backward = pl.col("means") == "backward operator"
    is_own = (pl.col("means") == "operator") & (pl.col("thread") == found.thread)
    operators = ranges.map(
        lambda part: part.filter(pl.col("process") == process, is_backward | is_own).select(
            "start", "end", backward=is_backward
        )
    ).whole.sort("start")
    if not operators["backward"].any():
        return empty(MARKS)
    start = operators["start"].to_numpy()
    held = _inside(start, *_spans(explicit))
    within = _inside(start, *_spans(operators.filter("backward")))  # called by backward operators
    placed = (
        operators.with_columns(held=pl.Series(held), within=pl.Series(within))
        .filter(pl.col("backward") | ~(pl.col("held") | pl.col("within")))
        .join_asof(
            found.frame.select("iteration", opened="window_start", until="window_end").sort(
                "opened"
            ),
            left_on="start",
            right_on="opened",
            strategy="backward",
        )
        .filter(pl.col("end") <= pl.col("until"))
    )
    runs = (
        placed.with_columns(run=pl.struct("iteration", "backward").rle_id())
        .group_by("run", maintain_order=True)
        .agg(
            pl.col("iteration", "backward", "start").first(),
            pl.col("end").max(),
            operators=pl.len(),
        )
        .with_columns(followed=pl.col("backward").cum_sum(reverse=True).over("iteration") > 0)
        .filter(pl.col("followed"), pl.col("operators") >= LEAST)
    )
    label = pl.when("backward").then(pl.lit("backward")).otherwise(pl.lit("forward"))
    of_collectives = ("operation", "source")
    marks = runs.with_columns(label=label, fetch=False)
    return conform(marks, MARKS, optional=of_collectives, drop_others=True)


def _spans(frame: pl.DataFrame) -> tuple[Times, Times]:
    return frame["start"].to_numpy(), frame["end"].to_numpy()


def _inside(moment: Times, start: Times, end: Times) -> Flags:
    """Whether each moment lies in one of the intervals."""
    start, end = union(start, end)
    if not len(start):
        return np.zeros(len(moment), dtype=np.bool_)
    begun = np.searchsorted(start, moment, side="right") - 1
    return np.asarray((begun >= 0) & (moment < end[np.maximum(begun, 0)]))
