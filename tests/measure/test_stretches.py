"""However a device's time is cut into stretches, the timeline is the same."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from rankscope import events
from rankscope.measure.attribution import HostSide, attribute
from rankscope.measure.device import DeviceAccount, DeviceTimeline
from rankscope.measure.host import host_timeline
from rankscope.measure.stretches import Stretches
from tests.frames import PROCESS, THREAD, device_work, trace, windows
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
    [attributed] = attribute(
        trace(work=device_work(work)).device_work, [HostSide(PROCESS, host, THREAD)]
    )
    blocking = pl.DataFrame(
        [(start, start + length) for start, length in calls],
        schema={"start": pl.Int64, "end": pl.Int64},
        orient="row",
    )

    def timeline(operations_each: int) -> DeviceTimeline:
        monkeypatch.setattr(events, "PART_ROWS", operations_each)
        account = DeviceAccount(attributed, iterations, blocking)
        for part in attributed.parts():
            account.add(part)
        return account.timeline()

    whole, pieced = timeline(1000), timeline(most)
    assert pieced.opaque == whole.opaque
    for name in ("segments", "windows", "usage", "idle", "unphased"):
        assert_frame_equal(
            getattr(pieced, name), getattr(whole, name), check_row_order=name != "idle"
        )


def test_a_border_is_where_training_work_begins() -> None:
    work = [(at, at + 4, at, "gemm", 1, THREAD) for at in range(10, 60, 10)]
    iterations = windows(0, 50)
    host = host_timeline(iterations, marks_of([(0, 60, "forward")]))
    [attributed] = attribute(
        trace(work=device_work(work)).device_work, [HostSide(PROCESS, host, THREAD)]
    )
    known = pl.DataFrame({"window": [0], "window_start": [0], "window_end": [50]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "PART_ROWS", 2)
        cut = Stretches(known)
        parts = [*attributed.parts()]
        found = [each for each in (*map(cut.add, parts), cut.last()) if each is not None]
    assert [(each.begin, each.end) for each in found] == [(0, 30), (30, 50)]
    assert [each.work["start"].to_list() for each in found] == [[10, 20, 30], [30, 40, 50]]
