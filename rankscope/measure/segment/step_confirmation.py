"""Whether detected steps are steps, and not what repeats inside a step. See METHOD.md#iterations.

The layers of one step repeat as well as steps do. What repeats is a step if each repeat has every
phase that ranges name, and operators of autograd if there are any. Without such ranges, repeats
last about equally long or launch the same kernels (a host that waits launches none), and no range
of the training thread holds several of them. Where kernels are known, a repeat lasts as long as the
device needs for it: a host may launch several ahead, and wait in the next.
"""

import numpy as np
import polars as pl

from rankscope.model.intervals import Flags, Times
from rankscope.model.kinds import STEP_PHASES
from rankscope.sources.conventions import OPERATORS

REGULAR = 0.8
"""Share of the repeats, or of their time, that must be alike."""

ALIKE = 2
"""Repeats are alike if they last at most this many times as long as the median, or as short."""


def are_steps(ranges: pl.DataFrame, ends: Times, backward: Times, kernels: pl.DataFrame) -> bool:
    """Whether repeats can be steps.

    Args:
        ranges: of the training thread: start, end, means.
        ends: ends of the repeats, after the begin of the first.
        backward: starts of autograd's operators, on any thread.
        kernels: that compute, by host: host, name, end.
    """
    if len(backward) and (np.histogram(backward, ends)[0] > 0).mean() < REGULAR:
        return False
    named = ranges.filter(pl.col("means").is_in(STEP_PHASES))
    if not named.is_empty():
        return all(
            _once_each(part["start"].to_numpy(), ends)
            for part in named.partition_by("means", maintain_order=True)
        )
    lengths = np.diff(_ends_on_the_device(kernels, ends))
    median = float(np.median(lengths))
    regular = (lengths <= ALIKE * median) & (ALIKE * lengths >= median)
    if not (_most(regular, lengths) or _most(_same_work(kernels, ends), lengths)):
        return False
    outer = ranges.filter(~pl.col("means").is_in(OPERATORS).fill_null(False))
    return _held_together(outer, ends) <= 1 - REGULAR


def _ends_on_the_device(kernels: pl.DataFrame, ends: Times) -> Times:
    """When the kernels that were launched by each end had ended; the ends where none are known."""
    launched = np.searchsorted(kernels["host"].to_numpy(), ends, side="right")
    if not launched[-1]:
        return ends
    done = np.maximum.accumulate(kernels["end"].to_numpy())
    return np.where(launched > 0, done[launched - 1], ends)


def _most(alike: Flags, lengths: Times) -> bool:
    """Whether nearly all repeats are alike, and fill nearly all of the time."""
    return bool(alike.mean() >= REGULAR and lengths[alike].sum() >= REGULAR * lengths.sum())


def _same_work(kernels: pl.DataFrame, ends: Times) -> Flags:
    """Whether each repeat launches the same kernels as most do.

    The first and the last repeat may be cut: they launch no more.
    """
    repeat = np.searchsorted(ends, kernels["host"].to_numpy(), side="left") - 1
    work = (
        kernels.select("name", repeat=pl.Series(repeat, dtype=pl.Int64))
        .filter(pl.col("repeat").is_between(0, len(ends) - 2))
        .group_by("repeat", "name")
        .agg(count=pl.len())
        .group_by("repeat")
        .agg(pl.col("count").sum(), kinds=pl.struct("name", "count").hash().bitwise_xor())
    )
    same = np.zeros(len(ends) - 1, dtype=np.bool_)
    usual = work.filter(pl.len().over("kinds") > len(same) / 2)
    if not usual.is_empty():
        cut = pl.col("repeat").is_in([0, len(same) - 1]) & (pl.col("count") <= usual["count"][0])
        alike = work.filter(cut | (pl.col("kinds") == usual["kinds"][0]))
        same[alike["repeat"].to_numpy()] = True
    return same


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
