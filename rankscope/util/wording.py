"""Numbers in sentences: with their nouns in the singular or the plural, ranges, percentages."""

from __future__ import annotations

from collections.abc import Iterable

UNKNOWN = "–"
"""The text for an unknown number."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: `1 report`, `1,024 reports`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def span(numbers: tuple[int, ...] | list[int]) -> str:
    """Ascending numbers as `0-3, 7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


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


def percent(share: float | None) -> str:
    """A fraction of 1 as `12 %`, below 10 % as `1.2 %`."""
    return UNKNOWN if share is None else f"{share * 100:.{1 if abs(share) < 0.0995 else 0}f} %"
