"""Answers that fit an assistant: long lists are cut and counted, names cannot control anything."""

from __future__ import annotations

from typing import Any

from rankscope.output.documents.common import Document, plain
from rankscope.util.sanitize import sanitized

LONGEST_LINE = 4096
"""Most characters of a line of a text: no path is longer."""


def shortened(document: Any, most: int) -> Document:
    """A document as plain values, each of its lists and maps by rank cut to `most` elements.

    Args:
        document: one of `rankscope/output/documents`.
        most: elements that stay, the first ones.

    Returns:
        With `left_out` by key where something was cut: `ranks`, `verdict.iterations`,
        `reports[].causes` (the sum over all reports that are shown).
    """
    left_out: dict[str, int] = {}
    short: Document = _short(plain(document), "", most, left_out)
    return short | ({"left_out": left_out} if left_out else {})


def _short(value: Any, key: str, most: int, left_out: dict[str, int]) -> Any:
    if isinstance(value, str):
        return "\n".join(sanitized(line, LONGEST_LINE) for line in value.split("\n"))
    if isinstance(value, (list, tuple)):
        _count(key, len(value) - most, left_out)
        return [_short(each, f"{key}[]", most, left_out) for each in value[:most]]
    if isinstance(value, dict):
        kept = [*value.items()]
        if kept and all(name.isdecimal() for name in value):  # by rank
            _count(key, len(kept) - most, left_out)
            kept = kept[:most]
        return {
            name: _short(each, f"{key}.{name}" if key else name, most, left_out)
            for name, each in kept
        }
    return value


def _count(key: str, cut: int, left_out: dict[str, int]) -> None:
    if cut > 0:
        left_out[key] = left_out.get(key, 0) + cut
