"""The chart of hardware and runs on the page of a fleet, as inline SVG.

It needs no script and no library; its colours are variables of the page's style. Names from
reports are escaped text.
"""

from html import escape

import numpy as np

from rankscope.history.fleet.sentences import cost_text
from rankscope.output.fleet_map import FleetMap
from rankscope.output.palette import in_both_themes

LEVELS = 3
"""Number of colours of costs."""

ROW, LETTER, BOLD = 22, 7.2, 8.2
"""Height of a row, and widths of a letter beside it, in pixels."""

LEAST_CELL, MOST_CELL, USUAL_WIDTH = 8, 26, 900
"""Limits of the width of a cell, and the width of all cells that is aimed at, in pixels."""

ABOVE, BELOW, BESIDE, GAP = 8, 44, 130, 8
"""Room around the cells, in pixels."""

DATE = 84
"""Least distance of two dates, in pixels."""


def style() -> str:
    """The colours of costs as CSS variables, in both themes."""
    return in_both_themes(
        lambda theme: " ".join(
            f"--cost-{level}: {color};" for level, color in enumerate(theme.excess[-LEVELS:])
        )
    )


def legend(grid: FleetMap) -> list[tuple[str, str]]:
    """Class of a cell → its meaning."""
    items = []
    if grid.guilty.any():
        for level, limit in enumerate(_limits(grid)):
            text = f"up to {cost_text(int(limit))}"
            items.append((f"cost-{level}", text if level else f"named, cost {text}"))
    items.append(("there", "compared, not named"))
    if grid.blind.any():
        items.append(("blind", "run without a comparison"))
    return items


def chart(grid: FleetMap, label: str) -> str:
    """The SVG of a map; `label` describes it for screen readers."""
    if not grid.rows:
        return "<p>No run has compared any hardware.</p>"
    rows, columns = grid.present.shape
    left = GAP + max(len(row.label) * (BOLD if row.suspect else LETTER) for row in grid.rows)
    cell = min(max(USUAL_WIDTH // columns, LEAST_CELL), MOST_CELL)
    width, height = left + columns * cell + BESIDE, ABOVE + rows * ROW + BELOW
    parts = [
        f'<svg class="fleet" role="img" aria-label="{escape(label)}" width="{width:.0f}" '
        f'height="{height}" viewBox="0 0 {width:.0f} {height}">'
    ]
    for column in np.flatnonzero(grid.blind):
        parts.append(
            f'<rect class="blind" x="{left + column * cell:.1f}" y="{ABOVE}" width="{cell - 1}" '
            f'height="{rows * ROW - 1}"><title>{escape(_run(grid, int(column)))}: nobody was '
            "compared</title></rect>"
        )
    level = _levels(grid)
    for row, each in enumerate(grid.rows):
        top = ABOVE + row * ROW
        mark = ' class="suspect"' if each.suspect else ""
        parts.append(
            f'<text{mark} x="{left - GAP:.1f}" y="{top + 15}" text-anchor="end">'
            f"{escape(each.label)}<title>{escape(each.name)}</title></text>"
        )
        compared = np.flatnonzero(grid.present[row] & ~grid.guilty[row])
        path = "".join(
            f"M{left + column * cell:.1f} {top}h{cell - 1}v{ROW - 1}h-{cell - 1}z"
            for column in compared
        )
        if path:
            parts.append(f'<path class="there" d="{path}"/>')
        for column in np.flatnonzero(grid.guilty[row]):
            cost = cost_text(int(grid.cost_ns[row, column]))
            text = f"{each.name}, {_run(grid, int(column))}: {cost}"
            parts.append(
                f'<rect class="cost-{level[row, column]}" x="{left + column * cell:.1f}" y="{top}" '
                f'width="{cell - 1}" height="{ROW - 1}"><title>{escape(text)}</title></rect>'
            )
        parts.append(
            f'<text{mark} x="{left + columns * cell + GAP:.1f}" y="{top + 15}">{each.counts}</text>'
        )
    return "\n".join([*parts, *_dates(grid, left, cell, ABOVE + rows * ROW), "</svg>"])


def _dates(grid: FleetMap, left: float, cell: int, top: int) -> list[str]:
    """Dates below the cells, as many as there is room for."""
    step = max(1, -(-DATE // cell))
    lines = []
    for column in range(0, len(grid.runs), step):
        day, _, hour = (grid.runs[column].start or f"run {column + 1}").partition(" ")
        middle = left + (column + 0.5) * cell
        lines.append(
            f'<text class="date" x="{middle:.1f}" y="{top + 16}" text-anchor="middle">{day}</text>'
            f'<text class="date" x="{middle:.1f}" y="{top + 32}" text-anchor="middle">{hour}</text>'
        )
    return lines


def _run(grid: FleetMap, column: int) -> str:
    run = grid.runs[column]
    return f"{run.start} {run.db}".strip()


def _limits(grid: FleetMap) -> list[float]:
    """The largest cost of each level; levels are equal on a logarithmic scale."""
    cost = np.maximum(grid.cost_ns[grid.guilty], 1).astype(float)
    levels = LEVELS if cost.max() > cost.min() else 1
    return [float(each) for each in np.geomspace(cost.min(), cost.max(), levels + 1)[1:]]


def _levels(grid: FleetMap) -> np.ndarray:
    """The level of each cell."""
    if not grid.guilty.any():
        return np.zeros(grid.guilty.shape, dtype=int)
    inner = np.array(_limits(grid)[:-1])
    return np.asarray(np.searchsorted(inner, grid.cost_ns.astype(float)))
