"""Records of the device that are missing or impossible: counted, and never taken for no work.

Profilers lose records when their buffers are full, write records with time 0, and convert the
device's clock to the host's with an error.
"""

from __future__ import annotations

import numpy as np
import polars as pl

KERNEL_LAUNCHES = r"^(cuda|cu|hip|musa|acl\w*)\w*Launch(Cooperative)?Kernel"
"""Pattern of the names of API calls that launch one kernel each, in any API."""

EARLY_NS = 100_000
"""A kernel that starts this long (ns) before its launch has an impossible time."""

LEAST_EARLY = 0.01
"""From this share of early kernels on the device's clock is off."""


def launches_kernel() -> pl.Expr:
    """Whether an API call launches a kernel; reads `name`."""
    return pl.col("name").str.contains(KERNEL_LAUNCHES).fill_null(False)


def captures() -> pl.Expr:
    """1 where a call begins to capture a graph, -1 where it ends that, else 0; reads `name`."""
    name = pl.col("name")
    begins = name.str.contains("StreamBeginCapture", literal=True)
    ends = name.str.contains("StreamEndCapture", literal=True)
    return (begins.cast(pl.Int8) - ends.cast(pl.Int8)).fill_null(0)


def unrecorded(
    launches: pl.DataFrame, recorded: pl.DataFrame, captured: pl.DataFrame
) -> pl.DataFrame:
    """UNRECORDED: launches of kernels that have no usable record.

    A launch without one while its process captures a graph is not lost: nothing runs until the
    graph is launched. The thread that captures is often another one (autograd's launches too).

    Args:
        launches: process, correlation and start of the calls that launch a kernel.
        recorded: process and correlation of the records that have possible times.
        captured: process, start and captures (`captures`) of the calls that capture graphs.
    """
    numbered = launches.filter(pl.col("correlation") != 0)
    lost = numbered.join(recorded, on=["process", "correlation"], how="anti")
    if lost.height and captured.height:
        since = pl.col("captures").cast(pl.Int64).cum_sum().over("process")
        before = since.cum_min().over("process").clip(upper_bound=0)  # begun before the report
        begun = captured.sort("start").select("process", "start", open=since - before)
        lost = lost.sort("start").join_asof(begun, on="start", by="process", check_sortedness=False)
        lost = lost.filter(pl.col("open").fill_null(0) == 0)
    return lost.select("process", launch="start")


def on_host_time(work: pl.DataFrame) -> tuple[pl.DataFrame, dict[int, int]]:
    """DEVICE_WORK whose kernels start after their launches.

    If the device's clock of a process is early, all its work is moved by as much as its kernels
    start too early. A few kernels that are early alone have no possible time, and are left out.

    Args:
        work: DEVICE_WORK and more columns.

    Returns:
        The work, and process → how far it was moved (ns).
    """
    early = (pl.col("kind") == "kernel") & (pl.col("launch") - pl.col("start") > EARLY_NS)
    found = work.filter(early)
    if found.is_empty():
        return work, {}
    kernels = dict(work.filter(kind="kernel").group_by("process").len().iter_rows())
    moved: dict[int, int] = {}
    for (process,), part in found.partition_by("process", as_dict=True).items():
        if part.height >= LEAST_EARLY * kernels[process]:
            by = (part["launch"] - part["start"]).to_numpy()
            moved[process] = int(np.quantile(by, 1 - LEAST_EARLY, method="higher"))
    shift = pl.col("process").replace_strict(moved, default=0, return_dtype=pl.Int64)
    work = work.with_columns(pl.col("start", "end") + shift)
    return work.filter(~early.fill_null(False)).sort("start", maintain_order=True), moved
