"""The picked ranks in one iteration, on one clock, and who arrives late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rankscope.compare.comparison import Analysis
from rankscope.compare.timeline import timeline
from rankscope.compare.warnings import listed
from rankscope.errors import UsageError
from rankscope.model.results import Timeline
from rankscope.model.schema import PHASES
from rankscope.output.plots.captions import footer
from rankscope.output.plots.options import View
from rankscope.output.plots.rows import LONGEST_LABEL
from rankscope.output.plots.style import (
    BODY,
    HATCH,
    SMALL,
    THEMES,
    Caption,
    Theme,
    page,
    shown,
    text_width,
)
from rankscope.output.quantities import milliseconds

WIDTH, NAMES, LANES, PANEL = 10.5, 1.1, 0.95, 8.1
"""Inches: the page, the ranks' names, the lanes' names, the time axis."""

PHASE_LANE, STREAM_LANE, COLLECTIVE_LANE, BETWEEN = 0.26, 0.16, 0.24, 0.26
"""Inches of the lanes of a rank, and between two ranks."""

MOST_RANKS, MOST_STREAMS = 8, 4
"""More ranks or streams than these are left out, and the picture says so."""

VECTOR_SHAPES = 4_000
"""More rectangles than these become an image inside SVG and PDF."""


@dataclass(frozen=True, slots=True)
class LastArrival:
    """The collective that kept the shown ranks waiting longest, and its last arrival."""

    rows: pl.DataFrame  # TIMELINE_COLLECTIVES of the shown ranks that are on one clock
    rank: int | None  # who came last, of all ranks
    moment_ns: int  # when

    @property
    def longest_ns(self) -> int:
        """The longest wait of a shown rank."""
        return int(self.rows["wait_ns"].to_numpy().max())


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the picture: what it is called, and where it is, inches from the top."""

    name: str
    top: float
    height: float


def latest(found: Timeline) -> LastArrival | None:
    """The late arrival that cost the shown ranks most; None where nobody clearly came last.

    Those of shown ranks count double, for the others' reasons cannot be seen. Only ranks that
    collectives tie to one clock can be seen waiting for each other.
    """
    aligned = found.ranks.filter(axis="aligned")["rank"].to_list()
    rows = found.collectives.filter(
        pl.col("rank").is_in(aligned),
        pl.col("wait_ns").is_not_null(),
        pl.col("last_rank").is_not_null(),
    )
    if rows.is_empty():
        return None
    seen_ones = pl.col("last_rank").is_in(found.ranks["rank"].to_list())
    costs = (
        rows.group_by("instance")
        .agg(cost=pl.col("wait_ns").sum() * pl.when(seen_ones.first()).then(2).otherwise(1))
        .sort("cost", "instance")
        .tail(1)
    )
    worst = rows.join(costs, on="instance", how="semi")
    rank = worst["last_rank"][0]
    own = worst.filter(rank=rank)["arrival_ns"]
    seen = (worst["arrival_ns"] + worst["wait_ns"]).median()
    assert isinstance(seen, float | int)
    return LastArrival(worst, rank, int(own[0]) if len(own) else round(seen))


def draw(analysis: Analysis, view: View) -> Figure:
    """Phases, device streams and collectives of `view.ranks` in `view.iteration`, in ms.

    Waiting is hatched; a line marks the last arrival at the collective that kept the others
    waiting longest.

    Raises:
        UsageError: no ranks or no iteration to show.
        ReportError: a report is gone, or not the one that was ingested.
    """
    if not view.ranks or view.iteration is None:
        raise UsageError(
            "plot timeline: which ranks, and which iteration?",
            hint="give View(ranks=…, iteration=…), or use Run.plot, which picks them",
        )
    labels = dict(view.ranks[:MOST_RANKS])
    found = timeline(analysis, list(labels), [view.iteration])
    theme = THEMES[view.theme]
    late = latest(found)
    lanes, height = _lanes(found, [*labels])
    sheet = page(
        WIDTH,
        height + 0.5 + 0.2,
        Caption(
            _title(view.iteration, late, labels),
            f"phases on the {found.clock} clock, "
            + ("" if _device_work(found).is_empty() else "device work by the phase it belongs to, ")
            + "collectives from arrival to end"
            + (", on one clock" if _together(found) else ""),
            footer(analysis, *_notes(found, view, late, analysis.verdict.ranks)),
        ),
        theme,
    )
    axes = sheet.axes(NAMES + LANES, 0.5, PANEL, height)
    _time_axis(axes, found, height)
    for rank, mine in lanes.items():
        _name(axes, rank, labels[rank], found, mine, theme)
        for lane in mine:
            _fill(axes, found, rank, lane, theme)
    if late is not None:
        _mark(axes, late, lanes, theme)
    _legend(axes, theme)
    return sheet.figure


def _together(found: Timeline) -> bool:
    return found.ranks["axis"].eq("aligned").all()


def _title(iteration: int, late: LastArrival | None, labels: dict[int, str]) -> str:
    if len(labels) == 1:
        return f"Iteration {iteration} of rank {min(labels)}"
    if late is None or late.longest_ns < 1000:
        return f"Iteration {iteration}: no rank keeps the others waiting"
    operation = str(late.rows["operation"][0]).replace("_", "-")
    elsewhere = "" if late.rank in labels else ", which is not shown,"
    return (
        f"Iteration {iteration}: rank {late.rank}{elsewhere} comes last to the {operation}, "
        f"and others wait up to {milliseconds(late.longest_ns)} ms"
    )


def _notes(
    found: Timeline, view: View, late: LastArrival | None, accused: tuple[int, ...]
) -> list[str]:
    notes = [problem.message for problem in found.problems]
    if late is not None and accused and late.rank not in accused:
        notes.append(
            f"rank {late.rank} may be late because it waited elsewhere: over the run "
            f"the verdict names {listed(accused)}"
        )
    residual = found.ranks["residual_ns"].max()
    if isinstance(residual, int) and residual:
        notes.append(f"clocks agree to {max(residual / 1e3, 1):,.0f} µs")
    if len(view.ranks) > MOST_RANKS:
        notes.append(f"{len(view.ranks) - MOST_RANKS} more picked ranks are not shown")
    streams = _device_work(found).group_by("rank").agg(pl.col("lane").n_unique())
    hidden = streams["lane"].max()
    if isinstance(hidden, int) and hidden > MOST_STREAMS:
        notes.append(f"the {MOST_STREAMS} busiest streams of up to {hidden}")
    return notes


def _device_work(found: Timeline) -> pl.DataFrame:
    """Operations that are no collectives, with `lane`, the stream's name."""
    several = found.operations.select("context", "device").unique().height > found.ranks.height
    name = pl.format("stream {}", "stream")
    return found.operations.filter(pl.col("kind") != "collective").with_columns(
        lane=pl.format("{}.{}.{}", "device", "context", "stream") if several else name
    )


def _lanes(found: Timeline, ranks: Sequence[int]) -> tuple[dict[int, list[Lane]], float]:
    """Lanes of each rank, and how high all are together."""
    work = _device_work(found).with_columns(busy=pl.col("end_ns") - pl.col("start_ns"))
    lanes: dict[int, list[Lane]] = {}
    top = 0.0
    for rank in ranks:
        streams = (
            work.filter(rank=rank)
            .group_by("lane")
            .agg(pl.col("busy").sum())
            .sort("busy", "lane", descending=[True, False])["lane"]
            .head(MOST_STREAMS)
            .to_list()
        )
        kinds = [
            ("phases", PHASE_LANE),
            *((stream, STREAM_LANE) for stream in streams),
            ("collectives", COLLECTIVE_LANE),
        ]
        mine = []
        for name, height in kinds:
            mine.append(Lane(name, top, height))
            top += height + 0.03
        lanes[rank] = mine
        top += BETWEEN
    return lanes, top - BETWEEN


def _time_axis(axes: Axes, found: Timeline, height: float) -> None:
    clock = pl.col("clock") == found.clock
    edges = ["start_ns", "end_ns"]
    frames = (found.windows.filter(clock), found.phases.filter(clock), found.collectives)
    spans = pl.concat(frame.select(edges) for frame in frames)
    low, high = spans["start_ns"].to_numpy().min() / 1e6, spans["end_ns"].to_numpy().max() / 1e6
    room = 0.01 * (high - low)
    axes.set_xlim(low - room, high + room)
    axes.set_ylim(height + 0.04, -0.04)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.tick_params(length=2, pad=2)
    axes.set_xlabel("time since the first of the windows began (ms)")


def _name(
    axes: Axes, rank: int, label: str, found: Timeline, lanes: Sequence[Lane], theme: Theme
) -> None:
    """The rank's name beside its lanes, and theirs."""
    host = found.ranks.filter(rank=rank)["host"][0]
    lines = [label, *([] if host is None else [shown(host, LONGEST_LABEL)])]
    middle = (lanes[0].top + lanes[-1].top + lanes[-1].height) / 2
    look: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    left = -72 * (NAMES + LANES - 0.25)
    axes.annotate(
        f"rank {rank}", (0, middle), xytext=(left, 2), va="bottom", size=BODY, weight="bold", **look
    )
    axes.annotate(
        "\n".join(lines), (0, middle), xytext=(left, 0), va="top", size=SMALL, color=theme.muted,
        **look,
    )  # fmt: skip
    for lane in lanes:
        axes.annotate(
            lane.name, (0, lane.top + lane.height / 2), xytext=(-5, 0), ha="right", va="center",
            size=SMALL, color=theme.muted, **look,
        )  # fmt: skip


def _fill(axes: Axes, found: Timeline, rank: int, lane: Lane, theme: Theme) -> None:
    """Draw what happened in one lane of one rank."""
    if lane.name == "phases":
        mine = found.phases.filter(rank=rank, clock=found.clock)
        colors = theme.parts | {"exposed_communication": theme.wait}
        _rectangles(axes, mine, "phase", colors, lane, theme)
    elif lane.name == "collectives":
        mine = found.collectives.filter(rank=rank)
        split = mine.drop_nulls("wait_ns").with_columns(
            waited=pl.col("arrival_ns") + pl.col("wait_ns")
        )
        whole = mine.filter(pl.col("wait_ns").is_null()).with_columns(start_ns="arrival_ns")
        _rectangles(axes, whole, None, {"": theme.wait}, lane, theme)
        waits = split.select(start_ns="arrival_ns", end_ns="waited")
        drawn = _rectangles(axes, waits, None, {"": theme.wait}, lane, theme)
        drawn.set(hatch=HATCH, edgecolor=theme.muted, linewidth=0)
        moves = split.select("end_ns", start_ns="waited")
        _rectangles(axes, moves, None, {"": theme.transfer}, lane, theme)
    else:
        mine = _device_work(found).filter(rank=rank, lane=lane.name)
        _rectangles(axes, mine, "phase", theme.parts, lane, theme)


def _rectangles(
    axes: Axes,
    frame: pl.DataFrame,
    by: str | None,
    colors: dict[str, str],
    lane: Lane,
    theme: Theme,
) -> PolyCollection:
    """A rectangle per row from start to end, coloured by a column; none too thin to be seen."""
    start, end = (frame[name].to_numpy() / 1e6 for name in ("start_ns", "end_ns"))
    top, bottom = np.full_like(start, lane.top), np.full_like(start, lane.top + lane.height)
    x = np.stack([start, end, end, start], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    named = frame.select(pl.lit("", pl.String) if by is None else pl.col(by)).to_series()
    faces = named.replace_strict(colors, default=theme.parts["other"]).to_list()
    shapes = PolyCollection(
        list(np.stack([x, y], axis=2)),
        facecolors=faces,
        edgecolors=faces,
        linewidths=0.3,
        zorder=2,
        rasterized=frame.height > VECTOR_SHAPES,
        gid=lane.name,
    )
    axes.add_collection(shapes, autolim=False)
    return shapes


def _mark(axes: Axes, late: LastArrival, lanes: dict[int, list[Lane]], theme: Theme) -> None:
    """A line at the last arrival, and how long each of the others waited for it."""
    moment = late.moment_ns / 1e6
    axes.axvline(moment, color=theme.late, linewidth=1.2, zorder=4, gid="last arrival")
    low, high = axes.get_xlim()
    per_ms = PANEL / (high - low)
    if late.rank in lanes:
        lane = lanes[late.rank][-1]
        axes.plot(
            moment, lane.top + lane.height / 2, marker="o", color=theme.late, markersize=6,
            markeredgecolor=theme.page, zorder=5,
        )  # fmt: skip
    left = moment < (low + high) / 2
    axes.annotate(
        f"rank {late.rank} arrives last", (moment, _gap(late.rank, lanes)),
        xytext=(4 if left else -4, 0), textcoords="offset points",
        ha="left" if left else "right", va="center", size=BODY - 0.5, color=theme.late,
        weight="bold", annotation_clip=False, zorder=5,
    )  # fmt: skip
    for row in late.rows.iter_rows(named=True):
        lane = lanes[row["rank"]][-1]
        wait = row["wait_ns"] / 1e6
        text = f"waits {milliseconds(row['wait_ns'])} ms"
        if row["rank"] != late.rank and wait * per_ms > text_width(text, SMALL) + 0.1:
            axes.annotate(
                text, (row["arrival_ns"] / 1e6 + wait / 2, lane.top + lane.height / 2),
                ha="center", va="center", size=SMALL, zorder=5,
                bbox={"facecolor": theme.page, "edgecolor": "none", "pad": 0.8},
            )  # fmt: skip


def _gap(rank: int | None, lanes: dict[int, list[Lane]]) -> float:
    """Where words about a rank have room: in the gap above its lanes, below those of the first."""
    tops = [mine[0].top for mine in lanes.values()]
    place = [*lanes].index(rank) if rank in lanes else 0
    if len(tops) == 1:
        return -0.1
    return tops[max(place, 1)] - BETWEEN / 2 - 0.01


def _legend(axes: Axes, theme: Theme) -> None:
    phases = [Patch(label=name, facecolor=theme.parts[name]) for name in PHASES]
    plain_wait = Patch(label="exposed communication", facecolor=theme.wait)
    wait = Patch(
        label="wait", facecolor=theme.wait, edgecolor=theme.muted, hatch=HATCH, linewidth=0
    )
    axes.legend(
        handles=[*phases, plain_wait, wait, Patch(label="transfer", facecolor=theme.transfer)],
        loc="lower left", bbox_to_anchor=(0, 1), ncols=8, borderpad=0, borderaxespad=0.4,
        handlelength=1.1, handletextpad=0.4, columnspacing=1.0,
    )  # fmt: skip
