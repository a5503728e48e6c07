"""The picked ranks in one iteration, as lanes of bars below each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from rankscope.model.kinds import Phase
from rankscope.model.results import Timeline
from rankscope.output.documents.common import Document
from rankscope.output.html.page_text import precision
from rankscope.output.html.tables import sortable_table
from rankscope.output.timeline_views import (
    LastArrival,
    busiest_streams,
    collective_parts,
    in_lanes,
    last_arrival,
    stream_work,
    who_waits,
)

MOST_STREAMS = 3
"""Most streams of a rank; the busiest ones are shown."""

FINEST = 2000
"""Bars of a lane that are closer than 1/FINEST of the longest window are merged into one."""

MOST_ROWS = 1000
"""Most rows of the table of collectives."""

LAST = "arrives last:"
"""The label of a rank that is shown only because others wait for it."""

BAR = {"lane": pl.Int64, "start": pl.Int64, "end": pl.Int64, "part": pl.String, "text": pl.String}
"""Columns of the bars: lane (index), start and end (ns), part (sets the colour), text."""


@dataclass(frozen=True, slots=True)
class ShownTimeline:
    """The timeline of the picks or of other ranks, or the reason why there is none."""

    timeline: Timeline | None
    reason: str = ""
    is_of_picks: bool = True  # in the iteration in which they differ most


@dataclass(frozen=True, slots=True)
class TimelineSection:
    """The data of the page's timeline section."""

    chart: Document
    tables: tuple[Document, ...] = ()


def timeline_section(detail: ShownTimeline, labels: Mapping[int, str]) -> TimelineSection:
    """Lanes of each rank: its phases, its busiest streams and its collectives.

    Args:
        detail: the timeline.
        labels: rank → its label; ranks without one are shown because they arrive last.

    Returns:
        `chart` has the keys caption, lanes (rank, pick, name), bars (columns of BAR;
        times in ns since the earliest window) and late (at most one: at, rank).
    """
    timeline = detail.timeline
    if timeline is None:
        return TimelineSection(
            {
                "caption": f"There is no timeline: {detail.reason}.",
                "lanes": [],
                "bars": [],
                "late": [],
            }
        )
    work = stream_work(timeline)
    lanes: list[Document] = []
    bars: list[pl.DataFrame] = []
    for rank in timeline.ranks["rank"]:
        for name, frame in _rank_lanes(timeline, work, rank):
            bars.append(frame.with_columns(lane=pl.lit(len(lanes), pl.Int64)))
            lanes.append({"rank": rank, "pick": labels.get(rank, LAST), "name": name})
    drawn = pl.concat(bars).select(pl.col(name).cast(dtype) for name, dtype in BAR.items())
    late = last_arrival(timeline)
    return TimelineSection(
        chart={
            "caption": _caption(timeline, late, detail.is_of_picks),
            "lanes": lanes,
            "bars": [drawn[name].to_list() for name in BAR],
            "late": [] if late is None else [{"rank": late.rank, "at": late.moment_ns}],
        },
        tables=(_collectives_table(timeline),),
    )


def _rank_lanes(
    timeline: Timeline, work: pl.DataFrame, rank: int
) -> list[tuple[str, pl.DataFrame]]:
    """Name and bars of each lane of a rank."""
    phases = timeline.phases.filter(rank=rank, clock=timeline.clock)
    length = timeline.windows["end_ns"].max() or 1
    assert isinstance(length, int)
    gap = length // FINEST
    text = pl.lit(None, pl.String).alias("text")
    lanes = [(f"{timeline.clock} phases", _merged(phases.select(*_span, text, part="phase"), gap))]
    for stream in sorted(busiest_streams(work, rank, MOST_STREAMS)):
        bars = work.filter(rank=rank, stream_name=stream).select(
            *_span,
            part=pl.when("training")
            .then(pl.col("phase").fill_null(Phase.OTHER.value))
            .otherwise(pl.lit("background")),
            text="name",
        )
        lanes.append((stream, _merged(bars, gap)))
    calls = in_lanes(timeline.collectives.filter(rank=rank))
    for lane in calls["lane"].unique().sort():
        name = f"collectives ({lane + 1})" if lane else "collectives"
        lanes.append((name, _collective_bars(calls.filter(lane=lane))))
    return lanes


_span = (pl.col("start_ns").alias("start"), pl.col("end_ns").alias("end"))


def _merged(bars: pl.DataFrame, gap: int) -> pl.DataFrame:
    """Bars, with neighbours of the same part merged if they are at most `gap` ns apart.

    The text of a merged bar is the count of its operations and the text of the longest one.
    """
    until = pl.col("end").cum_max().shift()
    starts = (pl.col("part").ne_missing(pl.col("part").shift())) | (pl.col("start") - until > gap)
    longest = (pl.col("end") - pl.col("start")).arg_max()
    return (
        bars.sort("start", "end")
        .with_columns(run=starts.fill_null(True).cum_sum())
        .group_by("run", maintain_order=True)
        .agg(
            pl.col("start").min(),
            pl.col("end").max(),
            pl.col("part").first(),
            pl.col("text").get(longest),
            count=pl.len(),
        )
        .with_columns(
            text=pl.when(pl.col("text").is_not_null() & (pl.col("count") > 1))
            .then(pl.format("{} operations, longest: {}", "count", "text"))
            .otherwise("text")
        )
        .drop("run", "count")
    )


def _collective_bars(calls: pl.DataFrame) -> pl.DataFrame:
    """Bars of collectives from arrival to end: waiting, then transfer."""
    last = pl.format("; rank {} came last", "last_rank")
    known = pl.col("last_rank").is_not_null()
    text = pl.col("operation") + pl.when(known).then(last).otherwise(pl.lit(""))
    return collective_parts(calls).select(*_span, "part", text=text)


def _caption(timeline: Timeline, late: LastArrival | None, is_of_picks: bool) -> str:
    """The iteration, who waits, the lanes, the precision of the clocks, and warnings."""
    residuals = timeline.ranks.filter(pl.col("axis") == "aligned")["residual_ns"].drop_nulls()
    largest = residuals.max()
    aligned = (
        f" Their clocks are aligned to {precision(largest)}." if isinstance(largest, int) else ""
    )
    warnings = "".join(f" {each.message}." for each in timeline.problems)
    which = ", ".join(map(str, timeline.iterations))
    differ = ", in which the picked ranks differ most" if is_of_picks else ""
    return (
        f"Iteration {which}{differ}: {who_waits(timeline, late)}. Shown are phases, device work, "
        f"and collectives from arrival to end, with waiting hatched."
        f"{aligned}{warnings}"
    )


def _collectives_table(timeline: Timeline) -> Document:
    columns = ["rank", "operation", "ordinal", "arrival_ns", "end_ns", "wait_ns", "last_rank"]
    frame = timeline.collectives.select(columns).sort("operation", "ordinal", "rank")
    return sortable_table(
        "calls",
        "Collectives of these ranks",
        frame.head(MOST_ROWS),
        "timeline",
        note="times in ms since the start of the first window of these ranks",
        labels={"last_rank": "came last"},
    )
