"""The picked ranks in one iteration on one clock, with the last arrival."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from msgspec import Struct

from rankscope.compare.comparison import Comparison
from rankscope.compare.timeline import timeline, with_last_to_arrive
from rankscope.errors import UsageError
from rankscope.model.results import Timeline
from rankscope.output.palette import THEMES, Theme
from rankscope.output.plots import PlotOptions
from rankscope.output.plots.captions import footer, subtitle
from rankscope.output.plots.rows import LONGEST_LABEL
from rankscope.output.plots.style import (
    BODY,
    HATCHES,
    SMALL,
    Caption,
    drawable,
    new_sheet,
    parts_legend,
    text_width,
)
from rankscope.output.timeline_views import (
    Lane,
    LaneKind,
    LastArrival,
    TimelineLanes,
    last_arrival,
    timeline_lanes,
    who_waits,
)
from rankscope.util.wording import MOST_LISTED, counted, milliseconds, ranks_text

NAMES, LANES, PANEL, RIGHT = 1.1, 0.95, 8.1, 0.35
"""Widths in inches: of the rank names, of the lane names at least, of the time axis, and right."""

PHASE_LANE, STREAM_LANE, COLLECTIVE_LANE, BETWEEN = 0.26, 0.16, 0.24, 0.26
"""Heights in inches: of the lanes of a rank, and between two ranks."""

OVERLAPPING = 0.16
"""Height in inches of each lane of collectives that overlap."""

PICKED = ("min", "median", "max")
"""Labels that compare ranks over all iterations."""

MOST_RANKS = 8
"""Most picked ranks; the footer says how many more there are."""

VECTOR_SHAPES = 4_000
"""Most rectangles of a lane that are shapes in SVG and PDF files; a larger lane is an image."""


class PlacedLane(Struct, frozen=True):
    """A lane of the picture; its position is in inches from the top."""

    lane: Lane
    top: float
    height: float

    @property
    def middle(self) -> float:
        """The middle of its height."""
        return self.top + self.height / 2


class Layout(Struct, frozen=True):
    """A timeline, prepared for drawing."""

    timeline: Timeline
    all_lanes: TimelineLanes
    lanes: dict[int, list[PlacedLane]]  # rank → its lanes, from top to bottom
    height: float  # of all lanes, inches
    names_width: float  # of the lane names, inches
    theme: Theme


def draw(comparison: Comparison, options: PlotOptions) -> Figure:
    """Phases, device streams and collectives of some ranks in one iteration, in ms.

    Waiting is hatched. A line marks the last arrival at the collective that cost the shown ranks
    most (`timeline_views.last_arrival`).

    Args:
        options: its `ranks` and `iteration` are required.

    Raises:
        UsageError: no ranks or no iteration to show.
        ReportError: a report is gone, or has changed since it was ingested.
    """
    if not options.ranks or options.iteration is None:
        raise UsageError(
            "plot timeline: ranks or iteration are not given",
            hint="give PlotOptions(ranks=…, iteration=…), or use Run.plot, which picks them",
        )
    labels = dict(options.ranks[:MOST_RANKS])
    shown_ranks = with_last_to_arrive(comparison, [*labels], [options.iteration])
    labels |= {rank: "arrives last" for rank in shown_ranks if rank not in labels}
    shown = timeline(comparison, list(labels), [options.iteration])
    layout = _prepared(shown, [*labels], THEMES[options.theme])
    late = last_arrival(shown)
    left = NAMES + layout.names_width
    sheet = new_sheet(
        left + PANEL + RIGHT,
        layout.height + 0.5 + 0.2,
        Caption(
            _title(shown, late, labels),
            subtitle(
                comparison,
                f"phases on the {shown.clock} clock, "
                + ("device work in the colour of its phase, " if layout.all_lanes.streams else "")
                + "collectives from arrival to end"
                + (", on one clock" if shown.ranks["axis"].eq("aligned").all() else ""),
            ),
            footer(
                comparison,
                *_notes(layout, options, late, comparison.verdict.named),
                *_label_note(comparison, labels),
            ),
        ),
        layout.theme,
    )
    axes = sheet.axes(left, 0.5, PANEL, layout.height)
    _time_axis(axes, layout)
    for rank, label in labels.items():
        _rank_names(axes, layout, rank, label)
        for lane in layout.lanes[rank]:
            _fill(axes, lane, layout.theme)
    if late is not None:
        _mark(axes, late, layout)
    parts = [part for part in layout.theme.parts if part in layout.all_lanes.parts]
    parts_legend(axes, parts, layout.theme, 8)
    return sheet.figure


def _title(shown: Timeline, late: LastArrival | None, labels: dict[int, str]) -> str:
    iteration = shown.iterations[0]
    if len(labels) == 1:
        return f"Iteration {iteration} of rank {min(labels)}"
    return f"Iteration {iteration}: {who_waits(shown, late)}"


def _label_note(comparison: Comparison, labels: dict[int, str]) -> list[str]:
    """A note that the labels of picks are about all iterations, not the one that is shown."""
    count = len(comparison.selection.numbers)
    if count < 2 or not any(label.split(",")[0] in PICKED for label in labels.values()):
        return []
    return [f"min, median and max: of all {counted(count, 'iteration')}, not of this one"]


def _notes(
    layout: Layout, options: PlotOptions, late: LastArrival | None, named: tuple[int, ...]
) -> list[str]:
    notes = [problem.message for problem in layout.timeline.problems]
    if late is not None and named and late.rank not in named:
        notes.append(
            f"rank {late.rank} may be late because it waited elsewhere: over the run "
            f"the verdict names {ranks_text(named, MOST_LISTED)}"
        )
    residual = layout.timeline.ranks["residual_ns"].max()
    if isinstance(residual, int) and residual:
        notes.append(f"clocks agree to {max(residual / 1e3, 1):,.0f} µs")
    if len(options.ranks) > MOST_RANKS:
        notes.append(f"{len(options.ranks) - MOST_RANKS} more picked ranks are not shown")
    notes += layout.all_lanes.notes
    return notes


def _prepared(timeline: Timeline, ranks: Sequence[int], theme: Theme) -> Layout:
    """The lanes of each rank, and the room that they take."""
    all_lanes = timeline_lanes(timeline)
    lanes: dict[int, list[PlacedLane]] = {}
    top = 0.0
    for rank in ranks:
        lanes[rank] = []
        for lane in all_lanes.of[rank]:
            height = _height(lane, all_lanes.of[rank])
            lanes[rank].append(PlacedLane(lane, top, height))
            top += height + 0.03
        top += BETWEEN
    widest = max(
        text_width(lane.name, SMALL) for rank_lanes in all_lanes.of.values() for lane in rank_lanes
    )
    return Layout(timeline, all_lanes, lanes, top - BETWEEN, max(LANES, widest + 0.2), theme)


def _height(lane: Lane, beside: Sequence[Lane]) -> float:
    """The height of a lane, in inches; collectives that overlap have less each."""
    if lane.kind is LaneKind.COLLECTIVES:
        several = sum(each.kind is LaneKind.COLLECTIVES for each in beside) > 1
        return OVERLAPPING if several else COLLECTIVE_LANE
    return PHASE_LANE if lane.kind is LaneKind.PHASES else STREAM_LANE


def _time_axis(axes: Axes, layout: Layout) -> None:
    shown = layout.timeline
    clock = pl.col("clock") == shown.clock
    edges = ["start_ns", "end_ns"]
    frames = (shown.windows.filter(clock), shown.phases.filter(clock), shown.collectives)
    spans = pl.concat(frame.select(edges) for frame in frames)
    low, high = spans["start_ns"].to_numpy().min() / 1e6, spans["end_ns"].to_numpy().max() / 1e6
    room = 0.01 * (high - low)
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(layout.height + 0.04, -0.04)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.tick_params(length=2, pad=2)
    axes.set_xlabel("time since the start of the first window (ms)")


def _rank_names(axes: Axes, layout: Layout, rank: int, label: str) -> None:
    """Write the rank, its label and its host beside its lanes, and the names of the lanes."""
    lanes, muted = layout.lanes[rank], layout.theme.muted
    host = layout.timeline.ranks.filter(rank=rank)["host"][0]
    lines = [label, *([] if host is None else [drawable(host, LONGEST_LABEL)])]
    middle = (lanes[0].top + lanes[-1].top + lanes[-1].height) / 2
    look: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    left = -72 * (NAMES + layout.names_width - 0.25)
    axes.annotate(
        f"rank {rank}", (0, middle), xytext=(left, 2), va="bottom", size=BODY, weight="bold", **look
    )
    axes.annotate(
        "\n".join(lines), (0, middle), xytext=(left, 0), va="top", size=SMALL, color=muted, **look
    )
    for lane in lanes:
        axes.annotate(
            lane.lane.name, (0, lane.middle), xytext=(-5, 0), ha="right", va="center",
            size=SMALL, color=muted, **look,
        )  # fmt: skip


def _fill(axes: Axes, lane: PlacedLane, theme: Theme) -> None:
    """Draw the bars of a lane, with hatching where their part has it."""
    _rectangles(axes, lane.lane.bars, lane, theme)
    for part, hatch in HATCHES.items():
        hatched = lane.lane.bars.filter(part=part)
        if hatched.height:
            shapes = _rectangles(axes, hatched, lane, theme)
            shapes.set(hatch=hatch, edgecolor=theme.muted, linewidth=0)


def _rectangles(axes: Axes, bars: pl.DataFrame, lane: PlacedLane, theme: Theme) -> PolyCollection:
    """Draw a rectangle per row from start to end in the colour of `part`, always visible."""
    start, end = (bars[name].to_numpy() / 1e6 for name in ("start_ns", "end_ns"))
    top, bottom = np.full_like(start, lane.top), np.full_like(start, lane.top + lane.height)
    x = np.stack([start, end, end, start], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    faces = bars["part"].replace_strict(theme.parts).to_list()
    shapes = PolyCollection(
        list(np.stack([x, y], axis=2)),
        facecolors=faces,
        edgecolors=faces,
        linewidths=0.3,  # so that no rectangle is too thin to be visible
        zorder=2,
        rasterized=bars.height > VECTOR_SHAPES,
        gid=lane.lane.name,
    )
    axes.add_collection(shapes, autolim=False)
    return shapes


def _mark(axes: Axes, late: LastArrival, layout: Layout) -> None:
    """Draw a line at the last arrival, and write how long the other ranks waited for it."""
    theme, lanes = layout.theme, layout.lanes
    moment = late.moment_ns / 1e6
    axes.axvline(moment, color=theme.late, linewidth=1.2, zorder=4, gid="last arrival")
    low, high = axes.get_xlim()
    per_ms = PANEL / (high - low)
    if late.rank in lanes:
        lane = _lane_of(layout, late.rank, late.calls.filter(rank=late.rank))
        axes.plot(
            moment, lane.middle, marker="o", color=theme.late, markersize=6,
            markeredgecolor=theme.page, zorder=5,
        )  # fmt: skip
    left = moment < (low + high) / 2
    axes.annotate(
        f"rank {late.rank} arrives last", (moment, _gap(late.rank, lanes)),
        xytext=(4 if left else -4, 0), textcoords="offset points",
        ha="left" if left else "right", va="center", size=BODY - 0.5, color=theme.late,
        weight="bold", annotation_clip=False, zorder=5,
    )  # fmt: skip
    for row in late.calls.iter_rows(named=True):
        lane = _lane_of(layout, row["rank"], late.calls.filter(rank=row["rank"]))
        wait = row["wait_ns"] / 1e6
        text = f"waits {milliseconds(row['wait_ns'])} ms"
        if row["rank"] != late.rank and wait * per_ms > text_width(text, SMALL) + 0.1:
            axes.annotate(
                text, (row["arrival_ns"] / 1e6 + wait / 2, lane.middle),
                ha="center", va="center", size=SMALL, zorder=5,
                bbox={"facecolor": theme.page, "edgecolor": "none", "pad": 0.8},
            )  # fmt: skip


def _lane_of(layout: Layout, rank: int, call: pl.DataFrame) -> PlacedLane:
    """The lane in which a collective call of a rank is drawn; without a call its last one."""
    for lane in layout.lanes[rank]:
        bars = lane.lane.bars
        begins = bars["start_ns"].is_in(call["arrival_ns"].implode()).any()
        ends = bars["end_ns"].is_in(call["end_ns"].implode()).any()
        if lane.lane.kind is LaneKind.COLLECTIVES and begins and ends:
            return lane
    return layout.lanes[rank][-1]


def _gap(rank: int, lanes: dict[int, list[PlacedLane]]) -> float:
    """The height with room for text about a rank: above its lanes, or below those of the first."""
    tops = [placed[0].top for placed in lanes.values()]
    place = [*lanes].index(rank) if rank in lanes else 0
    if len(tops) == 1:
        return -0.1
    return tops[max(place, 1)] - BETWEEN / 2 - 0.01
