"""Traces for Perfetto: what its importer keeps, what it would drop, and names that are only text.

The importer's rules are spelled out here: events of one track that start inside one another must
end there too (it drops the others), and an arrow's ends must each lie in a slice of their track.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

import rankscope
from rankscope.model.results import Timeline
from tests.support import (
    MS,
    MakeForged,
    MakeStored,
    asked,
    copied,
    mostly_slow,
    traced,
    with_rows,
    with_table,
)

Event = dict[str, Any]

HOSTILE = [
    '</script><script>alert("x")',
    "\x1b[31mred\x1b[0m",
    "line\nbreak",
    '\\" }]',
    "\u202eover",
    "x" * 9_999,
    "nul\0inside",
]


def strict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({*dict(pairs)}) == len(pairs), "a key twice"
    return dict(pairs)


def events_of(content: bytes) -> list[Event]:
    """The events, after everything that a viewer demands of them."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    output = json.loads(content, object_pairs_hook=strict, parse_constant=refuse)
    events = output["traceEvents"]
    for event in events:
        assert event.keys() >= {"ph", "pid", "tid", "name"}
        if event["ph"] == "M":
            continue
        assert nanoseconds(event["ts"]) >= 0, "negative times are dropped"
        if event["ph"] == "X":
            assert nanoseconds(event["dur"]) >= 0
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] != "M"}
    assert named == used
    assert all(pid != tid for pid, tid in named), "would be taken for the main thread"
    assert {e["pid"] for e in events if e["name"] == "process_name"} >= {pid for pid, _ in used}
    assert_imported_whole(events)
    return events


def nanoseconds(microseconds: float) -> int:
    """As the importer rounds them; nothing may be lost by it."""
    whole = round(microseconds * 1000)
    assert microseconds == whole / 1000
    return whole


def assert_imported_whole(events: list[Event]) -> None:
    """Slices nest on every track, and arrows bind to slices, in the order of time, then of file."""
    open_until: dict[tuple[int, int], list[int]] = {}
    begun: Counter[int] = Counter()
    timed = [event for event in events if event["ph"] != "M"]
    for event in sorted(timed, key=lambda event: nanoseconds(event["ts"])):
        moment = nanoseconds(event["ts"])
        stack = open_until.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1] <= moment:
            stack.pop()
        if event["ph"] == "X":
            end = moment + nanoseconds(event["dur"])
            assert not stack or end <= stack[-1], f"would be dropped: {event}"
            stack.append(end)
        elif event["ph"] == "s":
            assert stack, f"starts nowhere: {event}"
            begun[event["id"]] += 1
        else:
            assert (event["ph"], event["bp"]) == ("f", "e")
            assert stack, f"ends nowhere: {event}"
            assert begun.pop(event["id"]) == 1
    assert not begun


def slices(events: list[Event], category: str) -> list[Event]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


@pytest.mark.parametrize(
    "name", mostly_slow(["buckets", "host_only", "tensor_parallel", "dali", "free_running"], slow=1)
)
def test_every_event_is_one_that_a_viewer_keeps(stored: MakeStored, name: str) -> None:
    timeline = stored(name).timeline([3, 0, 1], range(30))
    events = events_of(traced(timeline))
    for category, frame in (
        ("device", timeline.operations),
        ("collective", timeline.collectives),
    ):
        output = slices(events, category)
        assert len(output) == frame.height
        assert (
            sum(nanoseconds(event["dur"]) for event in output)
            == (frame["end_ns"] - frame["start_ns"]).sum()
        )
    spans = slices(events, "phase")
    assert len(spans) == timeline.windows.height + timeline.phases.height
    if name == "tensor_parallel":
        tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
        assert len([track for track in tracks if track.startswith("collectives")]) == 2


@pytest.mark.slow
def test_what_the_training_thread_did_has_a_track(forged: MakeForged, tmp_path: Path) -> None:
    """Planted in iteration 5: off the CPU for 1 ms, then a read of 2 ms, 1.5 of them off it."""
    reports = copied(forged("host_only").reports, tmp_path / "reports")
    step = "SELECT globalTid, start FROM NVTX_EVENTS WHERE text = 'step 5'"
    [(thread, start)] = asked(reports[1], step)
    off, call = start + MS, start + 4 * MS
    switches = [(0, 1), (off, 0), (off + MS, 1), (call, 0), (call + 3 * MS // 2, 1)]
    rows = [(at, on, thread) for at, on in switches]
    with_table(reports[1], "SCHED_EVENTS", "start, isSchedIn, globalTid", *rows)
    read = (call, call + 2 * MS, thread, 980001)
    with_table(reports[1], "OSRT_API", "start, end, globalTid, nameId", read)
    with_rows(reports[1], "StringIds", (980001, "read\x1b"))
    run = rankscope.ingest([tmp_path / "reports"], tmp_path / "db")
    events = events_of(traced(run.timeline([1, 0], [5])))
    output = [event for event in slices(events, "thread") if event["pid"] == 1]
    lengths = [(event["name"], nanoseconds(event["dur"])) for event in output]
    assert lengths[1:4] == [
        ("off the CPU", MS),
        ("on the CPU", 2 * MS),
        ("blocked in a call: read<U+001B>", 3 * MS // 2),
    ]
    assert ("on the CPU: read<U+001B>", MS // 2) in lengths
    assert [output[3]["args"][key] for key in ("iteration", "state")] == [5, "blocked"]
    window = (
        run.tables.table("measures")
        .filter(rank=1, iteration=5, clock="host")["iteration_ns"]
        .item()
    )
    assert sum(length for _, length in lengths) == window
    tracks = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 1]
    assert tracks.index("training thread") == tracks.index("host clock") + 1
    assert not any(event["pid"] == 0 for event in slices(events, "thread")), "nothing is recorded"


@pytest.mark.slow
def test_ranks_and_tracks_are_named_and_in_order(stored: MakeStored) -> None:
    timeline = stored("buckets").timeline([3, 0], [5, 6])
    events = events_of(traced(timeline, {"run": "x"}, {3: "max"}))
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "rank 0 (node0)", 3: "rank 3 (node0)"}
    labels = {e["pid"]: e["args"]["labels"] for e in events if e["name"] == "process_labels"}
    assert labels == {3: "max"}
    places = {
        e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"
    }
    assert places == {0: 0, 3: 3}
    tracks = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 3]
    assert tracks[:4] == ["gpu clock", "host clock", "training thread", "waits"]
    assert tracks[4].startswith("collectives")
    assert all(track.startswith("stream ") for track in tracks[5:])


@pytest.mark.slow
def test_arrows_lead_from_the_late_rank_to_all_that_waited(stored: MakeStored) -> None:
    """Rank 1 is late by 5 ms in iteration 7 (every fifth, from the second)."""
    timeline = stored("buckets").timeline([0, 1, 2], [7])
    events = events_of(traced(timeline))
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert {e["pid"] for e in starts.values()} == {1}
    assert {e["pid"] for e in ends.values()} == {0, 2}
    long = [e for e in slices(events, "wait") if e["dur"] > 4_000]
    assert {e["pid"] for e in long} == {0, 2}
    assert {e["name"] for e in long} == {"wait for rank 1"}
    for e in long:
        released = nanoseconds(e["ts"]) + nanoseconds(e["dur"])
        assert any(abs(nanoseconds(each["ts"]) - released) < 50_000 for each in ends.values())


@pytest.mark.slow
def test_no_arrows_between_clocks_that_are_not_aligned(stored: MakeStored) -> None:
    timeline = stored("buckets").timeline([0, 1], [7])
    ranks = timeline.ranks.with_columns(axis=pl.lit("utc"))
    events = events_of(traced(replace(timeline, ranks=ranks)))
    assert not [e for e in events if e["ph"] in "sf"]
    labels = [e["args"]["labels"] for e in events if e["name"] == "process_labels"]
    assert labels == ["clock not aligned"] * 2


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_stay_text(stored: MakeStored, name: str) -> None:
    timeline: Timeline = stored("buckets").timeline([0], [5])
    hostile = replace(
        timeline,
        operations=timeline.operations.with_columns(name=pl.lit(name)),
        ranks=timeline.ranks.with_columns(host=pl.lit(name)),
        collectives=timeline.collectives.with_columns(communicator=pl.lit(name)),
    )
    content = traced(hostile, {"run": "x"})
    events = events_of(content)
    assert len(slices(events, "device")) == timeline.operations.height
    shown = {e["name"] for e in slices(events, "device")}
    assert len(shown) == 1
    (text,) = shown
    assert len(text) <= 300
    assert text.isprintable()
    assert not {char for char in content.decode() if ord(char) < 32 and char != "\n"}


def test_an_empty_timeline_is_still_a_trace(stored: MakeStored) -> None:
    timeline = stored("host_only").timeline([0], [5])
    assert timeline.operations.is_empty()
    bare = replace(timeline, collectives=timeline.collectives.clear())
    assert slices(events_of(traced(bare)), "phase")


def test_work_that_overlaps_on_its_stream_is_split_into_lanes(
    stored: MakeStored,
) -> None:
    """A kernel may start before the one ahead of it has ended."""
    timeline = stored("buckets").timeline([0], [5])
    early = timeline.operations.with_columns(pl.col("end_ns") + 100_000)
    events = events_of(traced(replace(timeline, operations=early)))
    assert len(slices(events, "device")) == early.height
    tracks = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert {"stream 7", "stream 7, 2"} <= {*tracks}
