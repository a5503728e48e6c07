"""The period of a sequence of names: the number of events in a training step."""

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rankscope.model.arrays import distinct
from rankscope.model.intervals import Times

LEAST_REPEATS = 3
"""A block must occur this many times to count as repeating."""

MOST_KINDS = 64
"""Number of names compared, the rarest first: rare names distinguish steps from layers."""

AT_ONCE = 2**20
"""Pairs of events that are compared at once; bounds memory."""

DENSE = 8
"""The n events of a kind are compared pair by pair where n² < DENSE × all events, else by FFT."""

SLACK = 0.03
"""The shortest period wins whose match is within this of the best one."""

TRIES = 32
"""Distances whose match is computed one by one before more kinds are compared."""

ROUNDING = 1e-9
"""Exceeds the rounding errors of a match."""

Shares = NDArray[np.float64]


class Period(Struct, frozen=True):
    """A repeating block of events."""

    length: int  # events in the block
    match: float  # share of the events that recur after `length`, averaged over kinds
    anchors: Times  # index of the same event of the block in each repeat


def find_period(
    codes: Times, *, dense: int = DENSE, at_once: int = AT_ONCE, tries: int = TRIES
) -> Period | None:
    """The block that a sequence repeats, or None where it is too short or has runs of one kind.

    The match at distance `p` is the share of a kind's events that recur `p` events later,
    averaged over kinds. Layers repeat within a step; events that occur once per step do not, and
    so identify the step.

    Args:
        codes: the kind of each event in order, numbered from 0.
        dense: see `DENSE`; it chooses the method and does not change the period.
        at_once: pairs of events that are compared at once.
        tries: distances whose match is computed one by one before more kinds are compared.
    """
    count = len(codes)
    longest = count // LEAST_REPEATS
    if longest < 1:
        return None
    sizes = np.bincount(codes)
    order = np.argsort(sizes, kind="stable")
    rare = order[sizes[order] >= LEAST_REPEATS][:MOST_KINDS]
    pairing = partial(_pairs, dense=dense, at_once=at_once)
    match_at = cache(partial(_match, codes, rare))
    total, length = np.zeros(longest), None
    few = int(np.count_nonzero(sizes[rare] ** 2 <= dense * count))
    added, until = 0, max(few, int(2 * SLACK * len(rare)) + 1)  # fewer kinds decide nothing
    while length is None and added < len(rare):
        _add_shares(codes, rare[added:until], total, pairing)
        added, until = until, 2 * until
        if others := len(rare[added:]):
            length = _limited(match_at, (total + others) / len(rare), tries)
    if length is None:
        match = total / max(len(rare), 1)
        length = int(np.flatnonzero(match >= float(match.max()) - SLACK)[0]) + 1
    if length == 1 and len(rare) > 1:  # one kind many times, then another
        return None
    return Period(length, match_at(length), _anchors(codes, length))


def _limited(match_at: Callable[[int], float], most: Shares, tries: int) -> int | None:
    """The period, if upper bounds of the match and a few exact matches decide it; else None.

    Events that occur once per step leave few distances that match well: a step and its multiples.

    Args:
        match_at: the match at a distance.
        most: the highest possible match at the distances from 1 on.
        tries: as in `find_period`.
    """
    top = float(most.max())
    shorter: list[float] = []
    for index in np.flatnonzero(most >= top - 2 * SLACK - ROUNDING)[:tries]:
        match = match_at(int(index) + 1)
        if match >= top - SLACK + ROUNDING and max(shorter, default=-1) < match - SLACK - ROUNDING:
            return int(index) + 1
        shorter.append(match)
    return None


def _match(codes: Times, rare: Times, distance: int) -> float:
    """The match at one distance."""
    first, kinds = codes[:-distance], int(codes.max()) + 1
    recurs = first == codes[distance:]
    alone, pairs = np.bincount(first + kinds * recurs, minlength=2 * kinds).reshape(2, kinds)
    shares = pairs[rare] / np.maximum((alone + pairs)[rare], 1)
    return float(np.add.accumulate(shares)[-1]) / len(rare) if len(rare) else 0.0


def _add_shares(codes: Times, kinds: Times, total: Shares, pairing: Callable[..., Times]) -> None:
    """Add for each kind the share of its events that recur at the distances from 1 on."""
    for kind in kinds:
        places = np.flatnonzero(codes == kind)
        pairs = pairing(places, len(total), len(codes))
        distances = np.flatnonzero(pairs)  # few, if it occurs once per step
        early = np.searchsorted(places, len(codes) - distances)  # events that have a later partner
        total[distances - 1] += pairs[distances] / early


def _pairs(places: Times, longest: int, count: int, *, dense: int, at_once: int) -> Times:
    """Pairs of events of a kind by their distance from 0 to `longest`, none at 0.

    Args:
        places: of the events of the kind among all events.
        longest: the largest distance.
        count: of all events.
        dense: as in `find_period`.
        at_once: as in `find_period`.
    """
    if len(places) ** 2 > dense * count:
        least = count + longest  # so that the end does not wrap around to the beginning
        padded = min(factor << ((least - 1) // factor).bit_length() for factor in (1, 3, 5, 9, 15))
        spectrum = np.fft.rfft(np.bincount(places, minlength=count), padded)
        spectrum *= np.conj(spectrum)
        pairs = np.rint(np.fft.irfft(spectrum, padded)[: longest + 1]).astype(np.int64)
        pairs[0] = 0
        return pairs
    pairs = np.zeros(longest + 1, dtype=np.int64)
    partners = np.searchsorted(places, places + longest, side="right") - np.arange(len(places)) - 1
    together = max(at_once // int(partners.max() + 1), 1)
    for first in range(0, len(places), together):
        batch = partners[first : first + together]
        own = np.repeat(np.arange(first, first + len(batch)), batch)
        nth = np.arange(len(own)) - np.repeat(np.cumsum(batch) - batch, batch)
        pairs += np.bincount(places[own + 1 + nth] - places[own], minlength=longest + 1)
    return pairs


def _anchors(codes: Times, length: int) -> Times:
    """Indices of an event that occurs once per block, identified by its name and predecessors."""
    count = len(codes)
    repeats = count / length
    numbers, sizes, known = codes, np.bincount(codes), 1
    while True:
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
        # A number stands for `known` events; doubling that keeps the rounds few.
        wider = np.roll(numbers, known) * len(sizes) + numbers
        known *= 2
        before = len(sizes)
        numbers = distinct(wider)[1]
        sizes = np.bincount(numbers)
        if len(sizes) in (before, count):
            return np.arange(count % length, count, length)
