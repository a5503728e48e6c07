"""Iterations for which the report lacks records of the device."""

from collections.abc import Iterator

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.measure.host import window_edges
from rankscope.model.arrays import codes, filled, is_null, of_process, rows_of
from rankscope.model.device_work import DeviceClock, DeviceWork
from rankscope.model.intervals import Flags, Times
from rankscope.model.reports import TIMES_UNSURE, RunWarning
from rankscope.model.schema import STREAM
from rankscope.util.numbers import NEVER
from rankscope.util.wording import agreeing, counted, percent

LACKING = 0.01
"""Share of the launches without a usable record, or of the time in which kernels of a stream
overlap, from which on an iteration is unknown."""

OVERLAP_NS = 1_000_000
"""A kernel that ends this long (ns) after the next one of its stream starts has a wrong time, or
that one has."""

UNSURE_NS = 20_000
"""A kernel that ends this long (ns) after the next one of its stream starts has an unsure time."""

COARSE_NS = 10_000
"""Times that are all multiples of this (ns) or more are too coarse: kernels follow by some µs."""

FEWEST_TIMES = 20
"""Kernels from which on their times tell how fine these are."""


class Records(Struct, frozen=True):
    """How many kernels of a rank have a record."""

    launched: int  # kernels launched in the iterations
    unusable: int  # those without a record, or with a wrong time
    unsure: int  # records of kernels whose times are not exact
    unlaunched: int  # records of kernels without a launch, which were not launched earlier
    kernels: int  # records of kernels
    lacking: pl.Series  # Boolean for each window: whether it is unknown
    clock: DeviceClock  # of the device


class RecordCount:
    """Counts the kernels of each window, chunk by chunk."""

    def __init__(self, iterations: pl.DataFrame, earlier_end: int | None) -> None:
        """Start empty.

        Args:
            iterations: ITERATIONS.
            earlier_end: of the work that was launched before the iterations, ns.
        """
        self._earlier_end = -NEVER if earlier_end is None else earlier_end
        self._edges = window_edges(iterations)
        self._launched, self._wrong, self._overlap = np.zeros((3, iterations.height), np.int64)
        self._kernels = self._unlaunched = self._unsure = 0

    def add(self, part: pl.DataFrame) -> None:
        """Add a chunk of what `attribute` returned."""
        kernels = (part["kind"] == "kernel").to_numpy()
        unlaunched, start = is_null(part["launch"]), part["start"].to_numpy()
        self._kernels += int(kernels.sum())
        self._unlaunched += int((kernels & unlaunched & (start >= self._earlier_end)).sum())
        placed = kernels & ~unlaunched & ~is_null(part["window"])
        windows, overlap = filled(part["window"], 0), overlaps(part)
        self._launched += np.bincount(windows[placed], minlength=len(self._launched))
        rough = coarse(part)
        self._unsure += int((kernels & ((overlap > 0) | rough)).sum())
        wrong = placed & ((overlap >= OVERLAP_NS) | (rough and _contradict(part)))
        np.add.at(self._wrong, windows[wrong], 1)
        np.add.at(self._overlap, windows[wrong], overlap[wrong])

    def of(self, work: DeviceWork, process: int) -> Records:
        """The result of a process, once all chunks have been added."""
        lost = of_process(work.unrecorded, process)["launch"].to_numpy()
        if not self._kernels:  # nothing of the device was recorded: another warning says so
            lost = lost[:0]
        window = np.searchsorted(self._edges, lost, side="right") - 1
        inside = window[(window >= 0) & (window < len(self._launched))]
        unrecorded = np.bincount(inside, minlength=len(self._launched))
        launched, missing = self._launched + unrecorded, self._wrong + unrecorded
        lacking = (missing > 0) & (missing >= LACKING * launched)
        lacking |= self._overlap > LACKING * np.diff(self._edges)
        lacking[1:] |= lacking[:-1]  # where the next window begins is then unknown, too
        return Records(
            int(launched.sum()),
            int(missing.sum()),
            self._unsure,
            self._unlaunched,
            self._kernels,
            pl.Series(lacking, dtype=pl.Boolean),
            work.moved.get(process, DeviceClock()),
        )


def overlaps(work: pl.DataFrame) -> Times:
    """How far (ns) each kernel that computes runs into the next one, as a stream allows of none.

    0 is below UNSURE_NS. Kernels of a graph may: its branches run beside each other. So may a
    kernel that waits for other ranks: the next one may be on the device already and wait for it
    (programmatic launches).

    Args:
        work: DEVICE_WORK in the order of the starts.
    """
    start, end = work["start"].to_numpy(), work["end"].to_numpy()
    by: Times = np.zeros(len(start), dtype=np.int64)
    queued: Flags = (work["kind"] == "kernel").to_numpy() & ~work["graph"].to_numpy()
    computes = queued & is_null(work["operation"])
    if not (computes & (end - start >= UNSURE_NS)).any():
        return by
    own = np.flatnonzero(queued)
    streams = codes(rows_of(work[["process", *STREAM]], queued))
    order = own[np.argsort(streams, kind="stable")]
    streams.sort()
    over = np.where(streams[1:] == streams[:-1], end[order[:-1]] - start[order[1:]], 0)
    by[order[:-1]] = np.where(computes[order[:-1]] & (over >= UNSURE_NS), over, 0)
    return by


def coarse(work: pl.DataFrame) -> bool:
    """Whether all times are multiples of a unit that is too long to tell what waits for what.

    Args:
        work: DEVICE_WORK in the order of the starts.
    """
    if np.count_nonzero((work["kind"] == "kernel").to_numpy()) < FEWEST_TIMES:
        return False
    times = np.concatenate((work["start"], work["end"])) - work["start"].item(0)
    few = times[:: len(times) // FEWEST_TIMES]  # of fine times, a few tell that they are
    return not any(0 < np.gcd.reduce(each) < COARSE_NS for each in (few, times))


def _contradict(work: pl.DataFrame) -> bool:
    """Whether coarse times contradict each other; a program that made them may be right.

    A kernel without a length, or two calls that a thread begins at once, are of rounded times.

    Args:
        work: DEVICE_WORK.
    """
    own = work.filter(kind="kernel")
    calls = own.filter(~pl.col("graph"), pl.col("launch").is_not_null())
    at_once = calls.select("launch_thread", "launch").is_duplicated()
    return bool(at_once.any() or (own["start"] == own["end"]).any())


def record_problems(rank: int, records: Records) -> Iterator[RunWarning]:
    """The warnings about the records of one rank."""
    if records.lacking.any():
        number = int(records.lacking.sum())
        yield RunWarning(
            "records-missing",
            f"{records.unusable:,} of {records.launched:,} launches of kernels "
            f"({percent(records.unusable / records.launched)}) have no device record, or one "
            f"without a possible time: {counted(number, 'iteration')} "
            f"{agreeing(number, 'is', 'are')} unknown",
            (rank,),
        )
    if records.unsure and records.unsure >= LACKING * records.kernels:
        yield RunWarning(
            TIMES_UNSURE,
            f"{percent(records.unsure / records.kernels)} of the kernels start while the one "
            "before them in their stream still runs, or have rounded times: their times are not "
            "exact, and gains are upper bounds",
            (rank,),
        )
    if records.clock != DeviceClock():
        yield RunWarning("device-clock-wrong", _wrong(records.clock), (rank,))
    if records.unlaunched and records.unlaunched >= LACKING * records.kernels:
        yield RunWarning(
            "launches-missing",
            f"{percent(records.unlaunched / records.kernels)} of the kernels have no launch "
            "record: their phases are unknown",
            (rank,),
        )


def _wrong(clock: DeviceClock) -> str:
    """What is wrong with a device's clock."""
    parts = []
    if clock.fast:
        speed, changes = ("fast", "grows") if clock.fast > 0 else ("slow", "shrinks")
        parts.append(
            f"its device's clock runs {percent(abs(clock.fast))} {speed}: the time from launch to "
            f"start on an idle device {changes} all the time; its device times are scaled"
        )
    if clock.early_ns < 0:
        parts.append(
            f"its device's clock is about {-clock.early_ns / 1e6:.1f} ms late: work starts that "
            "much after its launch, even on an idle device; its device times are moved by that"
        )
    if clock.early_ns > 0:
        parts.append(
            f"its device's clock is at least {clock.early_ns / 1e6:.1f} ms early: kernels start "
            "before they are launched; its device times are moved by that"
        )
    return "; ".join(parts)
