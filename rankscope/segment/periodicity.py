"""The period of a sequence of names: the number of events in a training step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.model.intervals import Times

LEAST_REPEATS = 3
"""A block must occur this many times to count as repeating."""

MOST_KINDS = 64
"""Number of names compared, the rarest first: rare names distinguish steps from layers."""

SLACK = 0.03
"""The shortest period wins whose match is within this of the best one."""


@dataclass(frozen=True, slots=True)
class Period:
    """A repeating block of events."""

    length: int  # events in the block
    match: float  # share of the events that recur after `length`, averaged over kinds
    anchors: Times  # index of the same event of the block in each repeat


def find_period(codes: Times) -> Period | None:
    """The block that a sequence repeats, or None where it is too short.

    The match at distance `p` is the share of a kind's events that recur `p` events later,
    averaged over kinds. Layers repeat within a step; events that occur once per step do not, and
    so identify the step.

    Args:
        codes: the kind of each event in order, numbered from 0.
    """
    count = len(codes)
    longest = count // LEAST_REPEATS
    if longest < 1:
        return None
    match = _self_match(codes, longest)
    best = float(match.max())
    length = int(np.flatnonzero(match >= best - SLACK)[0]) + 1
    anchors = _anchors(codes, length)
    return Period(length, float(match[length - 1]), anchors)


def _self_match(codes: Times, longest: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Match at the distances 1 to `longest`."""
    count = len(codes)
    kinds, sizes = np.unique(codes, return_counts=True)
    order = np.argsort(sizes, kind="stable")
    rare = kinds[order][sizes[order] >= LEAST_REPEATS][:MOST_KINDS]
    if not len(rare):
        return np.zeros(longest)
    padded = 1 << (2 * count - 1).bit_length()
    total = np.zeros(longest)
    for kind in rare:
        here = codes == kind
        spectrum = np.fft.rfft(here, padded)
        pairs = np.rint(np.fft.irfft(spectrum * np.conj(spectrum), padded)[1 : longest + 1])
        early = np.cumsum(here)[count - 2 :: -1][:longest]  # events that have a later partner
        total += pairs / np.maximum(early, 1)
    return total / len(rare)


def _anchors(codes: Times, length: int) -> Times:
    """Indices of an event that occurs once per block, identified by its name and predecessors."""
    count = len(codes)
    repeats = count / length
    context = codes
    while True:
        kinds, numbers, sizes = np.unique(context, return_inverse=True, return_counts=True)
        fit = np.abs(sizes - repeats) <= 1 + 0.05 * repeats
        regular = [
            (float(np.mean(np.diff(np.flatnonzero(numbers == kind)) == length)), -int(kind))
            for kind in np.flatnonzero(fit)[:MOST_KINDS]
            if sizes[kind] > 1
        ]
        if regular:
            share, kind = max(regular)
            if share > 0.5:
                return np.flatnonzero(numbers == -kind)
        wider = np.roll(numbers, 1) * len(kinds) + numbers
        if len(np.unique(wider)) in (len(kinds), count):
            return np.arange(count % length, count, length)
        context = wider
