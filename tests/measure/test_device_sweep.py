"""However a device's time is cut into stretches, the timeline is the same."""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from rankscope.measure.attribution import HostSide, attribute
from rankscope.measure.device import DeviceAccount, DeviceTimeline
from rankscope.measure.device_sweep import TimeSlices
from rankscope.measure.host import host_timeline
from tests.frames import LOADER, PROCESS, THREAD, device_work, trace, windows
from tests.measure.test_additive import EDGES, END, WORK, marks_of, nested

SPAN = {"start": pl.Int64, "end": pl.Int64}
USAGE = ["window", "compute", "communication", "idle"]
CALLS = st.lists(st.tuples(st.integers(0, END), st.integers(0, 20)), max_size=3)
SYNCS = st.lists(
    st.tuples(st.integers(0, END), st.integers(0, 30), st.sampled_from([THREAD, THREAD, LOADER])),
    max_size=3,
).map(lambda rows: [(start, start + length, thread) for start, length, thread in rows])


def spans(calls: list[tuple]) -> pl.DataFrame:
    """(start, length) of blocking calls as start and end."""
    rows = [(start, start + length) for start, length in calls]
    return pl.DataFrame(rows, SPAN, orient="row")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(EDGES, nested(), WORK, CALLS, SYNCS, st.integers(1, 4))
def test_stretches_add_up_to_the_whole(
    edges: tuple,
    rows: list[tuple],
    work: list,
    calls: list[tuple],
    syncs: list[tuple],
    most: int,
) -> None:
    iterations = windows(*edges)
    host = host_timeline(iterations, marks_of(rows))
    blocking = spans(calls)

    def timeline(operations_each: int) -> DeviceTimeline:
        work_of = trace(work=device_work(work), calls=syncs, part_rows=operations_each).device_work
        [attributed] = attribute(work_of, [HostSide(PROCESS, host, THREAD)])
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


@settings(max_examples=40, deadline=None)
@given(EDGES, nested(), WORK, CALLS, SYNCS, st.sampled_from([2, 5, 1000]), st.booleans())
def test_every_instant_has_the_owner_that_the_method_says(
    edges: tuple,
    rows: list[tuple],
    work: list,
    calls: list[tuple],
    syncs: list[tuple],
    most: int,
    sets: bool,
) -> None:
    iterations = windows(*edges)
    host = host_timeline(iterations, marks_of(rows))
    frame = device_work(work)
    if sets:
        frame = frame.with_columns(kind=pl.col("kind").replace({"copy": "set"}))
    work_of = trace(work=frame, calls=syncs, part_rows=most).device_work
    [attributed] = attribute(work_of, [HostSide(PROCESS, host, THREAD)])
    blocking = spans(calls)
    account = DeviceAccount(attributed, iterations, blocking)
    for part in attributed.parts():
        account.add(part)
    output = account.timeline()

    operations = [*pl.concat(attributed.parts()).iter_rows(named=True)]
    threads = {each["launch_thread"] for each in operations if each["training"]} | {THREAD}
    own_syncs = [each[:2] for each in syncs if each[2] in threads]
    labels: dict[int, tuple[int, Any]] = {}
    usage = []
    idling: dict[Any, Any] = Counter()
    for window, low, high in output.windows.drop_nulls().iter_rows():
        instants = range(low, high)
        owners = [_owner(operations, host, blocking, own_syncs, moment) for moment in instants]
        labels |= {
            moment: (window, label) for moment, (label, _) in zip(instants, owners, strict=True)
        }
        for (label, idle), same in groupby(owners):
            if idle:
                idling[window, label] += np.array([1, len([*same])])
        running = [{*_running(operations, moment)} for moment in instants]
        usage.append(
            (
                window,
                sum("computes" in kinds for kinds in running),
                sum("talks" in kinds for kinds in running),
                sum(not kinds for kinds in running),
            )
        )
    assert {
        moment: (window, label)
        for start, end, window, label in output.segments.iter_rows()
        for moment in range(start, end)
    } == labels
    assert (output.segments["end"] - output.segments["start"]).sum() == len(labels), "disjoint"
    assert [*output.usage.select(USAGE).iter_rows()] == usage
    assert {
        (window, phase): (count, length)
        for window, phase, _, _, count, length in output.idle.iter_rows()
    } == {key: (*sums,) for key, sums in idling.items()}


def _running(operations: list[dict], moment: int) -> Iterator[str]:
    for each in operations:
        if each["start"] <= moment < each["end"]:
            yield "talks" if each["operation"] else "computes"


def _owner(
    operations: list[dict],
    host: pl.DataFrame,
    blocking: pl.DataFrame,
    syncs: list[tuple],
    moment: int,
) -> tuple[str, bool]:
    """Who owns an instant, and whether the device starves then."""
    training = [each for each in operations if each["training"] and not each["operation"]]
    here = [each for each in operations if each["start"] <= moment < each["end"]]
    if computing := [each for each in here if each["training"] and not each["operation"]]:
        first = min(
            computing,
            key=lambda each: (
                ["kernel", "set", "copy"].index(each["kind"]),
                float("inf") if each["launch"] is None else each["launch"],
                each["start"],
            ),
        )
        return first["phase"] or "other", False
    if any(start <= moment < end for start, end in blocking.iter_rows()):
        return "exposed_communication", False
    asked = [*syncs]
    for before, each in zip([None, *training], training, strict=False):
        launch = each["launch"]
        if launch is None:
            launch = before["start"] if before else each["start"]
        asked.append((launch, each["start"]))
    for collective in here:
        if collective["operation"] and any(
            since <= moment and collective["end"] <= until for since, until in asked
        ):
            return "exposed_communication", False
    following = next((each for each in training if each["start"] > moment), None)
    if following:
        launch = following["start"] if following["launch"] is None else following["launch"]
        if launch <= moment:
            return following["phase"] or "other", True
    begun = [label for start, _, _, label in host.iter_rows() if start <= moment]
    return (begun or host["label"].to_list()[:1])[-1], True


@pytest.mark.parametrize("most", [1, 1000])
def test_between_known_windows_nothing_is_reported(most: int) -> None:
    unrecorded = [(at, at + 2, None, "gemm", 1, THREAD) for at in (20, 24, 28)]
    work = [(5, 10, 5, "gemm", 1, THREAD), *unrecorded, (45, 50, 45, "gemm", 1, THREAD)]
    iterations = windows(0, 20, 40, 60)
    host = host_timeline(iterations, marks_of([(0, 60, "forward")]))
    [attributed] = attribute(
        trace(work=device_work(work), part_rows=most).device_work,
        [HostSide(PROCESS, host, THREAD)],
    )
    account = DeviceAccount(attributed, iterations, pl.DataFrame(schema=SPAN))
    for part in attributed.parts():
        account.add(part)
    output = account.timeline()
    assert [*output.segments.iter_rows()] == [(0, 10, 0, "forward"), (40, 50, 2, "forward")]
    assert [*output.usage.select(USAGE).iter_rows()] == [(0, 5, 0, 5), (2, 5, 0, 5)]


def test_a_border_is_where_training_work_begins() -> None:
    work = [(at, at + 4, at, "gemm", 1, THREAD) for at in range(10, 60, 10)]
    iterations = windows(0, 50)
    host = host_timeline(iterations, marks_of([(0, 60, "forward")]))
    [attributed] = attribute(
        trace(work=device_work(work), part_rows=2).device_work, [HostSide(PROCESS, host, THREAD)]
    )
    known = pl.DataFrame({"window": [0], "window_start": [0], "window_end": [50]})
    cut = TimeSlices(known)
    parts = [*attributed.parts()]
    found = [each for each in (*map(cut.add, parts), cut.last()) if each is not None]
    assert [(each.begin, each.end) for each in found] == [(0, 30), (30, 50)]
    assert [each.work["start"].to_list() for each in found] == [[10, 20, 30], [30, 40, 50]]
