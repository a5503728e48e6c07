"""Numbers and paths as readers see them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rankscope.model.metrics import Unit
from rankscope.util.sanitize import sanitized

UNKNOWN = "–"
"""The text for an unknown number."""


def milliseconds(nanoseconds: float | None) -> str:
    """A time in ms without its unit: `12.3`, below 10 ms `1.23`."""
    if nanoseconds is None:
        return UNKNOWN
    value = nanoseconds / 1e6
    return f"{value:,.{2 if abs(value) < 9.995 else 1}f}"


SHOWN_NS = 5_000
"""Half of the last digit of `milliseconds`: smaller errors are invisible in it."""


def beyond_error(nanoseconds: float | None, error: int | None) -> str:
    """A time in ms as `12.3`, or `< 0.70` if it is below its error, as it may then be 0.

    Args:
        nanoseconds: the time.
        error: its error in ns; None: exact.
    """
    if nanoseconds is None or error is None or nanoseconds >= error or error < SHOWN_NS:
        return milliseconds(nanoseconds)
    return f"< {milliseconds(error)}"


def shown_unit(unit: Unit) -> str:
    """The unit of what `in_unit` writes: ms of times, nothing of bytes, which carry their own."""
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


def percent(share: float | None) -> str:
    """A fraction of 1 as `12 %`, below 10 % as `1.2 %`."""
    return UNKNOWN if share is None else f"{share * 100:.{1 if abs(share) < 0.0995 else 0}f} %"


def seconds(nanoseconds: int) -> str:
    """A moment on the axis of a report as the GUI shows it: `10.6872 s`."""
    return f"{nanoseconds / 1e9:.4f} s"


def size(count: int) -> str:
    """A number of bytes as `2.1 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: `1 report`, `1,024 reports`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def ranks_text(ranks: Iterable[int], most: int | None = None) -> str:
    """`rank 3`, `ranks 0-3, 7`; of more than `most` ranges the rest is left out: `…`.

    An empty set is `no rank`.
    """
    numbers = sorted(ranks)
    if not numbers:
        return "no rank"
    parts = span(numbers).split(", ")
    shown = parts if most is None or len(parts) <= most else [*parts[:most], "…"]
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {', '.join(shown)}"


def span(numbers: tuple[int, ...] | list[int]) -> str:
    """Ascending numbers as `0-3, 7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def short_path(path: Path) -> str:
    """A path relative to the working folder if it lies inside, else the absolute path."""
    absolute = str(path)
    relative = os.path.relpath(absolute)
    return sanitized(absolute if relative.startswith("..") else relative, 500)
