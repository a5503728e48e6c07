"""The picked ranks in one iteration → lanes of bars under each other."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.compare.picks import Picks
from rankscope.model.results import Timeline
from rankscope.output.html.page_text import brief
from rankscope.output.html.tables import table
from rankscope.output.json_documents import Document

MOST_STREAMS = 3
"""Streams of a rank that are shown: those that are busiest."""

FINEST = 2000
"""Bars of a lane that are closer than the window's length over this are drawn as one."""

BAR = {"lane": pl.Int64, "start": pl.Int64, "end": pl.Int64, "part": pl.String, "text": pl.String}


@dataclass(frozen=True, slots=True)
class Detail:
    """The picks' timeline, or why there is none."""

    timeline: Timeline | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lanes:
    """What the page's timeline section shows."""

    chart: Document
    tables: tuple[Document, ...] = ()


def lanes(detail: Detail, picks: Picks) -> Lanes:
    """Lanes of each picked rank: its phases, its busiest streams, its collectives.

    Times are ns since the earliest window; bars are columns.
    """
    timeline = detail.timeline
    if timeline is None:
        return Lanes(
            {
                "words": f"There is no timeline: {detail.reason}.",
                "lanes": [],
                "bars": [],
                "late": [],
            }
        )
    labels = {each.rank: each.label for each in picks.picks}
    named: list[Document] = []
    bars: list[pl.DataFrame] = []
    for rank in timeline.ranks["rank"]:
        for name, frame in _of_rank(timeline, rank):
            bars.append(frame.with_columns(lane=pl.lit(len(named), pl.Int64)))
            named.append({"rank": rank, "pick": labels.get(rank, ""), "name": name})
    drawn = pl.concat(bars).select(pl.col(name).cast(dtype) for name, dtype in BAR.items())
    return Lanes(
        chart={
            "words": _words(timeline),
            "lanes": named,
            "bars": [drawn[name].to_list() for name in BAR],
            "late": _late(timeline),
        },
        tables=(_collectives(timeline),),
    )


def _of_rank(timeline: Timeline, rank: int) -> list[tuple[str, pl.DataFrame]]:
    """Name and bars of each lane of a rank."""
    mine = pl.col("rank") == rank
    phases = timeline.phases.filter(mine, pl.col("clock") == timeline.clock)
    length = timeline.windows["end_ns"].max() or 1
    assert isinstance(length, int)
    gap = length // FINEST
    named = [(f"{timeline.clock} phases", _joined(phases.select(*_span, part="phase"), gap))]
    work = timeline.operations.filter(mine, pl.col("kind") != "collective")
    busy = (
        work.group_by("stream")
        .agg(time=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .sort("time", descending=True)["stream"]
        .head(MOST_STREAMS)
    )
    for stream in busy.sort():
        bars = work.filter(pl.col("stream") == stream).select(
            *_span,
            part=pl.when("training")
            .then(pl.col("phase").fill_null("other"))
            .otherwise(pl.lit("background")),
            text="name",
        )
        named.append((f"stream {stream}", _joined(bars, gap)))
    calls = timeline.collectives.filter(mine)
    if calls.height:
        named.append(("collectives", _waits(calls)))
    return named


_span = (pl.col("start_ns").alias("start"), pl.col("end_ns").alias("end"))


def _joined(bars: pl.DataFrame, gap: int) -> pl.DataFrame:
    """Bars of one kind that nearly touch as one; the text of the longest, and how many they are."""
    named = bars if "text" in bars.columns else bars.with_columns(text=pl.lit(None, pl.String))
    ordered = named.sort("start", "end")
    until = pl.col("end").cum_max().shift()
    fresh = (pl.col("part").ne_missing(pl.col("part").shift())) | (pl.col("start") - until > gap)
    longest = (pl.col("end") - pl.col("start")).arg_max()
    return (
        ordered.with_columns(run=fresh.fill_null(True).cum_sum())
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


def _waits(calls: pl.DataFrame) -> pl.DataFrame:
    """Collectives from arrival to end: waiting first, then what is left."""
    until = pl.min_horizontal(
        "end_ns", pl.col("arrival_ns") + pl.col("wait_ns").fill_null(0).clip(0)
    )
    late = pl.format("; rank {} came last", "last_rank")
    text = pl.col("operation") + pl.when(pl.col("last_rank").is_null()).then(pl.lit("")).otherwise(
        late
    )
    waits = calls.select(start="arrival_ns", end=until, part=pl.lit("wait"), text=text).filter(
        pl.col("end") > pl.col("start")
    )
    rest = calls.select(start=until, end="end_ns", part=pl.lit("transfer"), text=text)
    return pl.concat([waits, rest])


def _late(timeline: Timeline) -> list[Document]:
    """at, rank: the arrival of who came last to the collective that cost the picks most."""
    instance = ["operation", "communicator", "place", "iteration", "ordinal"]
    calls = timeline.collectives.with_columns(cost=pl.col("wait_ns").sum().over(instance))
    last = calls.filter(pl.col("rank") == pl.col("last_rank"), pl.col("cost") > 0)
    worst = last.sort("cost", descending=True).head(1)
    return worst.select("rank", at="arrival_ns").to_dicts()


def _words(timeline: Timeline) -> str:
    """Which iteration, on what axis, and what to beware of."""
    residuals = timeline.ranks.filter(pl.col("axis") == "aligned")["residual_ns"].drop_nulls()
    finest = residuals.max()
    aligned = f" Their clocks are aligned to {brief(finest)}." if isinstance(finest, int) else ""
    warned = "".join(f" {each.message}." for each in timeline.problems)
    which = ", ".join(map(str, timeline.iterations))
    return (
        f"Iteration {which}, in which they differ most: phases, what ran on the device, and "
        f"collectives from the arrival on, waiting hatched.{aligned}{warned}"
    )


def _collectives(timeline: Timeline) -> Document:
    columns = ["rank", "operation", "ordinal", "arrival_ns", "end_ns", "wait_ns", "last_rank"]
    frame = timeline.collectives.select(columns).sort("operation", "ordinal", "rank")
    return table(
        "calls",
        "Collectives of the picked ranks",
        frame.head(1000),
        "timeline",
        note="ms since the first of these ranks' windows opened",
        labels={"last_rank": "came last"},
    )
