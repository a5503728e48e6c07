"""Clocks of devices that are wrong."""

import polars as pl
import pytest

from rankscope.model.schema import DEVICE_WORK, conform
from rankscope.sources.device_faults import fast_clocks, wrong_clocks
from tests.frames import sync_calls

STEP, COUNT = 10_000_000, 20


@pytest.mark.parametrize(
    ("speed", "is_clock"), [(1.1, True), (3.0, True), (0.5, True), (0.0, False), (20.0, False)]
)
def test_a_clock_is_at_most_ten_times_as_fast_or_slow(speed: float, *, is_clock: bool) -> None:
    launch = pl.Series([STEP * (1 + nth) for nth in range(COUNT)])
    start = (launch * speed).cast(pl.Int64)
    idle = pl.DataFrame({"process": 1, "kind": "kernel", "launch": launch, "delay": start - launch})
    assert bool(fast_clocks(idle)) is is_clock


def test_a_slope_among_neighbours_is_no_clock() -> None:
    """Delays of a traced AlexNet (µs): two kernels, 12 s later some within 0.1 s."""
    seconds = [30.54, 42.23, *(43.27 + nth / 100 for nth in range(10))]
    delays_us = [35, 49, 42, 26, 20, 18, 17, 13, 21, 19, 20, 18]
    launch = pl.Series(seconds) * 1e9
    delay = pl.Series(delays_us) * 1000
    idle = pl.DataFrame({"process": 1, "kind": "kernel", "launch": launch, "delay": delay})
    assert not fast_clocks(idle)


@pytest.mark.parametrize(
    ("soonest_us", "graph", "returns_us", "launched", "late"),
    [
        (10, False, None, 350, False),
        (3_010, False, None, 350, True),
        (3_010, True, None, 350, False),
        (3_010, False, -3_000, 350, True),
        (3_010, False, 10, 350, False),
        (3_010, False, None, 400, False),
    ],
)
def test_delays_in_a_queue_are_no_late_clock(
    soonest_us: int, *, graph: bool, returns_us: int | None, launched: int, late: bool
) -> None:
    """A device that is behind starts kernels late; what finds it idle tells its clock.

    The kernels of a graph start when the call that launches all of them is nearly done. Launches
    take long where calls that wait for kernels return when these end (some wait for other
    kernels); a device whose records are missing may have been busy.
    """
    rows, waits = [], []
    for step in range(1, 8):
        begin = STEP * step
        start = begin + soonest_us * 1000
        for nth in range(50):
            rows.append((begin + nth * 10_000, start, start + 150_000))
            start += 151_000
        if returns_us is not None:
            waits.append((begin + 600_000, start - 1_000 + returns_us * 1000, 1))
            waits += [(begin + 700_000, begin + 2_000_000, 1)] * 2
    if returns_us is not None:  # of a large report, only the first part of the work is looked at
        later = range(STEP * 8, STEP * 30, STEP)
        waits += [(begin, begin + 900_000, 1) for begin in later]
    work = kernels(rows, graph=graph)
    clocks = wrong_clocks(work, sync_calls(waits), launched)
    assert {process: -clock.early_ns for process, clock in clocks.items()} == (
        {1: soonest_us * 1000} if late else {}
    )


@pytest.mark.parametrize(
    ("spread_ms", "sooner_ms", "late_ms"), [(0.05, None, 3), (9, None, None), (1, 0.5, None)]
)
def test_delays_on_a_shared_device_are_no_late_clock(
    spread_ms: float, sooner_ms: float | None, late_ms: int | None
) -> None:
    """Kernels of other processes hold up the start on a device that looks idle, by more or less.

    A late clock holds up every start, those on a busy device too.
    """
    rows = []
    for nth in range(1, 40):
        begin = nth * STEP
        start = begin + 3_000_000 + int(spread_ms * 1e6 * (nth % 7) / 6)
        rows.append((begin, start, start + 300_000))
        if sooner_ms:
            rows.append((int(start - sooner_ms * 1e6), start, start + 350_000))
    clocks = wrong_clocks(kernels(rows), sync_calls([]))
    assert {-clock.early_ns // 1_000_000 for clock in clocks.values()} == {late_ms} - {None}


@pytest.mark.parametrize("waits", [True, False])
def test_a_queue_that_grows_is_no_slow_clock(*, waits: bool) -> None:
    """A shared device leaves gaps between kernels that were launched long before.

    Calls that wait for the device tell it, if most of them return when its work ends.
    """
    rows = [(nth * 10**6, nth * 3 * 10**6, nth * 3 * 10**6 + 2_800_000) for nth in range(1, 40)]
    calls = [(launch + 1_000, end - 5 * 10**6, 1) for launch, _, end in rows[10::10]]
    calls += [(launch + 1_000, end + 20_000, 1) for launch, _, end in rows[9 : 38 if waits else 10]]
    clocks = wrong_clocks(kernels(rows), sync_calls(calls))
    assert [each.fast for each in clocks.values()] == ([] if waits else [2.0])


def kernels(rows: list[tuple[int, int, int]], *, graph: bool = False) -> pl.DataFrame:
    """DEVICE_WORK of kernels on one stream: launch, start and end of each."""
    work = pl.DataFrame(rows, ["launch", "start", "end"], orient="row").with_columns(
        process=1, device=0, context=1, stream=7, kind=pl.lit("kernel"), name=pl.lit("gemm")
    )
    absent = ("launch_thread", "operation", "communicator", "sequence", "bytes", "grid")
    return conform(work.with_columns(graph=graph), DEVICE_WORK, optional=absent)
