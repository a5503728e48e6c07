"""What the picture, the page and the Perfetto trace of a timeline share.

It is the arrival that they mark, the names of streams, the split of a collective into waiting and
transfer, and the lanes of the picture and of the page.
"""

from enum import StrEnum

import polars as pl
from msgspec import Struct

from rankscope.compare.timeline import LEAST_WAIT_NS, longest_waits
from rankscope.judge.levels import LEAST_GAIN
from rankscope.model.kinds import Phase
from rankscope.model.results import Timeline
from rankscope.output.palette import BACKGROUND
from rankscope.util.wording import counted, milliseconds

MOST_STREAMS, MOST_OVERLAPPING = 4, 6
"""Most lanes of a rank: of streams, the busiest ones, and of collectives."""

FINEST = 2000
"""Bars of a lane that are closer than 1/FINEST of the longest window are merged into one."""

BAR = pl.Schema({"start_ns": pl.Int64, "end_ns": pl.Int64, "part": pl.String, "text": pl.String})
"""A bar of a lane: `part` gives its colour (`Theme.parts`), `text` says more (null: nothing)."""


class LaneKind(StrEnum):
    """The content of a lane."""

    PHASES = "phases"
    STREAM = "stream"
    COLLECTIVES = "collectives"


class Lane(Struct, frozen=True):
    """A lane of a rank, with its bars: BAR."""

    kind: LaneKind
    name: str
    bars: pl.DataFrame


class TimelineLanes(Struct, frozen=True):
    """The lanes of a timeline.

    `of`: rank → its lanes from top to bottom. `streams`: the largest number of streams of a rank.
    """

    of: dict[int, tuple[Lane, ...]]
    streams: int

    @property
    def parts(self) -> set[str]:
        """The parts of all bars."""
        return {part for lanes in self.of.values() for lane in lanes for part in lane.bars["part"]}

    @property
    def notes(self) -> list[str]:
        """Streams that are left out."""
        if self.streams <= MOST_STREAMS:
            return []
        return [f"the {MOST_STREAMS} busiest of up to {self.streams} streams are shown"]


class LastArrival(Struct, frozen=True):
    """The collective that kept the shown ranks waiting longest, and its last arrival.

    Attributes:
        calls: TIMELINE_COLLECTIVES, the calls of the shown ranks that share one clock.
        rank: the rank that arrived last, among all ranks of the run.
        moment_ns: its arrival, on the axis of the timeline.
        shown: whether the timeline holds this rank.
    """

    calls: pl.DataFrame
    rank: int
    moment_ns: int
    shown: bool

    @property
    def longest_wait_ns(self) -> int:
        """The longest wait of a shown rank."""
        return int(self.calls["wait_ns"].to_numpy().max())


def last_arrival(timeline: Timeline) -> LastArrival | None:
    """The late arrival that cost the shown ranks most, or None if no rank clearly came last.

    The cost of an arrival is the sum of the waits of the shown ranks at that collective. Only ranks
    on the common clock count: the arrivals of the others cannot be compared. Waits that are a small
    part of the iteration accuse nobody.
    """
    worst = longest_waits(_calls_on_one_clock(timeline))
    if worst.is_empty() or int(worst["wait_ns"].to_numpy().max()) < _noteworthy_ns(timeline):
        return None
    rank = int(worst["last_rank"][0])
    arrivals = worst.filter(rank=rank)["arrival_ns"]
    # The waits of the others end when it arrives.
    estimated = (worst["arrival_ns"] + worst["wait_ns"]).median()
    assert isinstance(estimated, float | int)
    return LastArrival(
        calls=worst,
        rank=rank,
        moment_ns=int(arrivals[0]) if len(arrivals) else round(estimated),
        shown=rank in timeline.ranks["rank"],
    )


def who_waits(timeline: Timeline, late: LastArrival | None) -> str:
    """Who keeps the shown ranks waiting, and how long; or that this is not known."""
    incomplete = any(each.code == "waits-lower-bounds" for each in timeline.problems)
    if late is not None:
        operation = str(late.calls["operation"][0]).replace("_", "-")
        operation = operation.replace("rooted", "rooted collective")
        elsewhere = "" if late.shown else ", which is not shown,"
        among = "of the ranks with a report, " if incomplete else ""
        return (
            f"{among}rank {late.rank}{elsewhere} comes last to the {operation}, and others wait "
            f"up to {milliseconds(late.longest_wait_ns)} ms{_own_waits(timeline, late)}"
        )
    if timeline.collectives.is_empty():
        blind = any(each.code == "collectives-missing" for each in timeline.problems)
        return (
            "it is unknown who waits for whom, because no collective was recorded"
            if blind
            else "no collective, so no rank waits for another one"
        )
    calls = _calls_on_one_clock(timeline)
    if calls.is_empty():
        return "it is unknown who waits for whom, because the clocks are not aligned"
    unknown = calls["wait_ns"].null_count()
    longest = calls["wait_ns"].max()
    if isinstance(longest, int) and longest >= _noteworthy_ns(timeline):
        return (
            f"ranks wait up to {milliseconds(longest)} ms; for which rank is unknown, because the "
            "last ones arrive too close together"
        )
    if unknown:
        unmatched = counted(unknown, "collective call")
        return (
            f"it is unknown who waits for whom in {unmatched}, which are not matched across ranks"
        )
    most = ""
    if isinstance(longest, int) and longest >= LEAST_WAIT_NS:
        most = f" longer than {milliseconds(longest)} ms"
    return (
        "it is unknown who waits for whom, because ranks of the job have no report"
        if incomplete
        else f"no rank keeps the others waiting{most}{_late_end(timeline)}"
    )


def _noteworthy_ns(timeline: Timeline) -> float:
    """The shortest time that matters in the shown iterations."""
    lengths = timeline.windows["end_ns"] - timeline.windows["start_ns"]
    return max(LEAST_WAIT_NS, LEAST_GAIN * int(lengths.to_numpy().max()))


def _late_end(timeline: Timeline) -> str:
    """Who ends the iteration late; the others wait for it in the next one."""
    aligned = timeline.ranks.filter(axis="aligned")["rank"].to_list()
    ends = timeline.windows.filter(pl.col("rank").is_in(aligned))
    ends = ends.group_by("rank").agg(pl.col("end_ns").max()).sort("end_ns", "rank")
    late = ends["end_ns"][-1] - ends["end_ns"][0]
    if late < _noteworthy_ns(timeline):
        return ""
    return f"; rank {ends['rank'][-1]} ends {milliseconds(late)} ms after the first one"


def _own_waits(timeline: Timeline, late: LastArrival) -> str:
    """Whether the last rank was held up as long by calls of its own before.

    It may then be late because of another one, as the first stage of a pipeline is.
    """
    before = timeline.collectives.filter(
        pl.col("rank") == late.rank, pl.col("end_ns") <= late.moment_ns
    )
    held = before.select(pl.coalesce("wait_ns", pl.col("end_ns") - pl.col("arrival_ns")).sum())
    return "; it may have waited itself" if held.item() >= late.longest_wait_ns else ""


def _calls_on_one_clock(timeline: Timeline) -> pl.DataFrame:
    """TIMELINE_COLLECTIVES of the ranks that share one clock."""
    aligned = timeline.ranks.filter(axis="aligned")["rank"].to_list()
    return timeline.collectives.filter(pl.col("rank").is_in(aligned))


def named_streams(timeline: Timeline) -> pl.DataFrame:
    """Device operations with the name of their stream.

    Streams of different contexts or devices may have the same number. The name says the context
    and the device where a rank has several.

    Returns:
        TIMELINE_OPERATIONS and stream_name (String): `stream 7`, `stream 7 of context 2`,
        `stream 7 of context 2 on device 1`.
    """
    several = timeline.operations.group_by("rank").agg(
        contexts=pl.col("context").n_unique() > 1, devices=pl.col("device").n_unique() > 1
    )
    context = pl.when("contexts").then(pl.format(" of context {}", "context")).otherwise(pl.lit(""))
    device = pl.when("devices").then(pl.format(" on device {}", "device")).otherwise(pl.lit(""))
    return (
        timeline.operations.join(several, on="rank", maintain_order="left")
        .with_columns(stream_name=pl.format("stream {}{}{}", "stream", context, device))
        .drop("contexts", "devices")
    )


def timeline_lanes(timeline: Timeline) -> TimelineLanes:
    """The phases, busiest streams and collectives (arrival to end) of each rank."""
    work = named_streams(timeline).filter(pl.col("kind") != "collective")
    streams = work.group_by("rank").agg(pl.col("stream_name").n_unique())["stream_name"].max()
    return TimelineLanes(
        {rank: _rank_lanes(timeline, work, rank) for rank in timeline.ranks["rank"]},
        streams if isinstance(streams, int) else 0,
    )


def _rank_lanes(timeline: Timeline, work: pl.DataFrame, rank: int) -> tuple[Lane, ...]:
    """The lanes of a rank.

    Args:
        work: TIMELINE_OPERATIONS with stream_name, without collectives.
    """
    length = timeline.windows["end_ns"].max() or 1
    assert isinstance(length, int)
    gap = length // FINEST
    text = pl.lit(None, pl.String)
    phases = timeline.phases.filter(rank=rank, clock=timeline.clock)
    bars = phases.select("start_ns", "end_ns", part="phase", text=text)
    lanes = [Lane(LaneKind.PHASES, f"{timeline.clock} phases", _merged(bars, gap))]
    for stream in _busiest_streams(work.filter(rank=rank)):
        phase = pl.col("phase").fill_null(Phase.OTHER.value)
        bars = work.filter(rank=rank, stream_name=stream).select(
            "start_ns",
            "end_ns",
            part=pl.when("training").then(phase).otherwise(pl.lit(BACKGROUND)),
            text="name",
        )
        lanes.append(Lane(LaneKind.STREAM, stream, _merged(bars, gap)))
    calls = in_lanes(timeline.collectives.filter(rank=rank))
    for place in calls["lane"].unique().sort():
        name = f"collectives ({place + 1})" if place else "collectives"
        bars = _collective_bars(calls.filter(lane=place))
        lanes.append(Lane(LaneKind.COLLECTIVES, name, bars))
    return tuple(lanes)


def _busiest_streams(work: pl.DataFrame) -> list[str]:
    """Names of the streams of a rank with the longest device time, busiest first."""
    busy = pl.col("end_ns") - pl.col("start_ns")
    streams = work.group_by("stream_name").agg(busy=busy.sum())
    ordered = streams.sort("busy", "stream_name", descending=[True, False])
    return ordered["stream_name"].head(MOST_STREAMS).to_list()


def _merged(bars: pl.DataFrame, gap: int) -> pl.DataFrame:
    """Bars, with neighbours of the same part merged if they are at most `gap` ns apart.

    The text of a merged bar is the count of its operations and the text of the longest one.
    """
    until = pl.col("end_ns").cum_max().shift()
    starts = pl.col("part").ne_missing(pl.col("part").shift()) | (pl.col("start_ns") - until > gap)
    longest = (pl.col("end_ns") - pl.col("start_ns")).arg_max()
    return (
        bars.sort("start_ns", "end_ns")
        .with_columns(run=starts.fill_null(True).cum_sum())
        .group_by("run", maintain_order=True)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("part").first(),
            pl.col("text").get(longest),
            count=pl.len(),
        )
        .with_columns(
            text=pl.when(pl.col("text").is_not_null() & (pl.col("count") > 1))
            .then(pl.format("{} operations, longest: {}", "count", "text"))
            .otherwise("text")
        )
        .select(pl.col(name).cast(dtype) for name, dtype in BAR.items())
    )


def _collective_bars(calls: pl.DataFrame) -> pl.DataFrame:
    """Bars of collectives from arrival to end: waiting, then transfer."""
    last = pl.format("; rank {} came last", "last_rank")
    known = pl.col("last_rank").is_not_null()
    text = pl.col("operation") + pl.when(known).then(last).otherwise(pl.lit(""))
    bars = _collective_parts(calls).with_columns(text=text)
    return bars.select(pl.col(name).cast(dtype) for name, dtype in BAR.items())


def in_lanes(calls: pl.DataFrame, most: int = MOST_OVERLAPPING) -> pl.DataFrame:
    """Collectives of a rank with the lane of each, so that those that overlap lie in several.

    Args:
        most: the most lanes; where more overlap, the last lane has several of them.

    Returns:
        The rows of `calls` by arrival, and lane (Int64, from 0).
    """
    ordered = calls.sort("arrival_ns", "end_ns")
    ends: list[int] = []
    lanes: list[int] = []
    for start, end in ordered.select("arrival_ns", "end_ns").iter_rows():
        free = next((lane for lane, last in enumerate(ends) if last <= start), len(ends))
        lane = min(free, most - 1)
        if lane == len(ends):
            ends.append(end)
        ends[lane] = max(ends[lane], end)
        lanes.append(lane)
    return ordered.with_columns(lane=pl.Series(lanes, dtype=pl.Int64))


def _collective_parts(calls: pl.DataFrame) -> pl.DataFrame:
    """Collectives split into waiting for the last rank and the transfer after it.

    Args:
        calls: TIMELINE_COLLECTIVES.

    Returns:
        The columns of `calls`, with start_ns and end_ns (ns, of the part) and part: `wait` or
        `transfer`; `exposed_communication`, whole, where the wait is unknown. Parts without
        length are left out, except for the transfer.
    """
    waited = (pl.col("arrival_ns") + pl.col("wait_ns").clip(0)).clip(upper_bound="end_ns")
    matched = calls.filter(pl.col("wait_ns").is_not_null())
    unmatched = calls.filter(pl.col("wait_ns").is_null())
    waits = matched.with_columns(start_ns="arrival_ns", end_ns=waited, part=pl.lit("wait"))
    return pl.concat(
        [
            waits.filter(pl.col("end_ns") > pl.col("start_ns")),
            matched.with_columns(start_ns=waited, part=pl.lit("transfer")),
            unmatched.with_columns(start_ns="arrival_ns", part=pl.lit("exposed_communication")),
        ]
    )
