"""What is to be read of a table."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ColumnRequest:
    """Columns of a table, all of them there, and which rows."""

    integers: list[str]
    text: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    only: tuple[str, list[int]] | None = None  # an integer column, and its values in rows to keep
