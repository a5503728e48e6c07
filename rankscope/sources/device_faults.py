"""Records of the device that are missing or impossible: counted, and never taken for no work.

Profilers lose records when their buffers are full, write records with time 0, and convert the
device's clock to the host's with an error.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.model.arrays import codes, distinct, filled, holds, is_null, of_process, rows_of
from rankscope.model.device_work import DeviceClock
from rankscope.model.frames import with_series
from rankscope.model.intervals import Flags, Times
from rankscope.util.numbers import NEVER

KERNEL_LAUNCHES = r"Launch(Cooperative)?Kernel|KernelLaunch|InvokeKernel"
"""Pattern of the names of API calls that launch one kernel each, in any API."""

EARLY_NS = 100_000
"""A kernel that starts this long (ns) before its launch has an impossible time."""

LEAST_EARLY = 0.01
"""Share of early kernels from which on the device's clock is off."""

FEWEST_STARTS = 5
"""Fewest operations that found the device idle from which its clock is judged."""

MOST_STARTS = 200
"""Most of them that tell its speed; of more, an even part."""

MOST_FAST = 10
"""Largest factor by which a clock runs fast or slow; a larger error has another cause."""

STEADY = 3
"""A clock runs fast or slow if delays deviate this many times as much as from a line."""

LATE_NS = 10**9
"""An event that ends this long (ns) after its capture has an impossible time."""

LATE_UNSURE_NS = 60 * LATE_NS
"""The same if the end of the capture is unknown, counted from nearly all events of the host."""

NEARLY_ALL = 0.99
"""Share of the events of the host; the others may be damaged."""


def latest(ended: int | None, starts: Times) -> int:
    """The last moment (ns) at which something can end, counted from the begin of the capture.

    Args:
        ended: the end of the capture; None where it is unknown.
        starts: of the events of the host. If the end of the capture is unknown, something may last
            as long again as nearly all of them.
    """
    if ended is not None:
        return ended + LATE_NS
    if not len(starts):
        return NEVER
    last_start = int(np.quantile(starts, NEARLY_ALL, method="lower"))
    return last_start + max(last_start, LATE_UNSURE_NS)


def launches_kernel() -> pl.Expr:
    """Whether an API call launches a kernel; reads `name`."""
    return pl.col("name").str.contains(KERNEL_LAUNCHES).fill_null(False)


def captures() -> pl.Expr:
    """1 where a call begins the capture of a graph, -1 where it ends one, else 0; reads `name`."""
    name = pl.col("name")
    begins = name.str.contains("StreamBeginCapture", literal=True)
    ends = name.str.contains("StreamEndCapture", literal=True)
    return (begins.cast(pl.Int8) - ends.cast(pl.Int8)).fill_null(0)


def outside_captures(lost: pl.DataFrame, captured: pl.DataFrame) -> pl.DataFrame:
    """UNRECORDED among the launches of kernels that have no usable record.

    A launch without one while its process captures a graph is not lost: nothing runs until the
    graph is launched. The thread that captures is often another one (autograd's launches too).

    Args:
        lost: process and launch of the calls.
        captured: process, start and captures (`captures`) of the calls that capture graphs.
    """
    if lost.height and captured.height:
        since = pl.col("captures").cast(pl.Int64).cum_sum().over("process")
        before = since.cum_min().over("process").clip(upper_bound=0)  # begun before the report
        begun = captured.sort("start").select("process", launch="start", open=since - before)
        lost = lost.sort("launch").join_asof(
            begun, on="launch", by="process", check_sortedness=False
        )
        lost = lost.filter(pl.col("open").fill_null(0) == 0)
    return lost[["process", "launch"]]


def possible(work: pl.DataFrame) -> Flags:
    """Whether each operation of DEVICE_WORK starts after its launch, if that is known."""
    early = filled(work["launch"], work["start"]) - work["start"].to_numpy() > EARLY_NS
    return np.asarray(~(early & holds(work["kind"] == "kernel")))


def wrong_clocks(
    work: pl.DataFrame, sync_calls: pl.DataFrame, launched: int = 0
) -> dict[int, DeviceClock]:
    """Process → its device's clock, if that is wrong.

    An idle device starts at once what is launched. So the delays of operations that found it idle
    are short on a right clock: a clock is late by the shortest of them, and fast if they grow.
    Launches may take long, too; calls that wait for the device then return when its work ends.
    Whether the device was idle is unknown where records are missing.

    Args:
        work: DEVICE_WORK in the order of the starts.
        sync_calls: SYNC_CALLS.
        launched: how many kernels were launched to be in `work`; 0 where that is unknown.
    """
    work = work[["process", "device", "kind", "graph", "launch", "start", "end"]]
    idle = idle_starts(work)
    recorded = np.count_nonzero(holds(work["kind"] == "kernel") & ~is_null(work["launch"]))
    if recorded < (1 - LEAST_EARLY) * launched:
        idle = idle.clear()
    clocks = fast_clocks(idle)
    for process in [*clocks]:
        on_time = _after_work(work, sync_calls, process).abs() < EARLY_NS
        if 2 * int(on_time.sum()) > len(on_time):
            del clocks[process]
    if clocks:
        work = _at_host_speed(work, clocks)
        idle = idle_starts(work)
    late_ns = late_by(work, idle)
    late_ns = {each: by for each, by in late_ns.items() if not _in_time(work, sync_calls, each, by)}
    for process, by in (early_by(work) | {process: -by for process, by in late_ns.items()}).items():
        clocks[process] = clocks.get(process, DeviceClock())._replace(early_ns=by)
    return clocks


def idle_starts(work: pl.DataFrame) -> pl.DataFrame:
    """process, kind, launch and delay (ns from launch to start) of what found its device idle.

    The device had done nothing for EARLY_NS or longer. What precedes the first operation is
    unknown. Graphs are left out: to launch a large one takes milliseconds.

    Args:
        work: DEVICE_WORK in the order of the starts.
    """
    start, end = (work[name].to_numpy() for name in ("start", "end"))
    since = np.full(len(start), NEVER)
    device = codes(work[["process", "device"]])
    for each in distinct(device)[0]:
        own = np.flatnonzero(device == each)
        since[own[1:]] = np.maximum.accumulate(end[own])[:-1]
    waited = (since <= start - EARLY_NS) & ~holds(work["graph"]) & ~is_null(work["launch"])
    idle = rows_of(work, waited)
    delay = (idle["start"] - idle["launch"]).alias("delay")
    return with_series(idle[["process", "kind", "launch"]], delay)


def fast_clocks(idle: pl.DataFrame) -> dict[int, DeviceClock]:
    """Process → its device's clock, if that runs fast or slow.

    The change of the delays of kernels with time is the median slope between any two of them
    (Theil 1950, Sen 1968). Copies from pageable memory may have other delays.

    Args:
        idle: as `idle_starts` gives it.
    """
    clocks: dict[int, DeviceClock] = {}
    for process, own in _by_process(rows_of(idle, holds(idle["kind"] == "kernel"))):
        if own.height < FEWEST_STARTS:
            continue
        some = own.gather_every(own.height // MOST_STARTS + 1)
        at, delay = some["launch"].to_numpy().astype(float), some["delay"].to_numpy()
        one, other = np.triu_indices(some.height, 1)
        fast = float(np.median((delay[other] - delay[one]) / np.maximum(at[other] - at[one], 1)))
        steady = max(EARLY_NS / 2, STEADY * _deviation(delay - fast * at))
        if _deviation(delay) > steady and 1 / MOST_FAST < 1 + fast < MOST_FAST:
            clocks[process] = DeviceClock(0, fast, int(at[0]))
    return clocks


def _deviation(values: npt.NDArray[np.float64]) -> float:
    """The median absolute deviation."""
    return float(np.median(np.abs(values - np.median(values))))


def _at_host_speed(work: pl.DataFrame, clocks: dict[int, DeviceClock]) -> pl.DataFrame:
    """DEVICE_WORK whose clocks run as fast as the host's."""
    for process, clock in clocks.items():
        if clock.fast:
            own, since = pl.col("process") == process, clock.since_ns
            work = work.with_columns(
                pl.when(own)
                .then(((pl.col(name) - since) / (1 + clock.fast)).round().cast(pl.Int64) + since)
                .otherwise(name)
                .alias(name)
                for name in ("start", "end")
            )
    return work


def late_by(work: pl.DataFrame, idle: pl.DataFrame) -> dict[int, int]:
    """Process → how far its device's clock is late (ns), if no idle device seems to start at once.

    A late clock delays all starts alike. Where most of the idle starts take more than twice the
    shortest delay, something else holds them up: another process on the same device.

    Args:
        work: DEVICE_WORK.
        idle: as `idle_starts` gives it.
    """
    late_ns: dict[int, int] = {}
    launched = holds(work["kind"] == "kernel") & ~is_null(work["launch"])
    for process, own in _by_process(idle):
        kernels = of_process(rows_of(work[["process", "launch", "start"]], launched), process)
        by = min(
            int(np.quantile(delays.to_numpy(), LEAST_EARLY, method="lower"))
            for delays in (own["delay"], kernels["start"] - kernels["launch"])
            if len(delays)
        )
        alike = float(np.median(own["delay"].to_numpy())) < 2 * by
        if own.height >= FEWEST_STARTS and by > EARLY_NS and alike:
            late_ns[process] = by
    return late_ns


def _in_time(work: pl.DataFrame, sync_calls: pl.DataFrame, process: int, late_ns: int) -> bool:
    """Whether more calls that wait return when all work ends than `late_ns` before its end."""
    after = _after_work(work, sync_calls, process)
    on_time, early = ((after + by).abs() < late_ns / 2 for by in (0, late_ns))
    return int(on_time.sum()) > int(early.sum())


def _after_work(work: pl.DataFrame, sync_calls: pl.DataFrame, process: int) -> pl.Series:
    """How long (ns) after the end of all work the calls return that wait for the device.

    Args:
        work: columns of DEVICE_WORK; calls after its end are not looked at.
        sync_calls: SYNC_CALLS.
        process: the one whose calls are looked at.
    """
    waited = pl.col("end") - pl.col("start") >= EARLY_NS
    own = work.filter(process=process).drop_nulls("launch").sort("launch")
    before_end = pl.col("start") < own["end"].max()
    waits = sync_calls.filter(pl.col("process") == process, waited, before_end).sort("start")
    done = own.select("launch", done=pl.col("end").cum_max())
    ends = waits.join_asof(done, left_on="start", right_on="launch")
    return (ends["end"] - ends["done"]).drop_nulls()


def early_by(work: pl.DataFrame) -> dict[int, int]:
    """Process → how far its device's clock is early (ns), by kernels that start before launches.

    A start of 0 is no time, and says nothing about the clock.

    Args:
        work: DEVICE_WORK.
    """
    moved: dict[int, int] = {}
    early = rows_of(work, ~possible(work) & (work["start"] > 0).to_numpy())
    for process, part in _by_process(early):
        if part.height >= LEAST_EARLY * of_process(work, process).filter(kind="kernel").height:
            by = (part["launch"] - part["start"]).to_numpy()
            moved[process] = int(np.quantile(by, 1 - LEAST_EARLY, method="higher"))
    return moved


def moved_by(work: pl.DataFrame, clocks: dict[int, DeviceClock]) -> pl.DataFrame:
    """DEVICE_WORK moved to the host's time, without kernels that are early all the same.

    Args:
        work: DEVICE_WORK and more columns, in the order of the starts.
        clocks: process → its device's clock, if that is wrong.
    """
    if clocks:
        moved = {process: clock.early_ns for process, clock in clocks.items()}
        shift = pl.col("process").replace_strict(moved, default=0, return_dtype=pl.Int64)
        work = _at_host_speed(work, clocks).with_columns(pl.col("start", "end") + shift)
        work = work.sort("start", maintain_order=True)
    return rows_of(work, possible(work))


def _by_process(rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """Each process that has rows, and these."""
    for process in np.unique(rows["process"].to_numpy()):
        yield int(process), of_process(rows, process)
