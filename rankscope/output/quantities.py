"""Numbers and paths as text for readers."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rankscope.model.metrics import Unit
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import UNKNOWN, duration, milliseconds, size

SHOWN_NS = 5_000
"""Half of the last digit of `milliseconds`: smaller errors are invisible in it."""


def beyond_error(
    nanoseconds: float | None,
    error: int | None,
    shown: Callable[[float | None], str] = milliseconds,
) -> str:
    """A time in ms as `12.3`, or `< 0.70` if it is below its error, as it may then be 0.

    Args:
        error: its error in ns; None: exact.
    """
    if nanoseconds is None or error is None or nanoseconds >= error or error < SHOWN_NS:
        return shown(nanoseconds)
    return f"< {shown(error)}"


def total(nanoseconds: float | None) -> str:
    """A sum of times with its unit: `12.3 ms`, from one second on `219.9 s`."""
    return UNKNOWN if nanoseconds is None else duration(round(nanoseconds))


def shown_unit(unit: Unit) -> str:
    """The unit of the values that `in_unit` writes: `ms` of times; bytes carry their own unit."""
    return {Unit.NS: "ms", Unit.BYTES: "size"}.get(unit, unit.value)


def in_unit(value: float | None, unit: Unit) -> str:
    """A metric's value as text: `12.3` (ms) of ns, `1,234` of a count, `2.1 MB` of bytes."""
    if value is None or unit is Unit.NS:
        return milliseconds(value)
    if unit is Unit.BYTES:
        return size(round(value))
    if unit is Unit.RATIO:
        return f"{value:.3g}"
    return f"{value:,.{0 if float(value).is_integer() else 1}f}"


def with_unit(value: float | None, unit: Unit) -> str:
    """A metric's value and its unit: `12.3 ms`, `1,234` of a count, `2.1 MB`, `1,410 MHz`."""
    suffix = {Unit.NS: " ms", Unit.MHZ: " MHz"}.get(unit, "")
    return in_unit(value, unit) + suffix


def seconds(nanoseconds: int) -> str:
    """A moment on the axis of a report as the GUI shows it: `10.6872 s`."""
    return f"{round(nanoseconds / 1e9, 4) + 0.0:.4f} s"  # never -0.0000


def short_path(path: Path) -> str:
    """A path relative to the working folder if it lies inside, else the absolute path."""
    absolute = str(path)
    relative = os.path.relpath(absolute)
    return sanitized(absolute if relative.startswith("..") else relative, 500)


def moment(ns: int | None) -> str | None:
    """A time of UTC as `2026-11-21T08:16:58Z`."""
    return None if ns is None else f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%SZ}"
