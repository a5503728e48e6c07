"""Forward and backward from the framework's operators, where no range names them."""

import numpy as np
import polars as pl

from rankscope.measure.segment.iterations import IterationRanges
from rankscope.measure.segment.labelled_ranges import LabelledRanges
from rankscope.model.arrays import taken
from rankscope.model.intervals import Flags, Times, union
from rankscope.model.schema import MARKS, conform, empty, ordered

LEAST = 2
"""Fewest operators of a kind in an iteration from which its phase is derived."""

BACKWARD = "backward operator"
"""What operators of autograd mean."""

LABELS = pl.Series(["forward", "backward"])


def operator_phases(
    process: int, named: LabelledRanges, iterations: IterationRanges, explicit: pl.DataFrame
) -> pl.DataFrame:
    """Marks for forward and backward where operators alternate between the two.

    Operators of autograd, on any thread of the process, are backward. Other operators of the
    training thread are forward if backward operators follow them in the same iteration and no
    explicit mark contains them. A mark spans consecutive operators of one kind.

    Args:
        process: key of the process.
        named: the ranges of the report.
        explicit: MARKS from named ranges.

    Returns:
        MARKS, `forward` and `backward` only; empty where operators show neither.
    """
    means = pl.col("means")
    own = (means == BACKWARD) | (means == "operator") & (pl.col("thread") == iterations.thread)
    operators = ordered(named.rows("means", of=own & (pl.col("process") == process)), "start")
    start, end = operators["start"].to_numpy(), operators["end"].to_numpy()
    backward = operators["means"].is_in([BACKWARD]).to_numpy()
    if not backward.any():
        return empty(MARKS)
    explicit_spans = explicit["start"].to_numpy(), explicit["end"].to_numpy()
    within = _inside(start, start[backward], end[backward])  # called by backward operators
    opened, until = (iterations.frame[name].to_numpy() for name in ("window_start", "window_end"))
    at = np.searchsorted(opened, start, side="right") - 1
    placed = (at >= 0) & (end <= until[at]) & (end > start)
    placed &= backward | ~(within | _inside(start, *explicit_spans))
    start, end, backward, at = start[placed], end[placed], backward[placed], at[placed]
    first = np.flatnonzero(np.append(True, (np.diff(at) != 0) | np.diff(backward))[: len(at)])
    count, begin, backward, at = (
        np.diff(first, append=len(at)), start[first], backward[first], at[first],
    )  # fmt: skip
    last = np.full(len(opened), -1)
    np.maximum.at(last, at[backward], np.flatnonzero(backward))
    kept = (np.arange(len(first)) <= last[at]) & (count >= LEAST)
    marks = {
        "start": begin[kept],
        "end": np.maximum.reduceat(end, first)[kept] if len(first) else end,
        "label": taken(LABELS, backward[kept]),
        "fetch": np.zeros(kept.sum(), np.bool_),
    }
    return conform(pl.DataFrame(marks), MARKS, optional=("operation", "source", "called"))


def backward_threads(
    process: int, named: LabelledRanges, iterations: IterationRanges
) -> tuple[int, ...]:
    """The threads beside the training thread that run operators of autograd."""
    own = (pl.col("process") == process) & (pl.col("thread") != iterations.thread)
    threads = named.signatures.filter(own, means=BACKWARD)["thread"]
    return tuple(threads.unique().sort())


def _inside(moment: Times, start: Times, end: Times) -> Flags:
    """Whether each moment lies in one of the intervals."""
    start, end = union(start, end)
    if not len(start):
        return np.zeros(len(moment), dtype=np.bool_)
    begun = np.searchsorted(start, moment, side="right") - 1
    return np.asarray((begun >= 0) & (moment < end[np.maximum(begun, 0)]))
