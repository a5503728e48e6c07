"""The progress of processes that read reports.

To follow it, name a folder in the environment variable FOLDER before reading starts. Each reading
process then writes its report and the bytes that it has read to a file there, a few times a second.
Without the variable nothing happens.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = "RANKSCOPE_METER"
"""Environment variable: the folder of the files."""

WRITTEN_S = 0.2
"""Time (s) between two writes of a process."""


@dataclass(slots=True)
class Reading:
    """The progress of a process with its report, and its listener."""

    listener: Callable[[Reading], None]
    written_s: float = WRITTEN_S  # between two calls of the listener
    report: str = ""
    count: int = 0  # bytes
    due: float = 0.0


def write(reading: Reading) -> None:
    """Write the progress to the folder of the environment, if there is one."""
    folder = os.environ.get(FOLDER)
    if not folder or not reading.report:
        return
    text = f"{reading.count} {reading.report}"
    try:
        Path(folder, str(os.getpid())).write_text(text, "utf-8", "surrogateescape")
    except OSError:
        reading.due = float("inf")  # the folder is gone, or the disk is full: nobody looks


of_process = Reading(write)
"""The meter of this process."""


def begin(report: Path) -> None:
    """Count from 0 for a report, which this process starts to read."""
    of_process.report, of_process.count, of_process.due = str(report), 0, 0.0
    _tell()


def add(count: int) -> None:
    """Count bytes that were read."""
    reach(of_process.count + count)


def reach(position: int) -> None:
    """Note that a report was read up to a byte; earlier ones change nothing."""
    of_process.count = max(of_process.count, position)
    if time.monotonic() >= of_process.due:
        _tell()


def read_so_far(folder: Path) -> dict[str, int]:
    """Report → bytes that were read of it, of the reports in progress."""
    counts: dict[str, int] = {}
    for entry in os.scandir(folder):
        count, _, report = Path(entry).read_text("utf-8", "surrogateescape").partition(" ")
        if report and count.isdecimal():
            counts[report] = int(count)
    return counts


def _tell() -> None:
    of_process.due = time.monotonic() + of_process.written_s
    of_process.listener(of_process)
