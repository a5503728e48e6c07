"""A timeline as a trace in Chrome's JSON format, for ui.perfetto.dev and chrome://tracing.

Ranks are processes. Their tracks are: the phases inside their iterations, on either clock; the
states of the training thread, if the report records them (with the names of `plot why`); waits;
collectives; and the streams of the device. When a rank arrives last at a collective, arrows lead
from its phase at that moment to the ranks that waited.

Viewers drop an event that overlaps another event of its track without lying inside it. So tracks
with such events are split into lanes.

Times are µs since the timeline's 0, with three decimals: whole ns.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.model.intervals import lanes
from rankscope.model.kinds import PARTS, Clock
from rankscope.model.results import Timeline
from rankscope.output.palette import STATE_NAMES, part_name
from rankscope.output.timeline_views import named_streams
from rankscope.util.sanitize import sanitized

TRACK = ["rank", "order", "track", "lane"]
"""Columns that identify a track, in the order from top to bottom."""

MOST_BYTES = 500_000_000
"""The largest trace that is written, as JSON.

Chromium opened 486 MB, 2.7 million events, with 1.1 GB for the page; browsers give a page some 2
GB. 900 MB have been too much (google/perfetto#99).
"""

LONGEST_NAME = 300
"""Most characters of a name; in long kernel names, the beginning tells them apart."""


class _Slices(Struct, frozen=True):
    """Events of one kind: `frame` has rank, order, track, start_ns, end_ns, name, `arguments`."""

    category: str
    frame: pl.DataFrame
    arguments: tuple[str, ...]
    nested: bool = False  # events are disjoint or inside each other; none overlaps in part


class _Ties(Struct, frozen=True):
    """The input of arrows; small, since it is kept until all parts are written.

    Attributes:
        ranks: those of the part: TIMELINE_RANKS.
        spans: its phases, with TRACK and tid.
        transfers: its transfers, with TRACK and tid.
        calls: its collectives, with TRACK and tid.
    """

    ranks: pl.DataFrame
    spans: pl.DataFrame
    transfers: pl.DataFrame
    calls: pl.DataFrame


def trace(
    parts: Iterable[Timeline], about: Mapping[str, object], labels: Mapping[int, str]
) -> Iterator[bytes]:
    """The trace as JSON, in UTF-8: a piece for each part, and one with the arrows between them.

    Args:
        parts: timelines of different ranks on one axis (`compare.timeline.timelines`).
        labels: rank → the reason why it is shown.
    """
    head = {"displayTimeUnit": "ms", "otherData": dict(about)}
    before = json.dumps(head)[:-1] + ', "traceEvents": [\n'
    ties: list[_Ties] = []
    for part in parts:
        events, tie = _events(part, labels)
        ties.append(tie)
        yield (before + ",\n".join(events)).encode()
        before = ",\n"
    yield ("".join(f",\n{event}" for event in _arrows(ties)) + "\n]}\n").encode()


def _events(timeline: Timeline, labels: Mapping[int, str]) -> tuple[list[str], _Ties]:
    """The events of a part, and the input of the arrows between parts."""
    kinds = [
        _Slices("phase", _spans(timeline), ("iteration",), nested=True),
        _Slices("thread", _states(timeline), ("iteration", "state"), nested=True),
        _Slices("wait", _waits(timeline), ("iteration", "operation", "ordinal", "last_rank")),
        _Slices(
            "collective",
            _collectives(timeline),
            (
                "iteration", "operation", "communicator", "ordinal", "gradient", "bytes",
                "arrival_ns", "wait_ns", "last_rank",
            ),
        ),
        _Slices(
            "device",
            named_streams(timeline).with_columns(order=pl.col("stream") + 5, track="stream_name"),
            ("iteration", "kind", "phase", "launch_ns", "bytes", "training"),
        ),
    ]  # fmt: skip
    kinds = [_laid_out(each) for each in kinds]
    threads = _threads(kinds)
    spans, states, waits, collectives, operations = (
        replace(each, frame=each.frame.join(threads, on=TRACK, maintain_order="left"))
        for each in kinds
    )
    transfers = _transfers(collectives)
    events = [
        *_processes(timeline, labels),
        *_thread_names(threads),
        *(
            line
            for each in (spans, states, waits, collectives, transfers, operations)
            for line in _complete(each)
        ),
    ]
    return events, _Ties(timeline.ranks, spans.frame, transfers.frame, collectives.frame)


def _spans(timeline: Timeline) -> pl.DataFrame:
    """Iterations, and the phases inside them; the outer event comes first."""
    order = (pl.col("clock") != timeline.clock).cast(pl.Int64)
    windows = timeline.windows.with_columns(
        name=pl.format("iteration {}", "iteration"), depth=pl.lit(0)
    )
    names = {part: part_name(part) for part in PARTS}
    phases = timeline.phases.with_columns(
        name=pl.col("phase").replace(names), depth=pl.lit(1)
    ).drop("phase")
    return (
        pl.concat([windows, phases.select(windows.columns)])
        .with_columns(order=order, track=pl.format("{} clock", "clock"))
        .sort("rank", "order", "start_ns", "depth")
    )


def _states(timeline: Timeline) -> pl.DataFrame:
    """States of the training thread."""
    named = pl.col("state").replace({str(state): name for state, name in STATE_NAMES.items()})
    return timeline.states.with_columns(
        name=pl.when(pl.col("name") == "")
        .then(named)
        .otherwise(pl.format("{}: {}", named, "name")),
        order=pl.lit(2, pl.Int64),
        track=pl.lit("training thread"),
    )


def _waits(timeline: Timeline) -> pl.DataFrame:
    """Waiting for collectives; where waits overlap, the first arrival counts."""
    until = pl.col("arrival_ns") + pl.col("wait_ns")
    return (
        timeline.collectives.drop_nulls("wait_ns")
        .sort("rank", "arrival_ns", "end_ns")
        .with_columns(end_ns=until)
        .with_columns(claimed=pl.col("end_ns").cum_max().shift().over("rank"))
        .with_columns(
            start_ns=pl.max_horizontal("arrival_ns", "claimed"),
            name=pl.when(pl.col("last_rank").is_null())
            .then(pl.lit("wait"))
            .otherwise(pl.format("wait for rank {}", "last_rank")),
            order=pl.lit(3, pl.Int64),
            track=pl.lit("waits"),
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )


def _collectives(timeline: Timeline) -> pl.DataFrame:
    return timeline.collectives.with_columns(
        name=pl.format("{} {}", "operation", "ordinal"),
        order=pl.lit(4, pl.Int64),
        track=pl.format("collectives ({})", "communicator"),
    )


def _laid_out(slices: _Slices) -> _Slices:
    """The events with sanitized names and tracks, and the `lane` of each in its track."""
    frame = slices.frame.with_columns(
        _sanitized(slices.frame, name) for name in ("name", "track")
    ).sort("rank", "order", "track", maintain_order=True)
    if slices.nested or frame.is_empty():
        return replace(slices, frame=frame.with_columns(lane=pl.lit(0, pl.Int64)))
    tracks = frame.partition_by("rank", "order", "track", maintain_order=True)
    lanes_by_track = [
        lanes(each["start_ns"].to_numpy(), each["end_ns"].to_numpy()) for each in tracks
    ]
    placed = pl.concat(
        track.with_columns(lane=pl.Series(lane, dtype=pl.Int64))
        for track, lane in zip(tracks, lanes_by_track, strict=True)
    )
    return replace(slices, frame=placed)


def _sanitized(frame: pl.DataFrame, column: str) -> pl.Series:
    """A column of names, sanitized; each distinct name is handled once."""
    distinct = frame[column].drop_nulls().unique()
    shown = {name: sanitized(name, LONGEST_NAME) for name in distinct}
    return frame[column].replace_strict(shown, default=None, return_dtype=pl.String)


def _threads(kinds: Iterable[_Slices]) -> pl.DataFrame:
    """The tracks of every rank from top to bottom, with their numbers: TRACK and tid.

    No tid equals its rank: viewers take such a track for the main thread and put it first.
    """
    tracks = pl.concat(each.frame.select(TRACK) for each in kinds)
    place = pl.int_range(1, pl.len() + 1).over("rank")
    skipped = (place >= pl.col("rank")) & (pl.col("rank") > 0)
    return tracks.unique().sort(TRACK).with_columns(tid=place + skipped.cast(pl.Int64))


def _complete(slices: _Slices) -> list[str]:
    """Complete events, which have a start and a duration."""
    frame = slices.frame
    return _lines(
        frame,
        ph=pl.lit("X"),
        cat=pl.lit(slices.category),
        name="name",
        pid="rank",
        tid="tid",
        ts=_microseconds(frame["start_ns"]),
        dur=_microseconds(frame["end_ns"] - frame["start_ns"]),
        args=pl.struct(slices.arguments),
    )


def _transfers(collectives: _Slices) -> _Slices:
    """The transfers: from the end of the wait to the end of the slice of a waiting rank."""
    free = pl.max_horizontal("start_ns", pl.col("arrival_ns") + pl.col("wait_ns"))
    waited = collectives.frame.filter(pl.col("wait_ns") > 0)
    inner = waited.with_columns(name=pl.lit("transfer"), start_ns=free)
    return _Slices("transfer", inner.filter(pl.col("end_ns") > free), ("iteration",), nested=True)


def _arrows(ties: Sequence[_Ties]) -> list[str]:
    """Arrows from the phase of the rank that came last to the transfers of the waiting ranks.

    Only aligned ranks have arrows, and only if their clocks agree well enough to order cause and
    effect. Perfetto reverses an arrow whose first slice starts later than its second slice. So
    the arrow starts in the phase before the arrival, not in the collective after it.
    """
    ranks, spans, transfers, calls = (
        pl.concat(getattr(tie, name) for tie in ties)
        for name in ("ranks", "spans", "transfers", "calls")
    )
    aligned = ranks.filter(pl.col("axis") == "aligned")["rank"].implode()
    late = calls.filter(pl.col("rank") == pl.col("last_rank"))
    before = (
        late.filter(pl.col("rank").is_in(aligned))
        .with_columns(
            clock=pl.when(pl.col("place") == "device")
            .then(pl.lit(Clock.GPU.value))
            .otherwise("place"),
            late_ns=pl.col("arrival_ns") - 1,
        )
        .sort("late_ns")
        .join_asof(
            spans.filter(depth=1)
            .select("rank", "clock", since="start_ns", until="end_ns", late_tid="tid")
            .sort("since"),
            left_on="late_ns",
            right_on="since",
            by=["rank", "clock"],
            strategy="backward",
            check_sortedness=False,  # polars cannot check it per group; both sides are sorted
        )
        .filter(pl.col("late_ns") < pl.col("until"))
        .select("instance", "late_ns", "since", "late_tid")
    )
    pairs = (
        transfers.filter(pl.col("rank").is_in(aligned))
        .join(before, on="instance")
        .with_columns(free_ns=pl.max_horizontal("start_ns", "late_ns"))
        .filter(pl.col("free_ns") < pl.col("end_ns"), pl.col("start_ns") >= pl.col("since"))
        .with_columns(id=pl.int_range(1, pl.len() + 1))
    )

    def half(phase: str, at: str, pid: str, tid: str, **more: pl.Expr) -> list[str]:
        return _lines(
            pairs,
            ph=pl.lit(phase),
            **more,
            cat=pl.lit("arrival"),
            name=pl.lit("came last"),
            id="id",
            pid=pid,
            tid=tid,
            ts=_microseconds(pairs[at]),
        )

    # The end binds to the slice around it, not to the next one.
    ends = half("f", "free_ns", "rank", "tid", bp=pl.lit("e"))
    return half("s", "late_ns", "last_rank", "late_tid") + ends


def _microseconds(times: pl.Series) -> pl.Series:
    """Whole ns as µs, each the float nearest to its three decimals (division in polars is not)."""
    return pl.Series(times.to_numpy() / 1000, dtype=pl.Float64)


def _lines(frame: pl.DataFrame, **fields: pl.Expr | pl.Series | str) -> list[str]:
    """A JSON object per row. A field given as a string is the name of a column."""
    objects = frame.select(**fields).select(pl.struct(pl.all()).struct.json_encode().alias("line"))
    return objects["line"].to_list()


def _processes(timeline: Timeline, labels: Mapping[int, str]) -> list[str]:
    """Metadata events with the name, position and labels of each rank."""
    events: list[str] = []
    for rank, host, axis in timeline.ranks.select("rank", "host", "axis").sort("rank").iter_rows():
        name = f"rank {rank}" + (f" ({sanitized(host)})" if host else "")
        texts = [labels.get(rank, ""), "" if axis == "aligned" else "clock not aligned"]
        events += [
            _metadata(rank, 0, "process_name", name=name),
            _metadata(rank, 0, "process_sort_index", sort_index=rank),
        ]
        if why := ", ".join(filter(None, texts)):
            events.append(_metadata(rank, 0, "process_labels", labels=why))
    return events


def _thread_names(threads: pl.DataFrame) -> list[str]:
    """Metadata events with the name and position of each track."""
    events: list[str] = []
    for row in threads.iter_rows(named=True):
        more = f", {row['lane'] + 1}" if row["lane"] else ""
        events += [
            _metadata(row["rank"], row["tid"], "thread_name", name=row["track"] + more),
            _metadata(row["rank"], row["tid"], "thread_sort_index", sort_index=row["tid"]),
        ]
    return events


def _metadata(pid: int, tid: int, kind: str, **args: object) -> str:
    """A metadata event."""
    return json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args})
