"""Scheduling, calls and samples of a thread, from exports of every format."""

import random
from pathlib import Path

import pytest

from rankscope.model.host_events import ThreadEvents
from rankscope.sources.nsys import exports
from tests.sources.exports import KINDS, as_export
from tests.support import MakeForged, asked, edit, with_rows, with_table

SPAN = (1_000, 9_000)

POOL = {
    900_001: "fsync", 900_002: "cudaMalloc_v3020", 900_003: "TLS allocation",
    900_004: "gc_collect_main", 900_005: "visit_decref", 900_006: "hot", 900_007: "tokenize",
    900_008: "_PyEval_EvalFrameDefault", 900_009: "0x7f00", 900_010: "/a/b/libz.so.1",
    900_011: "/a/data.py",
}  # fmt: skip
SWITCHES = [(500, 1), (2_000, 0), (3_000, 1), (9_500, 0)]
CALLS = [(100, 900, 900_001), (800, 2_500, 900_001), (4_000, 5_000, 900_001)]
SAMPLES = {
    1: (1_500, [(0, 900_005, 900_010), (1, 900_004, 900_010)]),  # in the collector
    2: (3_100, [(0, 900_006, 900_010)]),
    3: (3_200, [(0, 900_008, 900_010), (1, 900_007, 900_011)]),  # Python's function
    4: (3_300, [(0, 900_009, 900_010)]),  # without a symbol
    5: (9_999, [(0, 900_006, 900_010)]),  # later than what is asked for
}


@pytest.fixture
def thread(forged: MakeForged) -> int:
    [(found,)] = asked(
        forged("plain").reports[1],
        "SELECT globalTid FROM NVTX_EVENTS WHERE eventType = 59 GROUP BY 1 ORDER BY count(*) "
        "DESC LIMIT 1",
    )
    return int(found)


@pytest.fixture
def report(report: Path, thread: int) -> Path:
    """One with rows of a thread and of another one, in no order."""
    draw = random.Random(1)
    rows = [(at + 7 * other, 0, on, thread + other) for at, on in SWITCHES for other in (0, 1)]
    draw.shuffle(rows)
    with_table(report, "SCHED_EVENTS", "start, cpu, isSchedIn, globalTid", *rows)
    every: list[tuple[int | None, ...]] = [
        (a, b, t, name, 0) for a, b, name in CALLS for t in (thread, thread + 1)
    ]
    every += [(None, 5, thread, 900_001, 0), (3_000, 2_000, thread, 900_001, 0)]  # broken
    draw.shuffle(every)
    with_table(report, "OSRT_API", "start, end, globalTid, nameId, nestingLevel", *every)
    samples = [(number, at, thread, 1) for number, (at, _) in SAMPLES.items()]
    with_table(report, "COMPOSITE_EVENTS", "id, start, globalTid, cpuCycles", *samples)
    frames = [
        (number, symbol, module, depth)
        for number, (_, frames) in SAMPLES.items()
        for depth, symbol, module in reversed(frames)
    ]
    with_table(report, "SAMPLING_CALLCHAINS", "id, symbol, module, stackDepth", *frames)
    edit(report, "DELETE FROM PROFILER_OVERHEAD")
    with_rows(report, "PROFILER_OVERHEAD", (6_000, 6_500, thread, 900_003, 0))
    with_table(
        report,
        "OSRT_FILE_ACCESS_DESCRIPTORS",
        "fileAccessId, filePath text",
        *[(1, "/home/someone/secret/model.pt"), (2, "C:\\data\\shard.bin"), (3, "/proc/")],
    )
    with_table(
        report,
        "OSRT_FILE_ACCESS_EVENTS",
        "fileAccessId, threadId, startedAt, endedAt, apiCallId, bytesProcessed",
        (1, thread % 2**24, 1_500, 2_500, 900_001, 4_096),
        (2, thread, 3_000, 3_010, 900_001, -1),  # it failed
        (3, thread % 2**24, 4_000, 4_001, 900_999, 0),  # of an unknown call
        (9, thread % 2**24, 5_000, 5_001, 900_001, 1),  # of an unknown file
        (1, thread % 2**24, 9_500, 9_600, 900_001, 5),  # later than what is asked for
        (1, thread % 2**24 + 1, 1_500, 2_500, 900_001, 7),  # another thread's
    )
    return with_rows(report, "StringIds", *POOL.items())


def output(path: Path, thread: int) -> ThreadEvents:
    trace = exports.read(path)
    [events] = trace.host_of({thread: SPAN}).values()
    return events


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_tells_of_the_thread_in_the_span(
    report: Path, tmp_path: Path, thread: int, kind: str
) -> None:
    events = output(as_export(report, kind, tmp_path), thread)
    assert events.switches is not None
    assert events.switches.at.tolist() == [1_000, 2_000, 3_000]
    assert events.switches.on.tolist() == [True, False, True]
    assert events.os_calls is not None
    found = sorted(zip(events.os_calls.start.tolist(), events.os_calls.end.tolist(), strict=True))
    assert found == [(1_000, 2_500), (4_000, 5_000)]
    assert {*events.os_calls.names} == {"fsync"}
    assert events.samples is not None
    assert sorted(zip(events.samples.at.tolist(), events.samples.function, strict=True)) == [
        (1_500, "gc_collect"),
        (3_100, "hot"),
        (3_200, "tokenize"),
        (3_300, "libz.so.1"),
    ]
    assert events.profiler is not None
    assert [*events.profiler.names] == ["TLS allocation"]
    assert events.files is not None
    assert sorted(events.files.rows()) == [
        (1_500, 2_500, "fsync", "model.pt", 4_096),
        (3_000, 3_010, "fsync", "shard.bin", None),
        (4_000, 4_001, "", "proc", 0),
        (5_000, 5_001, "fsync", "", 1),
    ]


def test_tables_that_are_missing_are_unknown(forged: MakeForged, thread: int) -> None:
    events = output(forged("plain").reports[1], thread)
    assert (events.switches, events.os_calls, events.samples) == (None, None, None)
    assert events.files is None
    assert events.cuda_calls is not None, "the simulator writes launches"


def test_calls_of_cuda_lose_their_version(report: Path, thread: int) -> None:
    edit(
        report,
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = 7000, end = 8000, nameId = 900002 "
        "WHERE rowid = (SELECT min(rowid) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid = ?)",
        thread,
    )
    events = output(report, thread)
    assert events.cuda_calls is not None
    assert "cudaMalloc" in [*events.cuda_calls.names]


def test_times_are_on_the_axis_of_the_session(report: Path, thread: int) -> None:
    shift = ("EXPORT_CONFIG_TIME_SHIFT", "1000")
    with_table(report, "META_DATA_EXPORT", "name text, value text", shift)
    events = output(report, thread)
    assert events.switches is not None
    assert events.switches.at.tolist() == [1_000, 1_000, 2_000, 8_500]
