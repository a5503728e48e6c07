"""The picture of a fleet: hardware by runs, with its cost where a verdict names it."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rankscope.errors import UsageError
from rankscope.history.fleet.fleet import Fleet
from rankscope.output.fleet_map import FleetMap, fleet_map
from rankscope.output.palette import THEMES, Theme
from rankscope.output.plots.style import (
    BODY,
    HATCH,
    MARGIN,
    SMALL,
    Caption,
    beside,
    drawable,
    label_scale,
    new_sheet,
    styled,
    text_width,
)
from rankscope.util.wording import agreeing

ROW, COLUMN = 0.22, 0.2
"""Height and width of a cell in inches, within the limits of the whole map."""

LEAST_WIDTH, MOST_WIDTH = 5.0, 8.5
"""Limits of the width of the cells together, in inches."""

UNDER, BESIDE = 0.62, 1.35
"""Room for the dates below the cells, and for counts beside them, in inches."""

SCALE = 1.2
"""Least height of the scale of colours, in inches."""

MOST_DATES = 8
"""Most runs whose date is written below them."""

SEPARATED = 64
"""Most runs for which cells have edges."""


def draw(fleet: Fleet, theme_name: str = "light") -> Figure:
    """Hardware by runs: gray where a piece was compared, coloured by its cost where it is named.

    Raises:
        UsageError: no run has compared any hardware.
    """
    theme = THEMES[theme_name]
    grid = fleet_map(fleet)
    if not grid.rows:
        raise UsageError(
            "--plot: no run has compared any hardware",
            hint="rankscope imbalance --db RUN.duckdb says why a run is inconclusive",
        )
    with styled(theme_name):
        return _drawn(fleet, grid, theme)


def _drawn(fleet: Fleet, grid: FleetMap, theme: Theme) -> Figure:
    """The map with its labels, and beside it the scale of costs, if anything is named."""
    labels = [drawable(each.label) for each in grid.rows]
    sizes = [
        text_width(text, SMALL + 0.5, "bold" if row.suspect else "normal")
        for text, row in zip(labels, grid.rows, strict=True)
    ]
    left = MARGIN + max(sizes) + 0.12
    rows, columns = grid.present.shape
    width = min(max(columns * COLUMN, LEAST_WIDTH), MOST_WIDTH)
    height = rows * ROW
    scale = max(height, SCALE)
    body = max(height, SCALE - 0.5) if grid.guilty.any() else height
    scale_room = 0.95 if grid.guilty.any() else 0.0
    sheet = new_sheet(
        left + width + BESIDE + scale_room,
        body + UNDER + 0.15,
        Caption(
            drawable(fleet.sentence, 600),
            "Cost of each piece of hardware in the runs whose verdict names it",
            _footer(fleet, grid),
        ),
        theme,
    )
    floor = UNDER + body - height
    axes = sheet.axes(left, floor, width, height)
    mesh = _cells(axes, grid, theme)
    _ticks(axes, grid, labels, theme)
    _counts(axes, grid)
    _legend(axes, grid, theme)
    if mesh is not None:
        bar = sheet.axes(left + width + BESIDE, UNDER + body - scale, 0.14, scale)
        _scale(sheet.figure, bar, mesh, grid)
    return sheet.figure


def _footer(fleet: Fleet, grid: FleetMap) -> str:
    parts = [f"Next: {fleet.next}", *(f"{each} left out" for each in grid.left_out)]
    return drawable(" · ".join(parts), 900)


def _cells(axes: Axes, grid: FleetMap, theme: Theme) -> QuadMesh | None:
    """Draw the cells, and return those with a cost, for the scale; None without any."""
    rows, columns = grid.present.shape
    across, along = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    edge, line = (theme.page, 0.8) if columns <= SEPARATED else ("none", 0.0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for column in np.flatnonzero(grid.blind):
        axes.axvspan(
            column - 0.5, column + 0.5, facecolor="none", edgecolor=theme.muted, hatch=HATCH,
            linewidth=0, gid="not compared",
        )  # fmt: skip
    if grid.present.any():
        compared = np.ma.masked_where(~grid.present, grid.present.astype(float))
        gray = ListedColormap([theme.faint])
        axes.pcolormesh(across, along, compared, cmap=gray, edgecolors=edge, linewidth=line)
    if not grid.guilty.any():
        return None
    cost = np.ma.masked_where(~grid.guilty, np.maximum(grid.cost_ns, 1) / grid.unit[1])
    low, high = float(cost.min()), float(cost.max())
    return axes.pcolormesh(
        across,
        along,
        cost,
        cmap=LinearSegmentedColormap.from_list("cost", theme.excess[len(theme.excess) // 2 + 1 :]),
        norm=LogNorm(max(min(low, high / 3), high / 1000), high),
        edgecolors=edge,
        linewidth=line,
    )


def _ticks(axes: Axes, grid: FleetMap, labels: list[str], theme: Theme) -> None:
    rows, columns = grid.present.shape
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_yticks(range(rows), labels=labels)
    for text, row in zip(axes.get_yticklabels(), grid.rows, strict=True):
        if row.suspect:
            text.set(weight="bold", color=theme.ink)
    step = max(1, -(-columns // MOST_DATES))
    places = [*range(0, columns, step)]
    names = [grid.runs[place].start.replace(" ", "\n") or f"run {place + 1}" for place in places]
    axes.set_xticks(places, labels=names)
    axes.tick_params(axis="both", length=2, pad=3)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("runs in the order of their start (UTC)")


def _counts(axes: Axes, grid: FleetMap) -> None:
    """Write how often each piece of hardware was named beside its row."""
    for place, row in enumerate(grid.rows):
        beside(
            axes, row.counts, (1, place), (5, 0), xycoords=("axes fraction", "data"),
            size=SMALL + 0.5, weight="bold" if row.suspect else "normal",
        )  # fmt: skip
    beside(axes, "named in runs", (1, 1), (5, 4), xycoords="axes fraction", va="bottom")


def _legend(axes: Axes, grid: FleetMap, theme: Theme) -> None:
    handles = [
        Patch(facecolor=theme.faint, label="compared, not named"),
        Patch(facecolor=theme.page, edgecolor=theme.faint, label="not part of the run"),
    ]
    if grid.guilty.any():
        handles.insert(0, Patch(facecolor=theme.excess[-2], label="named as slow"))
    blind = int(grid.blind.sum())
    if blind:
        handles.append(
            Patch(
                facecolor=theme.page, edgecolor=theme.muted, hatch=HATCH, linewidth=0,
                label=f"{agreeing(blind, 'run')} without a comparison",
            )
        )  # fmt: skip
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=4,
        handlelength=1.2, columnspacing=1.2, borderpad=0, fontsize=SMALL,
    )  # fmt: skip


def _scale(figure: Figure, axes: Axes, mesh: QuadMesh, grid: FleetMap) -> None:
    bar = figure.colorbar(mesh, cax=axes)
    label_scale(bar, _ticks_of(*mesh.get_clim()), lambda value, _: f"{value:.2g}")
    bar.set_label(f"cost ({grid.unit[0]})", labelpad=6, size=BODY - 0.5)


def _ticks_of(low: float, high: float) -> list[float]:
    """Round numbers in a range, or its ends where it holds fewer than two of them."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    inside = [step for step in steps if low <= step <= high]
    return inside if len(inside) > 1 else [low, high]
