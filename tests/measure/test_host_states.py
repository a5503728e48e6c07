"""Every instant of the training thread has one state, against a thread played ns by ns."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rankscope.measure.host_states import host_states
from rankscope.model.host_events import Calls, Samples, Switches, ThreadEvents
from rankscope.model.schema import ITERATIONS, SEGMENTS
from tests.frames import filled

END = 80


def calls(*rows: tuple[int, int, str]) -> Calls:
    names = sorted({name for *_, name in rows})
    return Calls(
        np.array([start for start, *_ in rows], np.int64),
        np.array([end for _, end, _ in rows], np.int64),
        np.array([names.index(name) for *_, name in rows], np.int32),
        pl.Series(names, dtype=pl.String),
    )


def switches(*rows: tuple[int, bool]) -> Switches:
    return Switches(np.array([at for at, _ in rows], np.int64), np.array([on for _, on in rows]))


def samples(*rows: tuple[int, str]) -> Samples:
    at, function = zip(*rows, strict=True)
    return Samples(np.array(at, np.int64), pl.Series(function))


def states(events: ThreadEvents, edges: tuple[int, ...] = (0, END), **limits: int) -> pl.DataFrame:
    """The states of a timeline of a window for each pair of edges, load and forward in turn."""
    pairs = [*pairwise(edges)]
    iterations = filled(
        pl.DataFrame({"iteration": range(len(pairs)), "window_start": [a for a, _ in pairs]}),
        ITERATIONS,
    )
    rows = []
    for number, (begin, end) in enumerate(pairs):
        half = (begin + end) // 2
        rows += [(begin, half, number, "load")] * (half > begin)
        rows += [(half, end, number, "forward")]
    host = pl.DataFrame(rows, SEGMENTS, orient="row")
    return host_states(iterations, host, events, minor_ns=0, **limits)


def spent(frame: pl.DataFrame) -> dict[tuple[str, str], int]:
    sums = frame.group_by("state", "name").agg(pl.col("total_ns").sum())
    return {(state, name): total for state, name, total in sums.iter_rows()}


def test_time_that_samples_leave_out_is_the_kernels() -> None:
    """80 ns on the CPU, a sample each 5 ns of user code: 3 samples stand for 20 ns at most."""
    sampled = samples((1, "memset"), (6, "memset"), (30, "memset"))
    events = ThreadEvents(switches((0, True)), Calls.none(), None, replace(sampled, period_ns=5))
    found = states(events)
    assert found["total_ns"].sum() == END
    load, forward = (spent(found.filter(phase=phase)) for phase in ("load", "forward"))
    assert load == {("on_cpu", "memset"): 20, ("on_cpu", "kernel"): 20}
    assert forward == {("on_cpu", ""): 5, ("on_cpu", "kernel"): 35}
    without_calls = ThreadEvents(switches((0, True)), None, None, events.samples)
    assert ("on_cpu", "kernel") not in spent(states(without_calls)), "it may be any call"


NESTED = st.lists(
    st.tuples(st.integers(0, END - 1), st.integers(1, 30), st.sampled_from("abc")), max_size=6
).map(lambda rows: [(start, min(start + length, END), name) for start, length, name in rows])
EVENTS = st.builds(
    lambda events, on, system, cuda, profiler: ThreadEvents(
        switches(*[(at, place % 2 == on) for place, at in enumerate(sorted(events))])
        if events
        else None,
        calls(*[(a, b, f"os {name}") for a, b, name in system]) if system is not None else None,
        calls(*[(a, b, f"cuda {name}") for a, b, name in cuda]),
        None,
        calls(*[(a, b, f"own {name}") for a, b, name in profiler]),
    ),
    st.sets(st.integers(0, END - 1), max_size=8),
    st.booleans(),
    st.none() | NESTED,
    NESTED,
    NESTED.map(lambda rows: rows[:2]),
)


def outermost(at: int, *groups: Calls | None) -> str | None:
    """The call that began first, of those that began together the longest, until it ends."""
    rows = [
        (start, -end, place, name)
        for place, group in enumerate(groups)
        if group is not None
        for start, end, name in zip(
            group.start.tolist(), group.end.tolist(), group.names.gather(group.name), strict=True
        )
    ]
    reached = 0
    for start, end, _, name in sorted(rows, key=lambda row: row[:2]):
        if max(start, reached) <= at < -end:
            return str(name)
        reached = max(reached, -end)
    return None


def played(events: ThreadEvents, at: int) -> tuple[str, str | None]:
    """State and name at an instant, by the rules of METHOD.md#causes."""
    own = outermost(at, events.profiler)
    if own is not None:
        return "profiler", own
    cuda, call = outermost(at, events.cuda_calls), outermost(at, events.os_calls)
    if cuda is not None:
        return "cuda_call", cuda
    if events.switches is None:
        return ("blocked", call) if call is not None else ("unknown", "")
    before = [on for t, on in zip(events.switches.at, events.switches.on, strict=True) if t <= at]
    if before[-1] if before else not events.switches.on[0]:
        return "on_cpu", call or ""
    if call is not None:
        return "blocked", call
    return ("off_cpu", "") if events.os_calls is not None else ("unknown", "off_cpu")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(events=EVENTS, inner=st.sets(st.integers(1, END - 1), max_size=3), many=st.booleans())
def test_states_fill_every_phase_and_are_those_of_each_ns(
    events: ThreadEvents, inner: set[int], many: bool
) -> None:
    edges = (0, *sorted(inner), END)
    found = states(events, edges, at_once=4 if many else 10_000)  # several blocks, or one
    # Calls that begin and end together have no order: either name is right.
    alike = [row for group in (events.os_calls, events.cuda_calls, events.profiler) if group
             for row in zip(group.start, group.end, strict=True)]  # fmt: skip
    for number, (begin, end) in enumerate(pairwise(edges)):
        rows = found.filter(iteration=number)
        half = (begin + end) // 2
        by_phase = dict(rows.group_by("phase").agg(pl.col("total_ns").sum()).iter_rows())
        assert by_phase.get("load", 0) == half - begin
        assert by_phase["forward"] == end - half
        if len({*alike}) == len(alike):
            expected: dict[tuple[str, str | None], int] = {}
            for at in range(begin, end):
                key = played(events, at)
                expected[key] = expected.get(key, 0) + 1
            assert spent(rows) == expected


def test_without_any_table_nothing_is_said() -> None:
    assert states(ThreadEvents()).is_empty()


def test_time_on_the_cpu_is_divided_by_samples_and_nothing_is_lost() -> None:
    events = ThreadEvents(
        switches=switches((0, True), (7, False)),
        samples=samples((1, "f"), (2, "g"), (3, "f"), (20, "off the CPU"), (50, "later")),
    )
    found = states(events, (0, 20, END)).filter(iteration=0)
    assert spent(found) == {
        ("on_cpu", "f"): 5,  # 7 ns by 2 of 3 samples: 4, and what is left
        ("on_cpu", "g"): 2,
        ("unknown", "off_cpu"): 13,
    }
    assert found.filter(name="f")["count"].to_list() == [2]


def test_a_call_on_the_cpu_keeps_its_name() -> None:
    events = ThreadEvents(
        switches=switches((0, True), (30, False), (50, True)),
        os_calls=calls((10, 60, "fsync"), (20, 40, "nested")),
    )
    assert spent(states(events)) == {
        ("on_cpu", ""): 10 + 20,
        ("on_cpu", "fsync"): 20 + 10,
        ("blocked", "fsync"): 20,
    }


def test_minor_names_are_added_up() -> None:
    events = ThreadEvents(os_calls=calls((0, 20, "long"), (30, 34, "short"), (40, 45, "other")))
    found = spent(states(events, most_names=1))
    assert found == {("blocked", "long"): 20, ("blocked", ""): 9, ("unknown", ""): END - 29}
