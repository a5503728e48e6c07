"""A device's time, slice by slice: the owner of each instant, and the totals."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from rankscope.measure.waiting import Requests
from rankscope.model.arrays import filled, is_null, taken
from rankscope.model.frames import framed, with_series
from rankscope.model.intervals import (
    Flags,
    Times,
    cells,
    count_before,
    covered,
    exclusive,
    length_before,
    outside,
    union,
)
from rankscope.model.kinds import PARTS
from rankscope.model.schema import SEGMENTS, WORK
from rankscope.util.numbers import NEVER

KIND_ORDER = np.array([{"set": 1, "copy": 2}.get(kind, 0) for kind in WORK.categories])
"""Priority among operations that run at the same time: kernels before copies."""

LABELS = pl.Series(PARTS, dtype=SEGMENTS["label"])
OTHER, EXPOSED = PARTS.index("other"), PARTS.index("exposed_communication")

UNKNOWN, GAP, IDLES = range(len(PARTS), len(PARTS) + 3)
OWNERS = 2 * IDLES
"""Owner codes, all below `OWNERS`: an index in PARTS, `UNKNOWN` for an operation without a phase,
`GAP` where nothing owns the time yet; an index in PARTS plus `IDLES` where the device idles."""

PART_OF = np.where(np.arange(OWNERS) == UNKNOWN, OTHER, np.arange(OWNERS) % IDLES)
"""Owner code → index in PARTS."""

LENGTHS = ("compute", "communication", "busy", "training", "unphased")
"""Unions that are summed: all computation, collectives, both; computation of the training threads,
and the part of it whose phase is unknown."""

Codes = NDArray[np.uint8]
Spans = tuple[Times, Times]


class TimeSlice(Struct, frozen=True):
    """A slice of a device's time; its bounds are on the report's own axis."""

    begin: int
    end: int
    work: pl.DataFrame  # by start: operations that run or start in the slice, and the next one

    def clipped(self, times: Times) -> Times:
        """`times` clipped to the slice."""
        return np.clip(times, self.begin, self.end)


class SliceTotals(Struct, frozen=True):
    """The part of the device's timeline that a slice adds."""

    segments: pl.DataFrame  # SEGMENTS
    idle: Times  # number and length of idle intervals: (2, known windows, PARTS)
    lengths: Times  # (LENGTHS, known windows)


class TimeSlices:
    """Cuts the time of the known windows into slices, one per chunk of work.

    Every slice but the first begins where training work begins, so that no idle interval is cut.
    An operation that crosses a border counts in both slices.
    """

    def __init__(self, known: pl.DataFrame) -> None:
        """Start empty; `known` has the columns window, window_start, window_end."""
        edges = (NEVER, -NEVER)
        if not known.is_empty():
            edges = known["window_start"].item(0), known["window_end"].item(-1)
        self._low, self._high = edges
        self._begin = -NEVER
        self._waiting: list[pl.DataFrame] = []

    def add(self, part: pl.DataFrame) -> TimeSlice | None:
        """Add the next chunk from `attribute`; gives the slice that ends where the chunk begins."""
        rows = _needed_columns(part)
        before, self._waiting = self._waiting, [*self._waiting, rows]
        start, end = _spans(rows)
        training, talks = _flags(rows)
        begins = start[training & ~talks & (end > start)]
        if not before or not len(begins):
            return None
        border = int(begins[0])
        self._waiting = [pl.concat(_reaching(each, border) for each in before), rows]
        until = np.searchsorted(start, border, side="right")
        return self._until(border, [*before, rows.head(int(until))])

    def last(self) -> TimeSlice | None:
        """The last slice, once all chunks have been added."""
        return self._until(NEVER, self._waiting)

    def _until(self, border: int, work: list[pl.DataFrame]) -> TimeSlice | None:
        begin, self._begin = self._begin, border
        begin, end = max(begin, self._low), min(border, self._high)
        return TimeSlice(begin, end, pl.concat(work, rechunk=True)) if begin < end else None


def _needed_columns(work: pl.DataFrame) -> pl.DataFrame:
    """The columns that the sweep needs; phases as indices in PARTS."""
    columns = work[["start", "end", "launch", "kind", "training"]]
    phase = pl.Series("phase", filled(work["phase"].to_physical(), UNKNOWN))
    return with_series(columns, phase, pl.Series("talks", ~is_null(work["operation"])))


def _reaching(rows: pl.DataFrame, border: int) -> pl.DataFrame:
    """Operations that end after the border."""
    start, end = _spans(rows)
    return rows[np.flatnonzero((start >= border) | (end > border))]


class OwnedSegments(Struct, frozen=True):
    """A slice cut into segments that fill it, each with one owner."""

    start: Times
    owner: Codes
    last: int  # end of the last segment

    @property
    def end(self) -> Times:
        """The end of each segment."""
        return np.append(self.start[1:], self.last)

    def cut(self, moments: Times) -> OwnedSegments:
        """The same segments, cut at further moments (sorted, distinct)."""
        moments = moments[(moments > self.start[0]) & (moments < self.last)]
        before = np.searchsorted(self.start, moments, side="right") - 1
        inside = self.start[before] < moments
        return self.split(before[inside], moments[inside], self.owner[before[inside]])

    def split(self, places: Times, moments: Times, owners: Codes) -> OwnedSegments:
        """The segments at `places` split at `moments`; the second half gets a new owner."""
        start = np.insert(self.start, places + 1, moments)
        return OwnedSegments(start, np.insert(self.owner, places + 1, owners), self.last)


def account(
    time_slice: TimeSlice,
    known: pl.DataFrame,
    host: pl.DataFrame,
    blocking: pl.DataFrame,
    requests: tuple[Requests, ...],
) -> SliceTotals:
    """The slice cut into segments with one owner each, and its totals.

    Args:
        time_slice: a slice from `TimeSlices`.
        known: window, window_start, window_end of the windows that the slice may overlap; the
            first begins no later than the slice.
        host: SEGMENTS of the host timeline.
        blocking: start and end of blocking host calls that communicate (MPI).
        requests: what may wait for the collectives of the slice.
    """
    training, talks = _flags(time_slice.work)
    begins, ends = (known[name].to_numpy() for name in ("window_start", "window_end"))
    start, end = map(time_slice.clipped, _spans(time_slice.work))
    # who runs, who communicates, and who waits, each as disjoint intervals
    computing = _computing(time_slice, start, end, training & ~talks & (end > start))
    talking = union(start[talks], end[talks])
    waiting = _waiting(time_slice, talks, requests)
    if not blocking.is_empty():
        waiting = union(*map(np.append, waiting, map(time_slice.clipped, _spans(blocking))))
    # the segments of the host in this slice, and the one that it begins in
    first, last = np.searchsorted(host["start"].to_numpy(), (time_slice.begin, time_slice.end))
    host = host.slice(max(first - 1, 0), max(last - first, 0) + 1)

    # no owner changes within a piece; after an operation without length the next one is another
    empty = start[training & ~talks & (end == start)]
    borders = cells(begins, ends, *waiting, empty, host["start"].to_numpy())
    pieces = _running(time_slice, *computing).cut(borders)
    gaps = np.flatnonzero(pieces.owner == GAP)
    pieces.owner[gaps[covered(pieces.start[gaps], *waiting)]] = EXPOSED
    pieces = _with_idle_owners(pieces, time_slice.work, host)
    segments, idle, running = _totals(pieces, known)
    computed = computing[:2] if training.all() else union(start[~talks], end[~talks])
    unions = _unions(computed, talking, time_slice.clipped(begins), time_slice.clipped(ends))
    return SliceTotals(segments, idle, np.concatenate((unions, running)))


def _computing(
    time_slice: TimeSlice, start: Times, end: Times, chosen: Flags
) -> tuple[Times, Times, Codes]:
    """Disjoint intervals in which the selected operations run, and the phase that owns each."""
    kind = KIND_ORDER[time_slice.work["kind"].to_physical().to_numpy()]

    def owned(rows: Times) -> tuple[Times, Times, Times]:
        def by_importance(candidates: Times) -> Times:
            launch = taken(time_slice.work["launch"], rows[candidates])
            return candidates[np.lexsort((filled(launch, NEVER), kind[rows[candidates]]))]

        low, high, owner = exclusive(start[rows], end[rows], by_importance)
        return low, high, rows[owner]

    # Kernels overlap in the order of their launches: copies among them would disturb that.
    kernels = owned(np.flatnonzero(chosen & (kind == 0)))
    copies = owned(np.flatnonzero(chosen & (kind > 0)))
    low, high, index = outside(*copies[:2], *kernels[:2])
    copies = low, high, copies[2][index]
    low, high, row = map(np.append, kernels, copies)
    order = np.argsort(low, kind="stable")
    return low[order], high[order], time_slice.work["phase"].to_numpy()[row[order]]


def _waiting(time_slice: TimeSlice, talks: Flags, requests: tuple[Requests, ...]) -> Spans:
    """Disjoint intervals in which the rank waits for a collective that runs."""
    start, end = (times[talks] for times in _spans(time_slice.work))
    since = np.minimum.reduce([each.behind(end) for each in requests])
    begin = np.minimum(np.maximum(start, since), end)
    return union(time_slice.clipped(begin), time_slice.clipped(end))


def _running(time_slice: TimeSlice, low: Times, high: Times, owner: Codes) -> OwnedSegments:
    """Segments in which training work runs, and the gaps between them."""
    start = np.full(2 * len(low) + 1, time_slice.begin)
    start[1::2], start[2::2] = low, high
    owners = np.full(len(start), GAP, dtype=np.uint8)
    owners[1::2] = owner
    real = np.flatnonzero(np.append(start[1:], time_slice.end) > start)
    return OwnedSegments(start[real], owners[real], time_slice.end)


def _with_idle_owners(
    pieces: OwnedSegments, work: pl.DataFrame, host: pl.DataFrame
) -> OwnedSegments:
    """The segments with an owner for every gap, during which the device starves.

    Inside a gap no operation of the training threads begins, and the host stays in the same phase.
    """
    gaps = np.flatnonzero(pieces.owner == GAP)
    moment, until = pieces.start[gaps], pieces.end[gaps]
    # a gap belongs to the phase of the operation that begins after it
    training, talks = _flags(work)
    computes = training & ~talks
    index = count_before(moment, work["start"].to_numpy()[computes])
    following = np.append(np.flatnonzero(computes), work.height)[index]
    launch = np.append(filled(work["launch"], work["start"]), NEVER)[following]
    phase = np.append(work["phase"].to_numpy(), OTHER)[following]
    owner = np.where(phase == UNKNOWN, OTHER, phase) + np.uint8(IDLES)
    pieces.owner[gaps] = owner
    # until that operation is launched, it belongs to the phase that is open on the host
    starves = launch > moment
    on_host = np.searchsorted(host["start"].to_numpy(), moment[starves], side="right") - 1
    by_host = host["label"].to_physical().to_numpy()[np.maximum(on_host, 0)]
    pieces.owner[gaps[starves]] = by_host + np.uint8(IDLES)
    # a gap in which it is launched is split there: the second half belongs to its phase
    launched = starves & (launch < until)
    return pieces.split(gaps[launched], launch[launched], owner[launched])


def _totals(pieces: OwnedSegments, known: pl.DataFrame) -> tuple[pl.DataFrame, Times, Times]:
    """SEGMENTS of the known windows, `SliceTotals.idle`, and the last two of LENGTHS."""
    begins, ends = (known[name].to_numpy() for name in ("window_start", "window_end"))
    # one number for the window and the owner of each piece; -1 between known windows
    window = count_before(pieces.start, begins) - 1
    key = window * OWNERS + pieces.owner
    key[pieces.start >= ends[window]] = -1
    # neighbouring pieces of one owner become one interval
    first, last = _runs(key)
    if key.min() < 0:
        inside = key[first] >= 0
        first, last = first[inside], last[inside]
    start, end = pieces.start[first], pieces.end[last]
    key, owner = key[first], pieces.owner[first]

    # the number and the length of the intervals by window and owner
    count = np.bincount(key, minlength=OWNERS * known.height)
    length = np.zeros_like(count)
    np.add.at(length, key, end - start)
    sums = np.stack((count, length)).reshape(2, known.height, OWNERS)
    # what runs belongs to a phase, or to none that is known
    running = sums[1, :, :EXPOSED].sum(axis=1) + sums[1, :, UNKNOWN]
    lengths = np.stack((running, sums[1, :, UNKNOWN]))

    # running and idle time of a phase are one part: neighbours of one part become one segment
    part = PART_OF[owner]
    first, last = _runs(key - owner + part)
    segments = framed(
        {
            "start": start[first],
            "end": end[last],
            "window": taken(known["window"], key[first] // OWNERS),
            "label": taken(LABELS, part[first]),
        }
    )
    return segments, sums[:, :, IDLES : IDLES + len(PARTS)], lengths


def _runs(numbers: Times) -> tuple[Times, Times]:
    """First and last index of each run of equal numbers."""
    border = np.flatnonzero(numbers[1:] != numbers[:-1])
    first, last = np.append(0, border + 1), np.append(border, len(numbers) - 1)
    return first[: len(numbers)], last[: len(numbers)]


def _unions(computing: Spans, talking: Spans, low: Times, high: Times) -> Times:
    """Union lengths of computation, communication and both, from each `low` to its `high`."""
    moments = np.concatenate((*talking, low, high))
    size = len(talking[0])
    start, end, edges = np.split(length_before(*computing, moments), (size, 2 * size))
    both = length_before(start, end, edges)
    communication = length_before(*talking, np.append(low, high))
    before = np.stack((edges, communication, edges + communication - both))
    return before[:, len(low) :] - before[:, : len(low)]


def _spans(frame: pl.DataFrame) -> Spans:
    return frame["start"].to_numpy(), frame["end"].to_numpy()


def _flags(rows: pl.DataFrame) -> tuple[Flags, Flags]:
    return rows["training"].to_numpy(), rows["talks"].to_numpy()
