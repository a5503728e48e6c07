"""However a device's time is cut into stretches, the timeline is the same."""

from __future__ import annotations

from dataclasses import fields

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from rankscope.measure import stretches
from rankscope.measure.device import DeviceTimeline, attribute, device_timeline
from rankscope.measure.host import host_timeline
from rankscope.vocabulary import with_operation
from tests.frames import THREAD, device_work, windows
from tests.measure.test_additive import EDGES, END, WORK, marks_of, nested

CALLS = st.lists(st.tuples(st.integers(0, END), st.integers(0, 20)), max_size=3)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(EDGES, nested(), WORK, CALLS, st.integers(1, 4))
def test_stretches_add_up_to_the_whole(
    monkeypatch: pytest.MonkeyPatch,
    edges: tuple,
    rows: list[tuple],
    work: list,
    calls: list[tuple],
    most: int,
) -> None:
    iterations = windows(*edges)
    host = host_timeline(iterations, marks_of(rows))
    operations = attribute(with_operation(device_work(work)), host, THREAD)
    blocking = pl.DataFrame(
        [(start, start + length) for start, length in calls],
        schema={"start": pl.Int64, "end": pl.Int64},
        orient="row",
    )

    def timeline(operations_each: int) -> DeviceTimeline:
        monkeypatch.setattr(stretches, "MOST", operations_each)
        return device_timeline(operations, host, iterations, blocking)

    whole, pieced = timeline(1000), timeline(most)
    for field in fields(DeviceTimeline):
        assert_frame_equal(
            getattr(pieced, field.name),
            getattr(whole, field.name),
            check_row_order=field.name != "idle",
        )


def test_a_border_is_where_training_work_begins() -> None:
    work = [(at, at + 4, at, "gemm", 1, THREAD) for at in range(10, 60, 10)]
    iterations = windows(0, 50)
    host = host_timeline(iterations, marks_of([(0, 60, "forward")]))
    operations = attribute(with_operation(device_work(work)), host, THREAD)
    known = pl.DataFrame({"window": [0], "window_start": [0], "window_end": [50]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "MOST", 2)
        found = [*stretches.stretches(operations, known)]
    assert [(each.begin, each.end) for each in found] == [(0, 30), (30, 50)]
    assert [each.work["start"].to_list() for each in found] == [[10, 20, 30], [30, 40, 50]]
