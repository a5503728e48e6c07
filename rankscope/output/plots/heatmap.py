"""The heat map: excess of each rank over its role's median, per iteration."""

import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection, QuadMesh
from matplotlib.colors import AsinhNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from rankscope.compare.comparison import Comparison
from rankscope.judge.levels import LEAST_GAIN, MUCH
from rankscope.judge.phrases import who
from rankscope.match.records import ALL
from rankscope.model.kinds import VerdictKind
from rankscope.model.metrics import METRICS, Metric, Unit
from rankscope.output.palette import THEMES, Theme
from rankscope.output.plots import PlotOptions
from rankscope.output.plots.captions import averaged, footer, median_name, subtitle, verdict_title
from rankscope.output.plots.grid import Grid, arrange, excesses, metric_of, worst_cells
from rankscope.output.plots.rows import (
    RowGroup,
    bracket,
    bracket_width,
    heading,
    rank_ticks,
    row_groups,
)
from rankscope.output.plots.style import (
    BODY,
    HATCH,
    MARGIN,
    SMALL,
    Caption,
    excess_colors,
    new_sheet,
    text_width,
    with_sign,
)
from rankscope.output.quantities import shown_unit, with_unit
from rankscope.util.wording import agreeing, counted, percent, size, span

ROW, COLUMN = 0.3, 0.26
"""Height and width of a cell in inches, within the limits of the whole map."""

LEAST_HEIGHT, MOST_HEIGHT = 1.5, 6.0
LEAST_WIDTH, MOST_WIDTH = 6.2, 8.5
"""Limits of the size of the whole map, in inches."""

TICKS, BAR = 0.42, 0.55
"""Width of the rank numbers and of the bars of flags, in inches."""

KEY_LINE = 0.2
"""Height of a line of the key to the letters, in inches."""

DOTTED = 0.07
"""Least size of a cell, in inches, in which a dot is visible."""

FLAGGED = "flagged: slow there beyond noise (as are the letters)"
"""Meaning of the dots."""

NOT_SHOWN = (VerdictKind.COMMUNICATION, VerdictKind.INCONCLUSIVE)
"""Classes of verdicts that no map of work shows."""

VECTOR_CELLS = 20_000
"""Most cells that are drawn as shapes in SVG and PDF files; a larger map is an image in them."""


def draw(comparison: Comparison, options: PlotOptions) -> Figure:
    """The heat map of `options.metric` (default: work, or the first known default).

    Colour is the excess over the role's median in the same iteration, in the metric's unit (a
    time in ms). A dot marks a flagged cell, a letter one of the worst flagged cells (of all, where
    none is flagged), and hatching an unknown value.
    """
    metric = METRICS[metric_of(comparison, options.metric)]
    frame = excesses(comparison, metric.name)
    if options.only:
        frame = frame.filter(pl.col("rank").is_in(options.only))
    grid = arrange(frame, () if options.only else comparison.missing_ranks)
    theme = THEMES[options.theme]
    worst = worst_cells(frame.filter("compared"))
    rows, columns = grid.values.shape
    height = min(max(rows * ROW, LEAST_HEIGHT), MOST_HEIGHT)
    width = min(max(columns * COLUMN, LEAST_WIDTH), MOST_WIDTH)
    cell = (width / columns, height / rows)
    sides = _sides(grid)
    left = MARGIN + sum(map(bracket_width, sides.values())) + TICKS
    key = _key(worst, metric)
    under = 0.5 + KEY_LINE * -(-len(key) // 2)
    title = _title(comparison, frame.filter("compared"), metric)
    sheet = new_sheet(
        left + width + BAR + 1.1,
        height + under,
        Caption(
            title,
            subtitle(comparison, _shown(grid, metric, frame["rank"].n_unique() == 1), title),
            footer(comparison, *_notes(grid, worst, comparison, metric)),
        ),
        theme,
    )
    axes = sheet.axes(left, under, width, height)
    mesh = _cells(axes, grid, metric.unit, theme)
    _ticks(axes, grid, cell[1])
    has_dots = _dots(axes, grid, cell, theme)
    has_clipped = _clipped(axes, grid, cell, theme)
    _letters(axes, grid, worst, cell, theme)
    place = MARGIN
    for name, groups in sides.items():
        beside = sheet.axes(place, under, bracket_width(groups), height)
        beside.set_ylim(axes.get_ylim())
        bracket(beside, name, groups, cell[1], theme)
        place += bracket_width(groups)
    if grid.flagged.any():
        bars = sheet.axes(left + width + 0.08, under, BAR - 0.08, height)
        bars.set_ylim(axes.get_ylim())
        _flag_bars(bars, grid, theme)
    scale = sheet.axes(left + width + BAR + 0.2, under, 0.14, height)
    _scale(sheet.figure, scale, mesh, metric.unit, grid)
    _legend(axes, has_dots, has_clipped, grid, metric.unit, theme)
    column = max((text_width(text, BODY) for text in key), default=0.0) + 0.2
    for line, text in enumerate(key):
        sheet.text(left + (line % 2) * column, under - 0.56 - KEY_LINE * (line // 2), text)
    return sheet.figure


def _sides(grid: Grid) -> dict[str, list[RowGroup]]:
    """Groups to bracket beside the rows: roles if there are several, hosts if they are known."""
    names_by_heading = {"role": grid.roles, "host": grid.hosts}
    groups_by_heading = {
        heading: row_groups(names[:: grid.per_row]) for heading, names in names_by_heading.items()
    }
    return {
        heading: groups
        for heading, groups in groups_by_heading.items()
        if groups and {each.name for each in groups} != {ALL}
    }


def _shown(grid: Grid, metric: Metric, alone: bool) -> str:
    """The meaning of the colours."""
    if alone:
        return f"{metric.label}: excess over the rank's own median, for want of other ranks"
    is_one_role = len({*grid.roles} - {None}) < 2
    than = "median rank" if is_one_role else "median of the role"
    return f"{metric.label}: excess over the {than} in the same iteration"


def _title(comparison: Comparison, frame: pl.DataFrame, metric: Metric) -> str:
    """The verdict if the picture shows it, else the ranks with the most of the metric."""
    verdict = comparison.verdict
    label = f"{metric.label[:1].upper()}{metric.label[1:]}"
    if frame["rank"].n_unique() == 1:
        rows = frame.drop_nulls("excess").sort("excess", descending=True)
        rank, iteration, excess = rows.select("rank", "iteration", "excess").row(0)
        return (
            f"Rank {rank} alone: its {metric.label} is "
            f"{'longest' if metric.is_time else 'largest'} in iteration {iteration}, "
            f"{with_unit(excess, metric.unit)} above its median"
        )
    judged = ("work", comparison.outliers.metric, verdict.cause)
    if verdict.kind not in NOT_SHOWN and metric.name in judged:
        return verdict_title(comparison)
    means = frame.group_by("rank").agg(pl.col("excess", "scale").mean()).drop_nulls()
    excess = float(means["excess"].to_numpy().max())
    than = median_name(comparison)
    if excess <= 0:
        return f"{label}: no rank exceeds {than} {averaged(comparison)}"
    most = tuple(means.filter(pl.col("excess") == excess)["rank"].sort())
    part = excess / float(np.median(means["scale"].to_numpy()))
    whole, share = "iteration" if metric.is_time else "median", percent(part)
    if part < LEAST_GAIN:
        return (
            f"{label}: no rank exceeds {than} by {percent(LEAST_GAIN)} of the {whole} "
            f"{averaged(comparison)}, at most by {with_unit(excess, metric.unit)}"
        )
    return (
        f"{who(most, {}, ())} {agreeing(len(most), 'has', 'have')} the most {metric.label}: "
        f"{averaged(comparison)} {with_unit(excess, metric.unit)} more than {than}, {share} of the "
        f"{whole}"
    )


def _notes(grid: Grid, worst: pl.DataFrame, comparison: Comparison, metric: Metric) -> list[str]:
    notes = []
    if grid.per_row > 1 or grid.per_column > 1:
        notes.append(
            f"a cell stands for {counted(grid.per_row, 'rank')} and "
            f"{counted(grid.per_column, 'iteration')}, and shows the value furthest from the median"
        )
    if worst.is_empty() and comparison.tables.ranks.height > 1:
        whole = "an iteration" if metric.is_time else "the median"
        notes.append(f"no excess reaches {percent(MUCH)} of {whole}")
    if partial := sorted({*grid.iterations} - {*comparison.selection.numbers}):
        notes.append(f"not complete on every rank, so not compared: {span(partial)}")
    unseen = {*comparison.missing_ranks} - {*grid.ranks}
    if unseen:
        notes.append(f"{counted(len(unseen), 'missing rank')} without a row")
    return notes


def _cells(axes: Axes, grid: Grid, unit: Unit, theme: Theme) -> QuadMesh:
    axes.patch.set(facecolor=theme.page, hatch=HATCH, edgecolor=theme.muted, linewidth=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    rows, columns = grid.values.shape
    divisor = 1e6 if unit is Unit.NS else 1.0
    limit = grid.scale.limit / divisor
    separated = max(rows, columns) <= 64
    return axes.pcolormesh(
        np.arange(columns + 1) - 0.5,
        np.arange(rows + 1) - 0.5,
        np.ma.masked_invalid(grid.values / divisor),
        cmap=excess_colors(theme),
        norm=AsinhNorm(grid.scale.linear / divisor, -limit, limit),
        rasterized=rows * columns > VECTOR_CELLS,
        edgecolors=theme.page if separated else "none",
        linewidth=0.8 if separated else 0,
    )


def _ticks(axes: Axes, grid: Grid, row_height: float) -> None:
    rows, columns = grid.values.shape
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlim(-0.5, columns - 0.5)
    rank_ticks(axes, [str(rank) for rank in grid.ranks[:: grid.per_row]], row_height)
    numbers = grid.iterations[:: grid.per_column]
    places = [int(place) for place in MaxNLocator(14, integer=True).tick_values(0, columns - 1)]
    if grid.per_column == 1 and numbers[-1] - numbers[0] == columns - 1:  # consecutive numbers
        round_ones = MaxNLocator(14, integer=True).tick_values(numbers[0], numbers[-1])
        places = [int(number) - numbers[0] for number in round_ones]
    places = [place for place in places if 0 <= place < columns]
    axes.set_xticks(places, labels=[str(numbers[place]) for place in places])
    axes.tick_params(length=2, pad=2)
    axes.set_xlabel("iteration")
    heading(axes, "rank", -4)


def _dots(axes: Axes, grid: Grid, cell: tuple[float, float], theme: Theme) -> bool:
    """Mark the flagged cells with dots; False if there are none, or if cells are too small."""
    if min(cell) < DOTTED or not grid.flagged.any():
        return False
    row, column = np.nonzero(grid.flagged)
    size = min(3.2, 72 * min(cell) * 0.25)
    axes.scatter(
        column, row, s=size**2, color=theme.page, edgecolors=theme.ink, linewidths=0.6, gid="flags"
    )
    return True


def _clipped(axes: Axes, grid: Grid, cell: tuple[float, float], theme: Theme) -> bool:
    """Mark values beyond the scale with triangles; False if there are none."""
    size = min(4.0, max(2.0, 72 * min(cell) * 0.3))
    has_clipped = False
    for marker, beyond in (
        ("^", grid.values > grid.scale.limit),
        ("v", grid.values < -grid.scale.limit),
    ):
        row, column = np.nonzero(beyond)
        has_clipped |= bool(len(row))
        axes.scatter(
            column, row - 0.25, s=size**2, marker=marker, color=theme.page, edgecolors=theme.ink,
            linewidths=0.5, gid="clipped",
        )  # fmt: skip
    return has_clipped


def _letters(
    axes: Axes, grid: Grid, worst: pl.DataFrame, cell: tuple[float, float], theme: Theme
) -> None:
    """Frame the worst cells, and write their letters on them."""
    large = min(cell) >= 1.4 * BODY / 72
    for letter, (rank, iteration) in zip(
        "ABCD", worst.select("rank", "iteration").iter_rows(), strict=False
    ):
        row = grid.ranks.index(rank) // grid.per_row
        column = grid.iterations.index(iteration) // grid.per_column
        if large:
            corner = (column - 0.5, row - 0.5)
            frame = Rectangle(corner, 1, 1, fill=False, edgecolor=theme.ink, clip_on=False)
            frame.set_linewidth(1.2)
            axes.add_patch(frame)
        axes.annotate(
            letter, (column, row), ha="center", va="center", size=BODY if large else SMALL,
            weight="bold", color=theme.page,
            bbox={"boxstyle": "circle,pad=0.15", "facecolor": theme.ink, "edgecolor": theme.page,
                  "linewidth": 0.8},
        )  # fmt: skip


def _key(worst: pl.DataFrame, metric: Metric) -> list[str]:
    """The meaning of each letter, a line each; the phase in which a time was lost."""
    return [
        f"{letter}  rank {row['rank']}, iteration {row['iteration']}: "
        f"+{with_unit(row['excess'], metric.unit)}"
        + (f", in {row['cause']}" if row["cause"] and metric.is_time else "")
        for letter, row in zip("ABCD", worst.iter_rows(named=True), strict=False)
    ]


def _flag_bars(axes: Axes, grid: Grid, theme: Theme) -> None:
    """Draw bars of how often each row is flagged; one artist, because one per bar is slow."""
    share = grid.flagged.mean(axis=1)
    low, high = (np.arange(len(share)) + edge for edge in (-0.4, 0.4))
    corners = ((low, 0 * share), (low, share), (high, share), (high, 0 * share))
    bars = np.stack([np.column_stack((across, along)) for along, across in corners], axis=1)
    axes.add_collection(
        PolyCollection(list(bars), facecolor=theme.muted, linewidth=0), autolim=False
    )
    axes.set_xlim(0, float(share.max()))
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    axes.set_xlabel(f"flagged\n(up to {percent(share.max())})", size=SMALL)


def _tick(value: float, unit: Unit) -> str:
    """A label of the colour bar; sizes carry their unit."""
    if unit is not Unit.BYTES or not value:
        return with_sign(value)
    return f"{'+' if value > 0 else '−'}{size(round(abs(value)))}"


def _scale(figure: Figure, axes: Axes, mesh: QuadMesh, unit: Unit, grid: Grid) -> None:
    beyond = bool((np.abs(grid.values) > grid.scale.limit).any())
    bar = figure.colorbar(mesh, cax=axes, extend="both" if beyond else "neither", extendfrac=0.04)
    bar.outline.set_visible(False)
    bar.locator = FixedLocator(grid.scale.ticks(1e6 if unit is Unit.NS else 1.0))
    bar.formatter = FuncFormatter(lambda value, _: _tick(value, unit))
    bar.minorticks_off()
    bar.update_ticks()
    bar.set_label("excess" if unit is Unit.BYTES else f"excess ({shown_unit(unit)})", labelpad=6)


def _legend(
    axes: Axes, has_dots: bool, has_clipped: bool, grid: Grid, unit: Unit, theme: Theme
) -> None:
    """The meaning of marks and hatching, above the right end of the cells."""
    handles: list[Artist] = []
    if has_dots:
        dot = Line2D([], [], linestyle="", marker="o", markersize=4, label=FLAGGED)
        dot.set(markerfacecolor=theme.page, markeredgecolor=theme.ink)
        handles.append(dot)
    if has_clipped:
        end = with_unit(grid.scale.limit, unit)
        mark = Line2D([], [], linestyle="", marker="^", markersize=5, label=f"beyond ±{end}")
        mark.set(markerfacecolor=theme.page, markeredgecolor=theme.ink)
        handles.append(mark)
    if np.isnan(grid.values).any():
        hatched = Patch(label="unknown", hatch=HATCH, linewidth=0)
        hatched.set(facecolor=theme.page, edgecolor=theme.muted)
        handles.append(hatched)
    if handles:
        axes.legend(
            handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderpad=0,
            borderaxespad=0.3, handletextpad=0.4, columnspacing=1.2,
        )  # fmt: skip
