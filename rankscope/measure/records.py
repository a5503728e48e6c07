"""Iterations for which the report lacks records of the device."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.measure.host import window_edges
from rankscope.model.arrays import filled, is_null
from rankscope.model.device_work import DeviceClock, DeviceWork
from rankscope.model.intervals import Times
from rankscope.model.reports import RunWarning
from rankscope.util.numbers import NEVER
from rankscope.util.wording import agreeing, counted, percent

LACKING = 0.01
"""Share of the launches without a record from which on an iteration is unknown."""


@dataclass(frozen=True, slots=True)
class Records:
    """How many kernels of a rank have a record."""

    launched: int  # kernels launched in the iterations
    unrecorded: int  # those without a usable record
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
        self._launched: Times = np.zeros(iterations.height, dtype=np.int64)
        self._kernels = self._unlaunched = 0

    def add(self, part: pl.DataFrame) -> None:
        """Add a chunk of what `attribute` returned."""
        kernels = (part["kind"] == "kernel").to_numpy()
        unlaunched, start = is_null(part["launch"]), part["start"].to_numpy()
        self._kernels += int(kernels.sum())
        self._unlaunched += int((kernels & unlaunched & (start >= self._earlier_end)).sum())
        placed = kernels & ~unlaunched & ~is_null(part["window"])
        windows = filled(part["window"], 0)[placed]
        self._launched += np.bincount(windows, minlength=len(self._launched))

    def of(self, work: DeviceWork, process: int) -> Records:
        """The result of a process, once all chunks have been added."""
        lost = work.unrecorded.filter(pl.col("process") == process)["launch"].to_numpy()
        if not self._kernels:  # nothing of the device was recorded: another warning says so
            lost = lost[:0]
        window = np.searchsorted(self._edges, lost, side="right") - 1
        inside = window[(window >= 0) & (window < len(self._launched))]
        missing = np.bincount(inside, minlength=len(self._launched))
        launched = self._launched + missing
        lacking = (missing > 0) & (missing >= LACKING * launched)
        lacking[1:] |= lacking[:-1]  # where the next window begins is then unknown, too
        return Records(
            int(launched.sum()),
            int(missing.sum()),
            self._unlaunched,
            self._kernels,
            pl.Series(lacking, dtype=pl.Boolean),
            work.moved.get(process, DeviceClock()),
        )


def record_problems(rank: int, records: Records) -> Iterator[RunWarning]:
    """The warnings about the records of one rank."""
    if records.lacking.any():
        number = int(records.lacking.sum())
        yield RunWarning(
            "records-missing",
            f"{records.unrecorded:,} of {records.launched:,} launches of kernels "
            f"({percent(records.unrecorded / records.launched)}) have no device record, or one "
            f"without a possible time: {counted(number, 'iteration')} "
            f"{agreeing(number, 'is', 'are')} unknown",
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
            f"start {changes} all the time; its device times are scaled"
        )
    if clock.early_ns < 0:
        parts.append(
            f"its device's clock is about {-clock.early_ns / 1e6:.1f} ms late: calls that wait for "
            "the device return before its work ends; its device times are moved by that"
        )
    if clock.early_ns > 0:
        parts.append(
            f"its device's clock is at least {clock.early_ns / 1e6:.1f} ms early: kernels start "
            "before they are launched; its device times are moved by that"
        )
    return "; ".join(parts)
