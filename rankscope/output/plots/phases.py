"""What each rank's iteration is made of, waiting apart from work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rankscope.compare.comparison import Analysis
from rankscope.compare.scores import score
from rankscope.compare.verdict.outliers import lower_median
from rankscope.errors import UsageError
from rankscope.model.schema import PHASES
from rankscope.output.plots.captions import footer, verdict_title
from rankscope.output.plots.options import View
from rankscope.output.plots.rows import LABELS, MOST_ROWS, Row, chosen_rows, row_labels, spaced
from rankscope.output.plots.style import HATCH, SMALL, THEMES, Caption, Theme, page, signed_ms

WIDTH, PANELS, BETWEEN = 10.0, 7.2, 0.55
"""Inches: the page, both panels together, between them."""

ROW, LEAST_HEIGHT, OVERVIEW = 0.24, 1.2, 1.7
"""Inches of a row, of the fewest rows, of the panel of all ranks."""

APART = ("wait", "transfer", "exposed_communication")
"""Parts of the iteration that are no work; the last where the first two are unknown."""

LEAST_PANEL = 0.22
"""Share of the width that each panel has at least."""


@dataclass(frozen=True, slots=True)
class PhaseShares:
    """Mean lengths per rank, those furthest above their role's median first.

    `frame`: rank, role, host, `<part>_ns` of phases and of `APART` (null is unknown), total_ns
    (of the phases), median_ns (the role's median total).
    """

    frame: pl.DataFrame

    @property
    def phases(self) -> tuple[str, ...]:
        """Which phases are known."""
        return tuple(name for name in PHASES if self.frame[f"{name}_ns"].is_not_null().any())

    @property
    def apart(self) -> tuple[str, ...]:
        """Which of `APART` are known."""
        return tuple(name for name in APART if self.frame[f"{name}_ns"].is_not_null().any())


def parts(analysis: Analysis) -> PhaseShares:
    """What the chosen iterations are made of, on average.

    Raises:
        UsageError: no phase is known on any rank.
    """
    chosen = analysis.chosen.with_columns(
        transfer_ns=pl.col("exposed_communication_ns") - pl.col("wait_ns")
    )
    values = (score(f"{name}_ns", "mean") for name in (*PHASES, *APART))
    ranked = chosen.group_by("rank").agg(values).sort("rank")
    phases = [f"{name}_ns" for name in PHASES]
    if all(ranked[name].is_null().all() for name in phases):
        raise UsageError(
            "plot phases: the phases are unknown on every rank of this run",
            hint="rankscope ingest --phase NAME=REGEX says which ranges they are",
        )
    unsplit = pl.col("wait_ns").is_null()
    who = chosen.group_by("rank").agg(pl.col("role", "host").first())
    frame = ranked.join(who, on="rank").with_columns(
        exposed_communication_ns=pl.when(unsplit).then("exposed_communication_ns"),
        total_ns=pl.sum_horizontal(phases),
    )
    above = pl.col("total_ns") - pl.col("median_ns")
    return PhaseShares(
        frame.with_columns(median_ns=lower_median(pl.col("total_ns")).over("role")).sort(
            above, "rank", descending=[True, False]
        )
    )


def draw(analysis: Analysis, view: View) -> Figure:
    """Stacked bars of the phases per rank, and beside them waiting and transfer, in ms.

    A line marks the median rank of the role. Of many ranks those at both ends, the middle and
    the picks have bars, and below them is a panel of all.
    """
    found = parts(analysis)
    theme = THEMES[view.theme]
    order = found.frame["rank"].to_list()
    rows = spaced(order, chosen_rows(order, [*dict(view.ranks), *analysis.verdict.ranks]))
    many = len(order) > MOST_ROWS
    height = max(rows[-1].place + 1, 3) * ROW if many else max(len(rows) * ROW, LEAST_HEIGHT)
    below = OVERVIEW + 0.75 if many else 0.0
    sheet = page(
        WIDTH,
        0.45 + below + height + 0.2,
        Caption(
            verdict_title(analysis),
            "what an iteration is made of, per rank: work, and apart from it communication that "
            f"no work covers; mean over {len(analysis.selection.numbers)} iterations",
            footer(analysis, *_notes(found)),
        ),
        theme,
    )
    bottom = below + 0.45
    work_width, apart_width, highest = _widths(found)
    work = sheet.axes(LABELS, bottom, work_width, height)
    apart = sheet.axes(LABELS + work_width + BETWEEN, bottom, apart_width, height)
    shown_frame = pl.DataFrame({"rank": [row.rank for row in rows]}).join(
        found.frame, on="rank", how="left", maintain_order="left"
    )
    _bars(work, shown_frame, rows, found.phases, theme)
    _bars(apart, shown_frame, rows, found.apart, theme)
    _medians(work, shown_frame, rows, theme)
    who = "host" if found.frame["role"].n_unique() == 1 else "role"
    row_labels(work, rows, shown_frame[who].to_list(), analysis.verdict.ranks, theme)
    apart.set_yticks([])
    work.set_xlim(0, highest[0])
    apart.set_xlim(0, highest[1])
    work.set_xlabel("work (ms)")
    apart.set_xlabel("exposed communication (ms)")
    _legend(work, found.phases, theme)
    _legend(apart, found.apart, theme)
    if many:
        _overview(sheet.axes(LABELS, 0.5, PANELS + BETWEEN, OVERVIEW), found, theme)
    return sheet.figure


def _notes(found: PhaseShares) -> list[str]:
    unknown = found.frame.filter(
        pl.col("wait_ns").is_null() & pl.col("exposed_communication_ns").is_null()
    )
    hidden = [name for name in PHASES if name not in found.phases]
    notes = [f"unknown: {', '.join(hidden)}"] if hidden else []
    if "exposed_communication" in found.apart:
        notes.append("how much of the communication is waiting is unknown")
    if unknown.height:
        notes.append(f"communication unknown on {unknown.height} ranks")
    return notes


def _widths(found: PhaseShares) -> tuple[float, float, tuple[float, float]]:
    """Inches of both panels, and where their axes end; a ms is equally long in both."""
    work = float(np.max(found.frame["total_ns"].to_numpy())) / 1e6 * 1.14
    apart = found.frame.select(pl.sum_horizontal(f"{name}_ns" for name in APART).max()).item()
    other = max((apart or 0) / 1e6 * 1.05, 1e-3)
    share = min(max(work / (work + other), LEAST_PANEL), 1 - LEAST_PANEL)
    scale = max(work / share, other / (1 - share))  # ms over the whole width
    return PANELS * share, PANELS * (1 - share), (scale * share, scale * (1 - share))


def _look(name: str, theme: Theme) -> dict[str, Any]:
    """Colour and hatching of a part."""
    if name != "wait":
        return {"facecolor": theme.parts[name], "edgecolor": theme.page, "linewidth": 0.5}
    return {"facecolor": theme.wait, "edgecolor": theme.muted, "hatch": HATCH, "linewidth": 0.0}


def _bars(
    axes: Axes, frame: pl.DataFrame, rows: Sequence[Row], names: Sequence[str], theme: Theme
) -> None:
    places = [row.place for row in rows]
    left = np.zeros(len(rows))
    for name in names:
        length = frame[f"{name}_ns"].fill_null(0).to_numpy() / 1e6
        axes.barh(places, length, left=left, height=0.78, gid=name, **_look(name, theme))
        left += length
    axes.set_ylim(max(places) + 0.6, -0.6)
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=2, pad=2)
    axes.grid(axis="x")


def _medians(axes: Axes, frame: pl.DataFrame, rows: Sequence[Row], theme: Theme) -> None:
    """The role's median as a line through its rows, and how far each rank is from it."""
    places = np.array([row.place for row in rows])
    median = frame["median_ns"].to_numpy() / 1e6
    axes.vlines(median, places - 0.6, places + 0.6, color=theme.ink, linewidth=1.3)
    totals = frame["total_ns"].to_numpy() / 1e6
    for place, total, middle in zip(places, totals, median, strict=True):
        axes.annotate(
            "median" if total == middle else signed_ms(total - middle),
            (max(total, middle), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            size=SMALL,
            color=theme.muted,
        )


def _legend(axes: Axes, names: Sequence[str], theme: Theme) -> None:
    axes.legend(
        handles=[Patch(label=name.replace("_", " "), **_look(name, theme)) for name in names],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=len(names),
        borderpad=0,
        borderaxespad=0.4,
        handlelength=1.1,
        handletextpad=0.4,
        columnspacing=1.0,
    )


def _overview(axes: Axes, found: PhaseShares, theme: Theme) -> None:
    """All ranks, most work first: phases upwards, communication downwards."""
    frame = found.frame.sort("total_ns", "rank", descending=[True, False])
    edges = np.arange(frame.height + 1)
    for names, sign in ((found.phases, 1), (found.apart, -1)):
        base = np.zeros(frame.height)
        for name in names:
            top = base + sign * frame[f"{name}_ns"].fill_null(0).to_numpy() / 1e6
            look = _look(name, theme) | {"linewidth": 0.0}
            axes.stairs(top, edges, baseline=base, fill=True, **look)
            base = top
    axes.axhline(0, color=theme.ink, linewidth=0.8)
    axes.margins(x=0)
    axes.set_xticks([0, frame.height], labels=["most work", "least"])
    first, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    axes.set_xlabel(f"all {frame.height:,} ranks, sorted by work", labelpad=-6)
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    axes.set_ylabel("← communication   work →\n(ms)", size=SMALL)
    axes.tick_params(length=2, pad=2)
