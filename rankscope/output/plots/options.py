"""What of an analysis to draw, and how."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """What to draw; a kind uses what concerns it.

    `ranks` are those to show whatever the number of ranks (the picks), each with its label.
    """

    metric: str | None = None
    iteration: int | None = None
    ranks: tuple[tuple[int, str], ...] = ()
    theme: str = "light"
