"""A timeline → a trace in Chrome's JSON format, for ui.perfetto.dev and chrome://tracing.

Ranks are processes. Their tracks are the phases on either clock inside their iterations, waits,
collectives, and the device's streams; an arrow leads from what a rank was at when it came last to
a collective, to those who waited. Viewers drop an event that overlaps another of its track
without lying inside it, so tracks whose events do are split into lanes.

Times are µs from the timeline's 0, with three decimals: whole ns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from rankscope.model.intervals import lanes
from rankscope.model.results import Timeline
from rankscope.util.sanitize import sanitized

TRACK = ["rank", "order", "track", "lane"]

LONGEST_NAME = 300
"""Kernel names are templates of templates; what tells them apart comes first."""


@dataclass(frozen=True, slots=True)
class _Slices:
    """Events of one kind: `frame` has rank, order, track, start_ns, end_ns, name, `arguments`."""

    category: str
    frame: pl.DataFrame
    arguments: tuple[str, ...]
    nested: bool = False  # its events lie inside one another or apart, never across


def trace(timeline: Timeline, about: Mapping[str, object], labels: Mapping[int, str]) -> bytes:
    """The trace as JSON.

    Args:
        timeline: what to show.
        about: facts for the trace's metadata.
        labels: rank → why it is shown.
    """
    kinds = [
        _Slices("phase", _spans(timeline), ("iteration",), nested=True),
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
            _operations(timeline),
            ("iteration", "kind", "phase", "launch_ns", "bytes", "training"),
        ),
    ]  # fmt: skip
    kinds = [_laid_out(each) for each in kinds]
    threads = _threads(kinds)
    spans, waits, collectives, operations = (_numbered(each, threads) for each in kinds)
    transfers = _transfers(collectives)
    late = collectives.frame.filter(pl.col("rank") == pl.col("last_rank"))
    events = [
        *_processes(timeline, labels),
        *_names_of(threads),
        *(
            line
            for each in (spans, waits, collectives, transfers, operations)
            for line in _complete(each)
        ),
        *_arrows(spans, transfers, late, timeline),
    ]
    head = {"displayTimeUnit": "ms", "otherData": dict(about)}
    return (json.dumps(head)[:-1] + ', "traceEvents": [\n' + ",\n".join(events) + "\n]}\n").encode()


def _spans(timeline: Timeline) -> pl.DataFrame:
    """Iterations, and the phases inside them: the outer first."""
    order = (pl.col("clock") != timeline.clock).cast(pl.Int64)
    windows = timeline.windows.with_columns(
        name=pl.format("iteration {}", "iteration"), depth=pl.lit(0)
    )
    phases = timeline.phases.rename({"phase": "name"}).with_columns(depth=pl.lit(1))
    return (
        pl.concat([windows, phases.select(windows.columns)])
        .with_columns(order=order, track=pl.format("{} clock", "clock"))
        .sort("rank", "order", "start_ns", "depth")
    )


def _waits(timeline: Timeline) -> pl.DataFrame:
    """Waiting for collectives; where waits overlap it is for the one arrived at first."""
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
            order=pl.lit(2, pl.Int64),
            track=pl.lit("waits"),
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )


def _collectives(timeline: Timeline) -> pl.DataFrame:
    return timeline.collectives.with_columns(
        name=pl.format("{} {}", "operation", "ordinal"),
        order=pl.lit(3, pl.Int64),
        track=pl.format("collectives ({})", "communicator"),
    )


def _operations(timeline: Timeline) -> pl.DataFrame:
    """Device work; contexts and devices are named only where there are several."""
    several = timeline.operations.group_by("rank").agg(
        contexts=pl.col("context").n_unique() > 1, devices=pl.col("device").n_unique() > 1
    )
    context = pl.when("contexts").then(pl.format(" of context {}", "context")).otherwise(pl.lit(""))
    device = pl.when("devices").then(pl.format(" on device {}", "device")).otherwise(pl.lit(""))
    return timeline.operations.join(several, on="rank").with_columns(
        order=pl.col("stream") + 4, track=pl.format("stream {}{}{}", "stream", context, device)
    )


def _laid_out(slices: _Slices) -> _Slices:
    """The events with harmless names and tracks, and the `lane` of its track that each is in."""
    frame = slices.frame.with_columns(
        _harmless(slices.frame, name) for name in ("name", "track")
    ).sort("rank", "order", "track", maintain_order=True)
    if slices.nested or frame.is_empty():
        return replace(slices, frame=frame.with_columns(lane=pl.lit(0, pl.Int64)))
    tracks = frame.partition_by("rank", "order", "track", maintain_order=True)
    found = [lanes(each["start_ns"].to_numpy(), each["end_ns"].to_numpy()) for each in tracks]
    placed = pl.concat(
        track.with_columns(lane=pl.Series(lane, dtype=pl.Int64))
        for track, lane in zip(tracks, found, strict=True)
    )
    return replace(slices, frame=placed)


def _harmless(frame: pl.DataFrame, column: str) -> pl.Series:
    """Names as text that no viewer can take for anything else; each distinct one looked at once."""
    distinct = frame[column].drop_nulls().unique()
    shown = {name: sanitized(name, LONGEST_NAME) for name in distinct}
    return frame[column].replace_strict(shown, default=None, return_dtype=pl.String)


def _threads(kinds: Iterable[_Slices]) -> pl.DataFrame:
    """The tracks of every rank from top to bottom, with their numbers: TRACK, tid.

    None has its rank's number: viewers take that one for the main thread, and put it first.
    """
    every = pl.concat(each.frame.select(TRACK) for each in kinds)
    place = pl.int_range(1, pl.len() + 1).over("rank")
    skipped = (place >= pl.col("rank")) & (pl.col("rank") > 0)
    return every.unique().sort(TRACK).with_columns(tid=place + skipped.cast(pl.Int64))


def _numbered(slices: _Slices, threads: pl.DataFrame) -> _Slices:
    """The events with their track's number."""
    return replace(slices, frame=slices.frame.join(threads, on=TRACK, maintain_order="left"))


def _complete(slices: _Slices) -> list[str]:
    """Complete events: a start and a duration."""
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
    """What is left of a collective once all have come, inside the slice of one who waited."""
    free = pl.max_horizontal("start_ns", pl.col("arrival_ns") + pl.col("wait_ns"))
    waited = collectives.frame.filter(pl.col("wait_ns") > 0)
    inner = waited.with_columns(name=pl.lit("transfer"), start_ns=free)
    return _Slices("transfer", inner.filter(pl.col("end_ns") > free), ("iteration",), nested=True)


def _arrows(
    spans: _Slices, transfers: _Slices, late: pl.DataFrame, timeline: Timeline
) -> list[str]:
    """From what a rank was at when it came last, to the transfers of those that waited for it.

    Only between aligned ranks, and not where their clocks agree too poorly to tell cause and
    effect. Perfetto turns an arrow round whose first slice starts later than its second: so it
    leads from the phase before the arrival, not from the collective after it.

    Args:
        spans: the phases, with TRACK and tid.
        transfers: those of all ranks, with TRACK and tid.
        late: the collectives of the ranks that came last to them.
        timeline: whose ranks say how they are aligned.
    """
    aligned = timeline.ranks.filter(pl.col("axis") == "aligned")["rank"].implode()
    before = (
        late.filter(pl.col("rank").is_in(aligned))
        .with_columns(
            clock=pl.when(pl.col("place") == "device").then(pl.lit("gpu")).otherwise("place"),
            late_ns=pl.col("arrival_ns") - 1,
        )
        .sort("late_ns")
        .join_asof(
            spans.frame.filter(depth=1)
            .select("rank", "clock", since="start_ns", until="end_ns", late_tid="tid")
            .sort("since"),
            left_on="late_ns",
            right_on="since",
            by=["rank", "clock"],
            strategy="backward",
            check_sortedness=False,  # it cannot be checked by group; both are sorted
        )
        .filter(pl.col("late_ns") < pl.col("until"))
        .select("instance", "late_ns", "since", "late_tid")
    )
    pairs = (
        transfers.frame.filter(pl.col("rank").is_in(aligned))
        .join(before, on="instance")
        .with_columns(free_ns=pl.max_horizontal("start_ns", "late_ns"))
        .filter(pl.col("free_ns") < pl.col("end_ns"), pl.col("start_ns") >= pl.col("since"))
        .with_columns(id=pl.int_range(1, pl.len() + 1))
    )
    starts = _lines(
        pairs,
        ph=pl.lit("s"),
        cat=pl.lit("arrival"),
        name=pl.lit("came last"),
        id="id",
        pid="last_rank",
        tid="late_tid",
        ts=_microseconds(pairs["late_ns"]),
    )
    ends = _lines(
        pairs,
        ph=pl.lit("f"),
        bp=pl.lit("e"),  # to the slice around it, not to the next
        cat=pl.lit("arrival"),
        name=pl.lit("came last"),
        id="id",
        pid="rank",
        tid="tid",
        ts=_microseconds(pairs["free_ns"]),
    )
    return starts + ends


def _microseconds(times: pl.Series) -> pl.Series:
    """Whole ns as µs, each the nearest number to its three decimals (polars' quotient is not)."""
    return pl.Series(times.to_numpy() / 1000, dtype=pl.Float64)


def _lines(frame: pl.DataFrame, **fields: pl.Expr | pl.Series | str) -> list[str]:
    """A JSON object per row; a string names a column."""
    objects = frame.select(**fields).select(pl.struct(pl.all()).struct.json_encode().alias("line"))
    return objects["line"].to_list()


def _processes(timeline: Timeline, labels: Mapping[int, str]) -> list[str]:
    """Names of the ranks, in their order."""
    events: list[str] = []
    for rank, host, axis in timeline.ranks.select("rank", "host", "axis").sort("rank").iter_rows():
        name = f"rank {rank}" + (f" ({sanitized(host)})" if host else "")
        told = [labels.get(rank, ""), "" if axis == "aligned" else "clock not aligned"]
        events += [
            _told(rank, 0, "process_name", name=name),
            _told(rank, 0, "process_sort_index", sort_index=rank),
            _told(rank, 0, "process_labels", labels=", ".join(filter(None, told))),
        ]
    return events


def _names_of(threads: pl.DataFrame) -> list[str]:
    events: list[str] = []
    for row in threads.iter_rows(named=True):
        more = f", {row['lane'] + 1}" if row["lane"] else ""
        events += [
            _told(row["rank"], row["tid"], "thread_name", name=row["track"] + more),
            _told(row["rank"], row["tid"], "thread_sort_index", sort_index=row["tid"]),
        ]
    return events


def _told(pid: int, tid: int, what: str, **args: object) -> str:
    """A metadata event."""
    return json.dumps({"ph": "M", "pid": pid, "tid": tid, "name": what, "args": args})
