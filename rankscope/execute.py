"""Map one function over reports, several at once, results as they come."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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


def map_reports(
    function: Callable[[ReportFile, ShapingOptions], Got],
    files: list[ReportFile],
    options: ShapingOptions,
    jobs: int | None,
) -> Iterator[tuple[ReportFile, Got | RankscopeError]]:
    """Each report with what the function got of it, or the error it raised, in order of their end.

    Args:
        function: importable by name.
        files: the reports.
        options: passed on.
        jobs: worker processes; None for the cores this process may use.
    """
    workers = min(jobs or available_cores(), len(files))
    if workers <= 1 or (jobs is None and sum(file.bytes for file in files) < SMALL_BYTES):
        for file in files:
            yield _guarded(function, file, options)
        return
    # loky's workers start clean (polars must not be forked) and need no guarded main module.
    from loky import get_reusable_executor

    executor = get_reusable_executor(max_workers=workers, env={"POLARS_MAX_THREADS": "1"})
    futures = [executor.submit(_guarded, function, file, options) for file in files]
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        executor.shutdown(wait=False, kill_workers=True)


def _guarded(
    function: Callable[[ReportFile, ShapingOptions], Got], file: ReportFile, options: ShapingOptions
) -> tuple[ReportFile, Got | RankscopeError]:
    """What the function gets; an error the user can mend is a result like any other."""
    try:
        return file, function(file, options)
    except RankscopeError as error:
        return file, error
