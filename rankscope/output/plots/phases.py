"""The phases of each rank's iteration as bars, with waiting and transfer beside the work."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from rankscope.compare.comparison import Comparison
from rankscope.judge.levels import LEAST_GAIN
from rankscope.output.palette import COMMUNICATION_PARTS, THEMES, Theme
from rankscope.output.phase_shares import PhaseShares, phase_shares
from rankscope.output.plots import PlotOptions
from rankscope.output.plots.captions import footer, on_average, subtitle
from rankscope.output.plots.rows import (
    LABELS,
    MOST_ROWS,
    Row,
    of_all_ranks,
    row_labels,
    selected_rows,
    spaced,
)
from rankscope.output.plots.style import (
    SMALL,
    Caption,
    beside,
    new_sheet,
    part_look,
    parts_legend,
    signed_ms,
)
from rankscope.output.quantities import SHOWN_NS
from rankscope.util.wording import milliseconds

WIDTH, PANELS, BETWEEN = 10.0, 7.2, 0.55
"""Widths in inches: of the sheet, of both panels together, and between the panels."""

ROW, LEAST_HEIGHT, OVERVIEW = 0.24, 1.2, 1.7
"""Heights in inches: of a row, of the panels at least, and of the panel of all ranks."""

TICKS = 14
"""Most intervals between ticks on both panels together."""

LEAST_PANEL = 0.22
"""Least share of the width for each of the two panels."""


def draw(comparison: Comparison, options: PlotOptions) -> Figure:
    """Stacked bars of the phases per rank, and beside them waiting and transfer, in ms.

    A line marks the median rank of the role. If there are many ranks, only both ends, the middle
    and the picks have bars, and a panel below shows all ranks.
    """
    shares = phase_shares(comparison)
    theme = THEMES[options.theme]
    order = shares.frame["rank"].to_list()
    keep = [*dict(options.ranks), *comparison.verdict.named]
    selected = [rank for rank in order if rank in options.only] or _selected(shares.frame, keep)
    rows = spaced(order, selected)
    many = len(order) > MOST_ROWS
    height = max(rows[-1].place + 1, 3) * ROW if many else max(len(rows) * ROW, LEAST_HEIGHT)
    below = OVERVIEW + 0.75 if many else 0.0
    sides = (
        "work on the left, communication that no work hides on the right"
        if shares.communication
        else "how much of them is work is unknown"
    )
    title = _title(comparison, shares)
    content = f"phases of an iteration, per rank: {sides}; mean over {shares.over}"
    sheet = new_sheet(
        WIDTH,
        0.45 + below + height + 0.2,
        Caption(title, subtitle(comparison, content, title), footer(comparison, *shares.notes)),
        theme,
    )
    bottom = below + 0.45
    work_width, other_width, highest = _widths(shares)
    work = sheet.axes(LABELS, bottom, work_width, height)
    frame = pl.DataFrame({"rank": [row.rank for row in rows]}).join(
        shares.frame, on="rank", how="left", maintain_order="left"
    )
    _bars(work, frame, rows, shares.phases, theme)
    if len(order) > 1:
        _medians(work, frame, rows, theme)
    grouping = "host" if shares.frame["role"].n_unique() == 1 else "role"
    row_labels(work, rows, frame[grouping].to_list(), comparison.verdict.named, theme)
    work.set_xlim(0, highest[0])
    work.set_xlabel("work (ms)" if shares.communication else "phases (ms)")
    parts_legend(work, shares.phases, theme)
    if shares.communication:
        communication = sheet.axes(LABELS + work_width + BETWEEN, bottom, other_width, height)
        _bars(communication, frame, rows, shares.communication, theme)
        communication.set_yticks([])
        communication.set_xlim(0, highest[1])
        communication.set_xlabel("exposed communication (ms)")
        first, second, *_ = MaxNLocator(TICKS).tick_values(0, sum(highest))
        for axes in (work, communication):
            axes.xaxis.set_major_locator(MultipleLocator(float(second - first)))
        parts_legend(communication, shares.communication, theme, right=True)
    if many:
        _overview(sheet.axes(LABELS, 0.5, PANELS + BETWEEN, OVERVIEW), shares, theme)
    return sheet.figure


def _title(comparison: Comparison, shares: PhaseShares) -> str:
    """The ranks with the largest means, or the share of work of a single rank."""
    frame = shares.frame
    if frame.height > 1:
        above = pl.col("total_ns") - pl.col("median_ns")
        excess = frame.select("rank", "median_ns", excess_ns=above)
        return on_average(comparison, excess, of_work=bool(shares.communication))
    rank, work = frame.select("rank", "total_ns").row(0)
    rows = comparison.rows(["iteration"]).filter(pl.col("iteration").is_in(shares.iterations))
    length = rows["iteration_ns"].mean()
    assert isinstance(length, float)
    if comparison.rows(["work"])["work_ns"].null_count():
        return (
            f"Rank {rank} alone: iterations take {milliseconds(length)} ms on average; how much "
            "of it is work is unknown"
        )
    return f"Rank {rank} alone works {milliseconds(work)} of {milliseconds(length)} ms on average"


def _selected(frame: pl.DataFrame, keep: Sequence[int]) -> list[int]:
    """The ranks that have rows; of many, those like the median have only the median's."""
    order = frame["rank"].to_list()
    rows = selected_rows(order, keep)
    if len(order) <= MOST_ROWS:
        return rows
    off = (frame["total_ns"] - frame["median_ns"]).abs() >= LEAST_GAIN * frame["median_ns"]
    shown = {*frame.filter(off)["rank"], *keep, order[0], order[-1], order[len(order) // 2]}
    return [rank for rank in rows if rank in shown]


def _widths(shares: PhaseShares) -> tuple[float, float, tuple[float, float]]:
    """Widths of both panels in inches, and the ends of their axes in ms, on one scale."""
    work = float(np.max(shares.frame["total_ns"].to_numpy())) / 1e6 * 1.14
    if not shares.communication:
        return PANELS + BETWEEN, 0.0, (work, 0.0)
    longest = shares.frame.select(
        pl.sum_horizontal(f"{name}_ns" for name in COMMUNICATION_PARTS).max()
    ).item()
    other = max((longest or 0) / 1e6 * 1.05, 1e-3)
    share = min(max(work / (work + other), LEAST_PANEL), 1 - LEAST_PANEL)
    scale = max(work / share, other / (1 - share))  # ms over the width of both panels
    return PANELS * share, PANELS * (1 - share), (scale * share, scale * (1 - share))


def _bars(
    axes: Axes, frame: pl.DataFrame, rows: Sequence[Row], names: Sequence[str], theme: Theme
) -> None:
    places = [row.place for row in rows]
    left = np.zeros(len(rows))
    for name in names:
        length = frame[f"{name}_ns"].fill_null(0).to_numpy() / 1e6
        axes.barh(places, length, left=left, height=0.78, gid=name, **part_look(name, theme))
        left += length
    axes.set_ylim(max(places) + 0.6, -0.6)
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=2, pad=2)
    axes.grid(axis="x")


def _medians(axes: Axes, frame: pl.DataFrame, rows: Sequence[Row], theme: Theme) -> None:
    """Draw the role's median as a line through its rows, and write each rank's distance to it."""
    places = np.array([row.place for row in rows])
    median = frame["median_ns"].to_numpy() / 1e6
    axes.vlines(median, places - 0.6, places + 0.6, color=theme.ink, linewidth=1.3)
    totals = frame["total_ns"].to_numpy() / 1e6
    for place, total, middle in zip(places, totals, median, strict=True):
        is_median = abs(total - middle) < SHOWN_NS / 1e6
        text = "median" if is_median else signed_ms(total - middle)
        beside(axes, text, (max(total, middle), place), (4, 0), color=theme.muted)


def _overview(axes: Axes, shares: PhaseShares, theme: Theme) -> None:
    """Draw all ranks, most work first: phases upwards, communication downwards."""
    frame = shares.frame.sort("total_ns", "rank", descending=[True, False])
    edges = np.arange(frame.height + 1)
    for names, sign in ((shares.phases, 1), (shares.communication, -1)):
        base = np.zeros(frame.height)
        for name in names:
            top = base + sign * frame[f"{name}_ns"].fill_null(0).to_numpy() / 1e6
            look = part_look(name, theme) | {"linewidth": 0.0}
            axes.stairs(top, edges, baseline=base, fill=True, **look)
            base = top
    axes.axhline(0, color=theme.ink, linewidth=0.8)
    of_all_ranks(axes, frame.height, ("most work", "least"), "sorted by work")
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    axes.set_ylabel("← communication   work →\n(ms)", size=SMALL)
