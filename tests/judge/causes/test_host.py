"""Causes on the host: what the training thread did longer, named only where it explains enough."""

from collections.abc import Collection

import polars as pl
import pytest

from rankscope.judge.causes.registry import context_of, findings, findings_sentence
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding
from rankscope.model.schema import ACTIVITIES, HOST_STATES
from tests.frames import filled
from tests.support import MS

ROLES = dict.fromkeys(range(4), "all")
EXCESS = 25.0
NUMBERS = range(10)


def did(rank: int, state: str, name: str, total_ms: float, count: int = 10) -> pl.DataFrame:
    """What a rank's thread did in load, the same in iterations 0 to 9."""
    columns = {"rank": rank, "phase": "load", "state": state, "name": name, "count": count,
               "total_ns": round(total_ms * MS)}  # fmt: skip
    values = {key: pl.lit(value) for key, value in columns.items()}
    return filled(pl.DataFrame({"iteration": NUMBERS}).with_columns(**values), HOST_STATES)


def usual(state: str, name: str, total_ms: float, count: int = 10) -> list[pl.DataFrame]:
    return [did(rank, state, name, total_ms, count) for rank in range(4)]


def found(
    *rows: pl.DataFrame,
    activities: pl.DataFrame | None = None,
    excess_ms: float = EXCESS,
    elsewhere_ms: float = 0.0,
) -> tuple[Finding, ...]:
    """Findings on rank 3, which needs 25 ms more in iterations 2 and 5, in loading."""
    excess = [round(excess_ms * MS)] * 2
    load = [round((excess_ms - elsewhere_ms) * MS)] * 2
    numbers = {"rank": [3, 3], "iteration": [2, 5]}
    flagged = pl.DataFrame(numbers | {"excess_ns": excess, "load_excess": load})
    every = pl.concat([*rows, *usual("on_cpu", "", 2)])

    def table(name: str, numbers: Collection[int]) -> pl.DataFrame | None:
        frames = {"host_states": every, "activities": activities}
        frame = frames.get(name)
        return None if frame is None else frame.filter(pl.col("iteration").is_in(numbers))

    return findings(context_of(table, ROLES, flagged, "load"))


@pytest.mark.parametrize(
    ("state", "name", "kind", "words"),
    [
        ("blocked", "fsync", CauseKind.BLOCKED, "blocked in fsync 24.8 ms of 25.0 ms"),
        ("off_cpu", "", CauseKind.PREEMPTED, "off the CPU 24.8 ms of 25.0 ms"),
        ("on_cpu", "inflate", CauseKind.ON_CPU, "100 % ± 0.0 % of it in inflate"),
        ("on_cpu", "gc_collect", CauseKind.GARBAGE_COLLECTION, "24.8 ms of garbage collection"),
        ("cuda_call", "cudaMalloc", CauseKind.ALLOCATOR, "memory 24.8 ms of 25.0 ms (cudaMalloc)"),
        ("blocked", "munmap", CauseKind.ALLOCATOR, "(munmap)"),
        (
            "on_cpu",
            "kernel",
            CauseKind.ALLOCATOR,
            "kernel 24.8 ms of 25.0 ms outside of calls",
        ),
        ("cuda_call", "cudaLaunchKernel", CauseKind.CUDA_CALL, "call cudaLaunchKernel 24.8 ms"),
        ("profiler", "TLS allocation", CauseKind.PROFILER, "profiler itself took 24.8 ms"),
        ("unknown", "", CauseKind.UNEXPLAINED, "--cpuctxsw=process-tree"),
        ("unknown", "off_cpu", CauseKind.UNEXPLAINED, "--trace=osrt"),
    ],
)
def test_what_was_planted_is_named(state: str, name: str, kind: CauseKind, words: str) -> None:
    [one] = found(did(3, state, name, 24.8), *usual("blocked", "poll", 4))
    assert (one.kind, one.evidence, one.phase) == (kind, ("host_states",), "load")
    assert one.excess_ns == round(24.8 * MS)
    assert words in findings_sentence([one])


@pytest.mark.parametrize("state", ["blocked", "off_cpu", "on_cpu", "cuda_call", "profiler"])
def test_what_all_ranks_do_is_no_cause(state: str) -> None:
    assert found(*usual(state, "name", 30)) == ()


@pytest.mark.parametrize("state", ["blocked", "off_cpu", "on_cpu", "profiler"])
def test_what_a_peer_does_half_as_long_is_no_cause(state: str) -> None:
    slow = did(3, state, "name", 24)
    assert found(slow, did(1, state, "name", 13)) == ()
    assert len(found(slow, did(1, state, "name", 11))) == 1


def test_a_thread_that_is_woken_late_is_unexplained() -> None:
    """Ten waits, each up to 1 ms longer than the usual 2.5 ms."""
    wait = [did(rank, "blocked", "clock_nanosleep", 25) for rank in range(3)]
    [one] = found(*wait, did(3, "blocked", "clock_nanosleep", 34), excess_ms=9)
    assert (one.kind, one.name) == ("unexplained", "woken late")
    assert "--cpuctxsw=system-wide" in findings_sentence([one])
    [one] = found(*wait, did(3, "blocked", "clock_nanosleep", 36), excess_ms=11)
    assert one.kind == "blocked", "more than a slice of the scheduler"
    [one] = found(*usual("blocked", "sem_wait", 1)[:3], did(3, "blocked", "sem_wait", 9))
    assert one.kind == "blocked", "more than half longer"


def test_what_explains_the_whole_excess_is_said_once() -> None:
    [one] = found(did(3, "unknown", "", 25))
    assert "the thread takes 25.0 ms is unknown" in findings_sentence([one])


def test_less_than_30_percent_is_no_cause() -> None:
    assert found(did(3, "blocked", "fsync", 7.4)) == ()
    assert [each.kind for each in found(did(3, "blocked", "fsync", 7.6))] == ["blocked"]


def test_several_causes_stand_largest_first() -> None:
    both = found(did(3, "off_cpu", "", 9), did(3, "blocked", "read", 15))
    assert [(each.kind, each.name) for each in both] == [
        ("blocked", "read"),
        ("preempted", "preempted"),
    ]


def test_many_small_calls_are_added_up() -> None:
    [one] = found(*(did(3, "blocked", f"call{number}", 5) for number in range(5)))
    assert one.excess_ns == 25 * MS
    assert findings_sentence([one]).startswith("blocked in call0, call1, call2 25.0 ms")


def test_time_on_the_cpu_in_a_call_that_blocks_belongs_to_it() -> None:
    [one] = found(did(3, "blocked", "read", 16), did(3, "on_cpu", "read", 9))
    assert (one.kind, one.excess_ns) == ("blocked", 25 * MS)


def test_a_call_that_mostly_computes_is_computing() -> None:
    [one] = found(did(3, "blocked", "write", 4), did(3, "on_cpu", "write", 21))
    assert (one.kind, one.name) == ("on_cpu", "write")


def test_the_function_has_its_share_and_error() -> None:
    [one] = found(did(3, "on_cpu", "inflate", 18, 18), did(3, "on_cpu", "crc", 6, 6))
    assert (one.kind, one.name, one.excess_ns) == ("on_cpu", "inflate", 24 * MS)
    assert one.detail == "75 % ± 6.2 % of it in inflate"  # 48 samples in two iterations


def test_waiting_longer_for_the_device_is_an_effect() -> None:
    sync = "cudaStreamSynchronize"
    peers = [did(rank, "cuda_call", sync, 2, count=4) for rank in range(3)]
    assert found(*peers, did(3, "cuda_call", sync, 27, count=4)) == ()
    [one] = found(*peers, did(3, "cuda_call", sync, 27, count=9))
    assert (one.kind, one.name) == ("cuda_call", sync)


def device(kind: str, rank: int, total_ms: float) -> pl.DataFrame:
    columns = {"rank": rank, "phase": "load", "kind": kind, "name": "gemm", "count": 1,
               "total_ns": round(total_ms * MS), "size": 1}  # fmt: skip
    values = {key: pl.lit(value) for key, value in columns.items()}
    return filled(pl.DataFrame({"iteration": NUMBERS}).with_columns(**values), ACTIVITIES)


@pytest.mark.parametrize(("idle_ms", "causes"), [(0, []), (20, ["blocked"])])
def test_the_host_delays_nothing_while_the_device_is_busy(idle_ms: int, causes: list[str]) -> None:
    """A slow kernel keeps the host waiting; a starving device waits for the host."""
    rows = [device("kernel", rank, 10 if rank < 3 else 35 - idle_ms) for rank in range(4)]
    rows += [device("idle", rank, 1 if rank < 3 else 1 + idle_ms) for rank in range(4)]
    output = found(did(3, "blocked", "sem_wait", 25), activities=pl.concat(rows))
    assert [each.kind for each in output if each.activity == "host"] == causes
    if causes:
        assert output[0].excess_ns == idle_ms * MS


def test_a_hostile_name_is_harmless_in_the_sentence() -> None:
    [one] = found(did(3, "blocked", "\x1b[2Jfsync", 25))
    assert "\x1b" not in findings_sentence([one])


def test_nothing_is_unexplained_where_causes_explain_most() -> None:
    output = found(did(3, "blocked", "fsync", 18), did(3, "unknown", "", 8))
    assert [each.kind for each in output] == ["blocked"]
    output = found(did(3, "blocked", "fsync", 10), did(3, "unknown", "", 15))
    assert [each.kind for each in output] == ["blocked", "unexplained"]


def test_what_is_unexplained_is_part_of_the_phase_alone() -> None:
    """Of 25 ms, 15 are in loading; the device waits for data then."""
    idle = pl.concat(device("idle", rank, 16 if rank == 3 else 1) for rank in range(4))
    output = found(did(3, "unknown", "", 15), activities=idle, elsewhere_ms=10)
    assert [each.kind for each in output] == ["loader"]
