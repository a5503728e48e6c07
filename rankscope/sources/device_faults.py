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


def unrecorded(launches: pl.DataFrame, recorded: pl.DataFrame) -> pl.DataFrame:
    """UNRECORDED: launches of kernels that have no usable record.

    Args:
        launches: process, correlation and start of the calls that launch a kernel.
        recorded: process and correlation of the records that have possible times.
    """
    numbered = launches.filter(pl.col("correlation") != 0)
    lost = numbered.join(recorded, on=["process", "correlation"], how="anti")
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
