"""A device's time in stretches: who owns each instant of one, and what that adds up to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.model.intervals import (
    Flags,
    Times,
    cells,
    count_before,
    covered,
    exclusive,
    length_before,
    union,
)
from rankscope.model.schema import PARTS, SEGMENTS

KIND_ORDER = {"kernel": 0, "graph": 0, "set": 1, "copy": 2}
"""Of operations that run at once a kernel owns the instant before a copy does."""

LABELS = pl.Series(PARTS, dtype=SEGMENTS["label"])
OTHER, EXPOSED = PARTS.index("other"), PARTS.index("exposed_communication")

IDLES, OWNERS = 8, 16
"""Owners are numbers below `OWNERS`: places in PARTS, with `IDLES` added where the device idles."""

UNKNOWN, GAP = len(PARTS), len(PARTS) + 1
"""Owners, too: an operation without a phase, and nobody known yet."""

PART_OF = np.where(np.arange(OWNERS) == UNKNOWN, OTHER, np.arange(OWNERS) % IDLES)
"""Place in PARTS of what an owner owns."""

LENGTHS = ("compute", "communication", "busy", "training", "unphased")
"""What is added up: unions of all computation, of collectives, of both; of the computation of the
training threads, and the part of that whose phase is unknown."""

NEVER = np.iinfo(np.int64).max

Codes = NDArray[np.uint8]
Spans = tuple[Times, Times]


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """A part of a device's time, borders on the report's own axis."""

    begin: int
    end: int
    work: pl.DataFrame  # by start: what runs or starts in it, and what starts next

    def clipped(self, times: Times) -> Times:
        """The nearest moments inside."""
        return np.clip(times, self.begin, self.end)


@dataclass(frozen=True, slots=True)
class SliceTotals:
    """What a stretch adds to the device's timeline."""

    segments: pl.DataFrame  # SEGMENTS
    idle: Times  # how often and how long the device idles: (2, known windows, PARTS)
    lengths: Times  # (LENGTHS, known windows)


class TimeSlices:
    """The time of the known windows cut into stretches, one for each part of the work.

    Each but the first begins where training work does, so that no idling is cut. What runs across
    a border is looked at on both sides of it.
    """

    def __init__(self, known: pl.DataFrame) -> None:
        """None yet; `known`: window, window_start, window_end."""
        edges = (NEVER, -NEVER)
        if not known.is_empty():
            edges = known["window_start"].item(0), known["window_end"].item(-1)
        self._low, self._high = edges
        self._begin = -NEVER
        self._waiting: list[pl.DataFrame] = []

    def add(self, part: pl.DataFrame) -> TimeSlice | None:
        """Take in the next part of what `attribute` told; the stretch that ends where it begins."""
        told = _told(part)
        before, self._waiting = self._waiting, [*self._waiting, told]
        start, end = _spans(told)
        training, talks = _flags(told)
        begins = start[training & ~talks & (end > start)]
        if not before or not len(begins):
            return None
        border = int(begins[0])
        self._waiting = [pl.concat(_reaching(each, border) for each in before), told]
        until = np.searchsorted(start, border, side="right")
        return self._until(border, [*before, told.head(int(until))])

    def last(self) -> TimeSlice | None:
        """What is left once all parts have been added."""
        return self._until(NEVER, self._waiting)

    def _until(self, border: int, work: list[pl.DataFrame]) -> TimeSlice | None:
        begin, self._begin = self._begin, border
        begin, end = max(begin, self._low), min(border, self._high)
        return TimeSlice(begin, end, pl.concat(work, rechunk=True)) if begin < end else None


def _told(work: pl.DataFrame) -> pl.DataFrame:
    """What is asked of operations, phases as places in PARTS."""
    return work.select(
        *("start", "end", "launch", "kind", "training"),
        pl.col("phase").to_physical().fill_null(UNKNOWN),
        talks=pl.col("operation").is_not_null(),
    )


def _reaching(told: pl.DataFrame, border: int) -> pl.DataFrame:
    """What begins or goes on after the border."""
    start, end = _spans(told)
    return told[np.flatnonzero((start >= border) | (end > border))]


@dataclass(frozen=True, slots=True)
class OwnedSegments:
    """A stretch cut into pieces that fill it, each with one owner."""

    start: Times
    owner: Codes
    last: int  # where the last one ends

    @property
    def end(self) -> Times:
        """Where each ends."""
        return np.append(self.start[1:], self.last)

    def cut(self, moments: Times) -> OwnedSegments:
        """Cut at sorted distinct moments, too."""
        moments = moments[(moments > self.start[0]) & (moments < self.last)]
        before = np.searchsorted(self.start, moments, side="right") - 1
        inside = self.start[before] < moments
        return self.split(before[inside], moments[inside], self.owner[before[inside]])

    def split(self, places: Times, moments: Times, owners: Codes) -> OwnedSegments:
        """Those in some places each split at a moment, with a new owner from there on."""
        start = np.insert(self.start, places + 1, moments)
        return OwnedSegments(start, np.insert(self.owner, places + 1, owners), self.last)


def account(
    stretch: TimeSlice, known: pl.DataFrame, host: pl.DataFrame, blocking: pl.DataFrame
) -> SliceTotals:
    """The stretch cut into pieces with one owner each.

    Args:
        stretch: one of `TimeSlices`.
        known: window, window_start, window_end of the windows that it may meet; the first begins
            no later than it.
        host: SEGMENTS of the host timeline.
        blocking: start, end of host calls that communicate and block (MPI).
    """
    training, talks = _flags(stretch.work)
    begins, ends = (known[name].to_numpy() for name in ("window_start", "window_end"))
    start, end = map(stretch.clipped, _spans(stretch.work))
    computing = _computing(stretch, start, end, training & ~talks & (end > start))
    talking = waiting = union(start[talks], end[talks])
    if not blocking.is_empty():
        waiting = union(*map(np.append, talking, map(stretch.clipped, _spans(blocking))))
    first, last = np.searchsorted(host["start"].to_numpy(), (stretch.begin, stretch.end))
    host = host.slice(max(first - 1, 0), max(last - first, 0) + 1)

    empty = start[training & (end == start)]  # what comes next is another after one of them
    borders = cells(begins, ends, *waiting, empty, host["start"].to_numpy())
    pieces = _running(stretch, *computing).cut(borders)
    gaps = np.flatnonzero(pieces.owner == GAP)
    pieces.owner[gaps[covered(pieces.start[gaps], *waiting)]] = EXPOSED
    pieces = _with_idle_owners(pieces, stretch.work, training, host)
    segments, idle, running = _added_up(pieces, known)
    every = computing[:2] if training.all() else union(start[~talks], end[~talks])
    unions = _unions(every, talking, stretch.clipped(begins), stretch.clipped(ends))
    return SliceTotals(segments, idle, np.concatenate((unions, running)))


def _computing(
    stretch: TimeSlice, start: Times, end: Times, chosen: Flags
) -> tuple[Times, Times, Codes]:
    """Disjoint intervals in which chosen operations run, and the phase of who owns each."""
    rows = np.flatnonzero(chosen)

    def by_importance(some: Times) -> Times:
        work = stretch.work.select("kind", "launch")[rows[some]]
        kind = work["kind"].replace_strict(KIND_ORDER, return_dtype=pl.Int64).to_numpy()
        return some[np.lexsort((work["launch"].fill_null(NEVER).to_numpy(), kind))]

    low, high, owner = exclusive(start[rows], end[rows], by_importance)
    return low, high, stretch.work["phase"].to_numpy()[rows[owner]]


def _running(stretch: TimeSlice, low: Times, high: Times, owner: Codes) -> OwnedSegments:
    """Pieces in which training work runs, and the gaps around them."""
    start = np.full(2 * len(low) + 1, stretch.begin)
    start[1::2], start[2::2] = low, high
    owners = np.full(len(start), GAP, dtype=np.uint8)
    owners[1::2] = owner
    real = np.flatnonzero(np.append(start[1:], stretch.end) > start)
    return OwnedSegments(start[real], owners[real], stretch.end)


def _with_idle_owners(
    pieces: OwnedSegments, work: pl.DataFrame, training: Flags, host: pl.DataFrame
) -> OwnedSegments:
    """Each gap given to whom it belongs while the device idles.

    Inside a gap no operation begins, and the host's part stays the same.
    """
    gaps = np.flatnonzero(pieces.owner == GAP)
    moment, until = pieces.start[gaps], pieces.end[gaps]
    index = count_before(moment, work["start"].to_numpy()[training])
    following = np.append(np.flatnonzero(training), work.height)[index]
    launch = np.append(work["launch"].fill_null(work["start"]).to_numpy(), NEVER)[following]
    phase = np.append(work["phase"].to_numpy(), OTHER)[following]
    owner = np.where(phase == UNKNOWN, OTHER, phase) + np.uint8(IDLES)
    pieces.owner[gaps] = owner
    starves = launch > moment
    on_host = np.searchsorted(host["start"].to_numpy(), moment[starves], side="right") - 1
    by_host = host["label"].to_physical().to_numpy()[np.maximum(on_host, 0)]
    pieces.owner[gaps[starves]] = by_host + np.uint8(IDLES)
    launched = starves & (launch < until)
    return pieces.split(gaps[launched], launch[launched], owner[launched])


def _added_up(pieces: OwnedSegments, known: pl.DataFrame) -> tuple[pl.DataFrame, Times, Times]:
    """SEGMENTS of the known windows, `idle` of an `SliceTotals`, the last two of its LENGTHS."""
    begins, ends = (known[name].to_numpy() for name in ("window_start", "window_end"))
    window = count_before(pieces.start, begins) - 1
    key = window * OWNERS + pieces.owner
    key[pieces.start >= ends[window]] = -1  # between known windows lies what nobody asks for
    first, last = _runs(key)
    if key.min() < 0:
        asked = key[first] >= 0
        first, last = first[asked], last[asked]
    start, end = pieces.start[first], pieces.end[last]
    key, owner = key[first], pieces.owner[first]

    often = np.bincount(key, minlength=OWNERS * known.height)
    spent = np.zeros_like(often)
    np.add.at(spent, key, end - start)
    told = np.stack((often, spent)).reshape(2, known.height, OWNERS)
    running = told[1, :, :EXPOSED].sum(axis=1) + told[1, :, UNKNOWN]
    lengths = np.stack((running, told[1, :, UNKNOWN]))

    part = PART_OF[owner]
    first, last = _runs(key - owner + part)
    segments = pl.DataFrame(
        {
            "start": start[first],
            "end": end[last],
            "window": known["window"].gather(key[first] // OWNERS),
            "label": LABELS.gather(part[first]),
        }
    )
    return segments, told[:, :, IDLES : IDLES + len(PARTS)], lengths


def _runs(numbers: Times) -> tuple[Times, Times]:
    """The first and the last place of each run of equal numbers."""
    border = np.flatnonzero(numbers[1:] != numbers[:-1])
    first, last = np.append(0, border + 1), np.append(border, len(numbers) - 1)
    return first[: len(numbers)], last[: len(numbers)]


def _unions(computing: Spans, talking: Spans, low: Times, high: Times) -> Times:
    """How long there is computation, communication, any of them from each `low` to its `high`."""
    moments = np.concatenate((*talking, low, high))
    size = len(talking[0])
    start, end, edges = np.split(length_before(*computing, moments), (size, 2 * size))
    both = length_before(start, end, edges)
    communication = length_before(*talking, np.append(low, high))
    before = np.stack((edges, communication, edges + communication - both))
    return before[:, len(low) :] - before[:, : len(low)]


def _spans(frame: pl.DataFrame) -> Spans:
    return frame["start"].to_numpy(), frame["end"].to_numpy()


def _flags(told: pl.DataFrame) -> tuple[Flags, Flags]:
    return told["training"].to_numpy(), told["talks"].to_numpy()
