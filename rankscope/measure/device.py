"""The gpu clock: every instant of a device's window has one owner. See METHOD.md#gpu-clock."""

from collections import deque

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.measure.attribution import Attributed
from rankscope.measure.device_sweep import LABELS, LENGTHS, TimeSlice, TimeSlices, account
from rankscope.measure.host import merged
from rankscope.measure.waiting import LOOK_AHEAD, LaunchedOperations, Requests
from rankscope.model.arrays import is_null, known_if, rows_of, taken
from rankscope.model.frames import framed, stacked
from rankscope.model.intervals import Times
from rankscope.model.kinds import PARTS
from rankscope.model.schema import SEGMENTS, constant, empty
from rankscope.util.numbers import NEVER


class DeviceTimeline(Struct, frozen=True):
    """The timeline of one rank's device."""

    segments: pl.DataFrame  # SEGMENTS; `window` counts the windows, gaps between them left out
    windows: pl.DataFrame  # window, window_start, window_end; null where nothing was launched
    usage: pl.DataFrame  # window, compute, communication, idle
    idle: pl.DataFrame  # window, phase, kind (`idle`), name (""), count, total_ns: of starving
    unphased: pl.DataFrame  # window, share of its computing time without a phase
    opaque: bool  # some work is CUDA graphs traced as a whole, which hide the waits inside


class DeviceAccount:
    """Cuts the device's windows into disjoint SEGMENTS that fill them, chunk by chunk.

    (1) Running training work owns the instant, kernels before copies, then the earliest
    launched; (2) else, if a collective runs and the rank waits for it, communication does: an
    operation that starts after the collective has been launched, or the host is inside a call
    that synchronises and returns after it; (3) else the device starves: until the next operation
    is launched the phase open on the host owns it, from launch to start that operation's phase.
    """

    def __init__(
        self,
        work: Attributed,
        iterations: pl.DataFrame,
        blocking: pl.DataFrame,
        *,
        look_ahead: int = LOOK_AHEAD,
    ) -> None:
        """Start empty.

        Args:
            work: device work of the process.
            iterations: ITERATIONS.
            blocking: start and end of blocking host calls that communicate (MPI).
            look_ahead: how many later operations are searched for one that waits.
        """
        self._work = work
        self._blocking = blocking
        self._look_ahead = look_ahead
        self._windows = _windows(work.survey, iterations, work.earlier_end)
        self._known = rows_of(self._windows, ~is_null(self._windows["window_start"]))
        self._begins = self._known["window_start"].to_numpy()
        self._lengths = np.zeros((len(LENGTHS), self._known.height), dtype=np.int64)
        self._idle = np.zeros((2, self._known.height, len(PARTS)), dtype=np.int64)
        self._segments = [empty(SEGMENTS)]
        self._slices = TimeSlices(self._known)
        self._held: deque[tuple[TimeSlice, int]] = deque()  # with the rows added so far
        self._launched = LaunchedOperations()
        self._calls = Requests(
            work.sync_calls["start"].to_numpy(), work.sync_calls["end"].to_numpy()
        )

    def add(self, part: pl.DataFrame) -> None:
        """Add the next chunk of work."""
        self._launched.add(part)
        self._hold(self._slices.add(part))
        while self._held and self._held[0][1] + self._look_ahead <= self._launched.rows:
            self._take(self._held.popleft()[0])

    def timeline(self) -> DeviceTimeline:
        """The timeline of all added work."""
        self._hold(self._slices.last())
        while self._held:
            self._take(self._held.popleft()[0])
        compute, communication, busy, training, unphased = self._lengths
        known = self._known
        window, begin, end = known
        return DeviceTimeline(
            segments=merged(stacked(self._segments)),
            windows=self._windows,
            usage=framed(
                {
                    "window": window,
                    "compute": compute,
                    "communication": communication,
                    "idle": end - begin - pl.Series(busy),
                }
            ),
            idle=_idling(known, *self._idle),
            unphased=framed({"window": window, "share": unphased / np.maximum(training, 1)}),
            opaque=(self._work.survey["kind"] == "graph").any(),
        )

    def _hold(self, time_slice: TimeSlice | None) -> None:
        if time_slice is not None:
            self._held.append((time_slice, self._launched.rows))

    def _take(self, time_slice: TimeSlice) -> None:
        first = int(np.searchsorted(self._begins, time_slice.begin, side="right")) - 1
        last = int(np.searchsorted(self._begins, time_slice.end))
        overlapped = self._known.slice(first, last - first)
        requests = (self._launched.since(time_slice.begin), self._calls)
        part = account(time_slice, overlapped, self._work.host.timeline, self._blocking, requests)
        self._lengths[:, first:last] += part.lengths
        self._segments.append(part.segments)
        self._idle[:, first:last] += part.idle


def _idling(known: pl.DataFrame, count: Times, length: Times) -> pl.DataFrame:
    """Number and length of idle intervals of each phase, by window."""
    window, phase = np.nonzero(count)
    return framed(
        {
            "window": taken(known["window"], window),
            "phase": taken(LABELS, phase),
            "kind": constant("kind", "idle", len(window)),
            "name": constant("name", "", len(window)),
            "count": count[window, phase],
            "total_ns": length[window, phase],
        }
    )


def _windows(
    survey: pl.DataFrame, iterations: pl.DataFrame, earlier_end: int | None
) -> pl.DataFrame:
    """Windows, each from the end of the last training work of one iteration to that of the next.

    The first window starts at its own range, or where the work ends that was launched before it.
    A window without any launch is unknown; the next one then starts at the end of the host's
    range.
    """
    own = survey["training"].to_numpy() & ~survey["talks"].to_numpy() & ~is_null(survey["window"])
    ended = rows_of(survey[["window", "end"]], own)
    last = np.full(iterations.height, -NEVER)
    np.maximum.at(last, ended["window"].to_numpy(), ended["end"].to_numpy())
    reached = np.where(last > -NEVER, last, iterations["window_end"].to_numpy())
    reached = np.maximum.accumulate(reached)
    first = iterations["start"][0]
    if earlier_end is not None and first < earlier_end < reached[0]:
        first = earlier_end
    begin = np.append(first, reached[:-1])
    known = last > begin
    return framed(
        {
            "window": np.arange(len(last)),
            "window_start": known_if(pl.Series(begin), known),
            "window_end": known_if(pl.Series(reached), known),
        }
    )
