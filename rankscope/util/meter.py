"""How far the processes are that read reports, for whoever shows progress.

Whoever wants to know names a folder in the environment variable FOLDER before reading starts.
Each reading process then writes its report and the bytes that it has read to a file there, a few
times a second. Without the variable nothing happens.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = "RANKSCOPE_METER"
"""Environment variable: the folder of the files."""

WRITTEN_S = 0.2
"""Time (s) between two writes of a process."""


@dataclass(slots=True)
class _Reading:
    report: str = ""
    count: int = 0
    due: float = 0.0


_reading = _Reading()
"""The meter of this process."""


def begin(report: Path) -> None:
    """Count from 0 for a report, which this process starts to read."""
    _reading.report, _reading.count, _reading.due = str(report), 0, 0.0
    _write()


def add(count: int) -> None:
    """Count bytes that were read."""
    reach(_reading.count + count)


def reach(position: int) -> None:
    """Note that a report was read up to a byte; earlier ones change nothing."""
    _reading.count = max(_reading.count, position)
    if time.monotonic() >= _reading.due:
        _write()


def read_so_far(folder: Path) -> dict[str, int]:
    """Report → bytes that were read of it, of the reports in progress."""
    found: dict[str, int] = {}
    for entry in os.scandir(folder):
        count, _, report = Path(entry).read_text("utf-8", "surrogateescape").partition(" ")
        if report and count.isdecimal():
            found[report] = int(count)
    return found


def _write() -> None:
    _reading.due = time.monotonic() + WRITTEN_S
    folder = os.environ.get(FOLDER)
    if not folder or not _reading.report:
        return
    text = f"{_reading.count} {_reading.report}"
    try:
        Path(folder, str(os.getpid())).write_text(text, "utf-8", "surrogateescape")
    except OSError:
        _reading.due = float("inf")  # the folder is gone, or the disk is full: nobody looks
