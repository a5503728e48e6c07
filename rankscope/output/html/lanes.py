"""The picked ranks in one iteration, as lanes of bars below each other."""

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from rankscope.model.results import Timeline
from rankscope.output.documents.common import Document
from rankscope.output.html.page_text import precision
from rankscope.output.html.tables import sortable_table
from rankscope.output.timeline_views import (
    BAR,
    LastArrival,
    TimelineLanes,
    last_arrival,
    timeline_lanes,
    who_waits,
)

MOST_ROWS = 1000
"""Most rows of the table of collectives."""

LAST = "arrives last:"
"""The label of a rank that is shown only because others wait for it."""


class ShownTimeline(Struct, frozen=True):
    """The timeline of the picks or of other ranks, or the reason why there is none."""

    timeline: Timeline | None
    reason: str = ""


def timeline_section(
    detail: ShownTimeline, labels: Mapping[int, str]
) -> tuple[Document, list[Document]]:
    """Lanes of each rank: its phases, its busiest streams and its collectives; and tables.

    Args:
        labels: rank → its label; ranks without one are shown because they arrive last.

    Returns:
        The chart: caption, the first iteration, lanes (rank, pick, name), bars (columns: the index
        of the lane, and those of BAR; times in ns since the earliest window) and late (at most one:
        at, rank). Its tables.
    """
    timeline = detail.timeline
    if timeline is None:
        caption = f"There is no timeline: {detail.reason}."
        return {"caption": caption, "lanes": [], "bars": [], "late": []}, []
    all_lanes = timeline_lanes(timeline)
    lanes = [(rank, lane) for rank, rank_lanes in all_lanes.of.items() for lane in rank_lanes]
    bars = pl.concat(
        lane.bars.with_columns(lane=pl.lit(place)) for place, (_, lane) in enumerate(lanes)
    )
    late = last_arrival(timeline)
    chart = {
        "caption": _caption(timeline, all_lanes, late),
        "iteration": timeline.iterations[0],
        "lanes": [
            {"rank": rank, "pick": labels.get(rank, LAST), "name": lane.name}
            for rank, lane in lanes
        ],
        "bars": [bars[name].to_list() for name in ("lane", *BAR)],
        "late": [] if late is None else [{"rank": late.rank, "at": late.moment_ns}],
    }
    return chart, [_collectives_table(timeline)]


def _caption(timeline: Timeline, lanes: TimelineLanes, late: LastArrival | None) -> str:
    """The iteration, who waits, the lanes, the precision of the clocks, and warnings."""
    residuals = timeline.ranks.filter(pl.col("axis") == "aligned")["residual_ns"].drop_nulls()
    largest = residuals.max()
    aligned = (
        f" Their clocks are aligned to {precision(largest)}." if isinstance(largest, int) else ""
    )
    notes = (*lanes.notes, *(problem.message for problem in timeline.problems))
    more = "".join(f" {each[0].upper()}{each[1:]}." for each in notes)
    iterations = ", ".join(map(str, timeline.iterations))
    return (
        f"Iteration {iterations}: {who_waits(timeline, late)}. Shown are phases, device "
        f"work, and collectives from arrival to end, with waiting hatched.{aligned}{more}"
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
