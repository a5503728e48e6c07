"""Reports mapped over processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from concurrent.futures import as_completed
from typing import TypeVar

from rankscope.errors import RankscopeError
from rankscope.records import ReportFile, ShapingOptions

SMALL_BYTES = 32 * 2**20
"""Less than this altogether is read sooner than worker processes start."""

Got = TypeVar("Got")


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_locally(
    function: Callable[[ReportFile, ShapingOptions], Got],
    files: list[ReportFile],
    options: ShapingOptions,
    jobs: int | None,
) -> Generator[tuple[ReportFile, Got | RankscopeError]]:
    """What `map_reports` yields, from worker processes, or from this one where that is faster."""
    workers = min(jobs or available_cores(), len(files))
    if workers <= 1 or (jobs is None and sum(file.bytes for file in files) < SMALL_BYTES):
        for file in files:
            yield file, guarded(function, file, options)
        return
    # loky's workers start clean (polars must not be forked) and need no guarded main module.
    from loky import get_reusable_executor

    executor = get_reusable_executor(max_workers=workers, env={"POLARS_MAX_THREADS": "1"})
    futures = {executor.submit(guarded, function, file, options): file for file in files}
    try:
        for future in as_completed(futures):
            yield futures.pop(future), future.result()
    finally:
        executor.shutdown(wait=False, kill_workers=True)


def guarded(
    function: Callable[[ReportFile, ShapingOptions], Got], file: ReportFile, options: ShapingOptions
) -> Got | RankscopeError:
    """What the function gets; an error the user can mend is a result like any other."""
    try:
        return function(file, options)
    except RankscopeError as error:
        return error
