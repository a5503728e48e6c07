"""Whether detected steps are steps, and not what repeats inside a step. See METHOD.md#iterations.

The layers of one step repeat as well as steps do. What repeats is a step if each repeat has every
phase that ranges name, and operators of autograd if there are any. Without such ranges, repeats
last about equally long and no range of the training thread holds several of them.
"""

import numpy as np
import polars as pl

from rankscope.model.intervals import Times
from rankscope.model.kinds import STEP_PHASES
from rankscope.sources.conventions import OPERATORS

REGULAR = 0.8
"""Share of the repeats, or of their time, that must be alike."""

ALIKE = 2
"""Repeats are alike if they last at most this many times as long as the median, or as short."""


def are_steps(ranges: pl.DataFrame, ends: Times, backward: Times) -> bool:
    """Whether repeats can be steps.

    Args:
        ranges: of the training thread: start, end, means.
        ends: ends of the repeats, after the begin of the first.
        backward: starts of autograd's operators, on any thread.
    """
    if len(backward) and (np.histogram(backward, ends)[0] > 0).mean() < REGULAR:
        return False
    named = ranges.filter(pl.col("means").is_in(STEP_PHASES))
    if not named.is_empty():
        return all(
            _once_each(part["start"].to_numpy(), ends)
            for part in named.partition_by("means", maintain_order=True)
        )
    lengths = np.diff(ends)
    median = float(np.median(lengths))
    regular = (lengths <= ALIKE * median) & (ALIKE * lengths >= median)
    if regular.mean() < REGULAR or lengths[regular].sum() < REGULAR * lengths.sum():
        return False
    outer = ranges.filter(~pl.col("means").is_in(OPERATORS).fill_null(False))
    return _held_together(outer, ends) <= 1 - REGULAR


def _once_each(starts: Times, ends: Times) -> bool:
    """Whether nearly all repeats have a phase equally often.

    The first and the last repeat may be cut.
    """
    counts = np.histogram(starts, ends)[0]
    inner = counts[1:-1] if len(counts) > 2 else counts
    usual = float(np.median(inner))
    return usual >= 1 and bool((inner == usual).mean() >= REGULAR)


def _held_together(ranges: pl.DataFrame, ends: Times) -> float:
    """The share of the repeats that share a range with another repeat."""
    first = np.searchsorted(ends, ranges["start"].to_numpy(), side="left")
    last = np.searchsorted(ends, ranges["end"].to_numpy(), side="right") - 1
    several = last - first >= 2
    held = np.zeros(len(ends), dtype=np.int64)
    np.add.at(held, first[several], 1)
    np.add.at(held, last[several], -1)
    return float((np.cumsum(held)[:-1] > 0).mean())
