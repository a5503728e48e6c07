"""Whatever ranges and device work come, the parts fill every window, by the owner of each ns."""

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.measure.host import host_timeline
from rankscope.measure.rank import detail_ranks, measure_rank
from rankscope.measure.segment import PhaseRanges
from rankscope.model.events import InMemoryEvents
from rankscope.model.kinds import PHASES
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import RankIdentity
from rankscope.model.schema import MARKS
from rankscope.sources.conventions import vocabulary
from rankscope.sources.identify import FILE_NAME
from tests.frames import (
    AUTOGRAD,
    LOADER,
    PROCESS,
    THREAD,
    device_work,
    filled,
    found,
    named,
    ranges,
    trace,
    windows,
)
from tests.support import PART_COLUMNS

END = 120
LABELS = (*PHASES, "exposed_communication")


@st.composite
def nested(draw: st.DrawFn, begin: int = 0, end: int = END, depth: int = 0) -> list[tuple]:
    """Ranges that nest or follow one another, as push and pop make them."""
    rows: list[tuple] = []
    at = begin
    while at < end - 1 and draw(st.booleans() if rows else st.just(True)):
        start = draw(st.integers(at, end - 1))
        stop = draw(st.integers(start + 1, end))
        rows.append((start, stop, draw(st.sampled_from(LABELS))))
        if depth < 3 and draw(st.booleans()):
            rows += draw(nested(start, stop, depth + 1))
        at = stop
    return [*{row[:2]: row for row in reversed(rows)}.values()][::-1]  # none twice the same


EDGES = st.lists(st.integers(1, END - 1), min_size=1, max_size=4, unique=True).map(
    lambda inner: (0, *sorted(inner), END)
)
WORK = st.lists(
    st.tuples(
        st.integers(0, END),  # launch
        st.integers(0, 12),  # until it starts
        st.integers(0, 12),  # how long it runs, if at all
        st.sampled_from(["gemm", "gemm", "", "ncclDevKernel_AllReduce_Sum"]),
        st.sampled_from([1, 1, 2]),  # stream
        st.sampled_from([THREAD, THREAD, AUTOGRAD, LOADER]),
        st.sampled_from([True, True, True, False]),  # the launch is recorded
    ),
    max_size=25,
).map(
    lambda rows: [
        (launch + wait, launch + wait + length, launch if known else None, name, stream, thread)
        for launch, wait, length, name, stream, thread, known in rows
    ]
)


def marks_of(rows: list[tuple], fetches: bool = True) -> PhaseRanges:
    frame = pl.DataFrame(rows, schema=["start", "end", "label"], orient="row").cast(
        {"start": pl.Int64, "end": pl.Int64, "label": pl.String}
    )
    phases = frozenset(frame["label"]) - {"exposed_communication"}
    foreign = InMemoryEvents(pl.DataFrame(schema={"start": pl.Int64, "end": pl.Int64}))
    return PhaseRanges(filled(frame, MARKS), foreign, phases, fetches, False)


def painted(segments: pl.DataFrame, length: int) -> list[str | None]:
    line: list[str | None] = [None] * length
    for start, end, label in segments.select("start", "end", "label").iter_rows():
        assert line[start:end] == [None] * (end - start), "segments are disjoint"
        line[start:end] = [label] * (end - start)
    return line


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(EDGES, nested())
def test_host_time_belongs_to_the_innermost_mark(edges: tuple, rows: list[tuple]) -> None:
    segments = host_timeline(windows(*edges), marks_of(rows))
    expected: list[str | None] = ["other"] * END
    for start, end, label in rows:  # outer ranges come before those inside them
        expected[start:end] = [label] * (end - start)
    assert painted(segments, END) == expected
    for index, (low, high) in enumerate(pairwise(edges)):
        mine = segments.filter(window=index)
        assert (mine["end"] - mine["start"]).sum() == high - low


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(EDGES, nested(), WORK)
def test_measures_add_up_and_are_never_negative(
    edges: tuple, rows: list[tuple], work: list
) -> None:
    names = {"exposed_communication": "all_reduce", "other": "my logging"}
    steps = [(a, b, f"step {i}") for i, (a, b) in enumerate(pairwise(edges))]
    inner = [(a, b, names.get(label, label)) for a, b, label in rows]
    identity = RankIdentity(0, 1, None, None, None, FILE_NAME)
    result = measure_rank(
        identity,
        detail_ranks(
            {PROCESS: found(*steps)},
            named(ranges(*steps, *inner)),
            trace(work=device_work(work)),
        )[PROCESS],
        vocabulary(ShapingOptions()),
    )
    measures = result.measures
    parts = measures.select(PART_COLUMNS)
    assert (parts.min_horizontal().fill_null(0) >= 0).all()
    lengths = pl.col("iteration_ns", "exposed_communication_ns")
    whole = measures.filter(pl.all_horizontal(lengths.is_not_null()))
    assert (whole.select(PART_COLUMNS).sum_horizontal() == whole["iteration_ns"]).all()
    for name in ("time_to_all_reduce_ns", "time_to_first_all_reduce_ns", "work_ns", "idle_ns"):
        assert (measures[name].fill_null(0) >= 0).all(), name
    assert (measures["compute_ns"] <= measures["iteration_ns"]).fill_null(True).all()
