"""Options of a picture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlotOptions:
    """What a picture shows, and its theme. Each kind of plot uses the fields that concern it.

    Attributes:
        metric: the metric of a heat map; None: `work`, or the first known default.
        iteration: the number of the iteration of a timeline, or of the one to explain.
        ranks: ranks that are shown in any case, each with its label (the picks).
        theme: `light` or `dark`.
        only: the ranks to show, and no others except those that arrive last; empty: all.
    """

    metric: str | None = None
    iteration: int | None = None
    ranks: tuple[tuple[int, str], ...] = ()
    theme: str = "light"
    only: tuple[int, ...] = ()
