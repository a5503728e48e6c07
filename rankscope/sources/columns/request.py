"""A request for columns and rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """Existing columns of a table, and the rows to read."""

    integers: list[str]
    text: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    only: tuple[str, list[int]] | None = None  # an integer column, and its values in rows to keep
