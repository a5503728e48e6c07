"""Reports mapped over processes of this machine."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from importlib import import_module
from typing import Any, TypeVar

from rankscope.errors import RankscopeError
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile

SMALL_BYTES = 32 * 2**20
"""Less than this altogether is read sooner than worker processes start."""

NEEDED = ("rankscope.measure.report", "adbc_driver_sqlite")
"""What workers import while nothing is asked of them yet."""

ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # else loky takes a worker that has read a large report for one that leaks, and starts another
    "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18",
}
"""Of workers."""

AHEAD = 2
"""Reports under way for each worker: one that is read, and one that waits to be taken in."""

Got = TypeVar("Got")


class WorkerPool:
    """Worker processes, as many as reports are worth; to be closed."""

    def __init__(self, jobs: int | None = None) -> None:
        """None are started yet; `jobs`: at most; None: as many as this process may use cores."""
        self._jobs = jobs
        self._workers = 0
        self._executor: Any = None  # loky's

    def start(self, files: list[ReportFile]) -> None:
        """Have as many as `map` will want for such reports; they import meanwhile."""
        self._workers = self._worth(files)
        if not self._workers:
            return
        # loky's workers start clean (polars must not be forked) and need no guarded main module.
        from loky import get_reusable_executor

        self._executor = get_reusable_executor(max_workers=self._workers, env=ENVIRONMENT)
        for _ in range(self._workers):
            self._executor.submit(_import_needed)

    def map(
        self,
        function: Callable[[ReportFile, ShapingOptions], Got],
        files: list[ReportFile],
        options: ShapingOptions,
    ) -> Generator[tuple[ReportFile, Got | RankscopeError]]:
        """What `map_reports` yields, from workers, or from this process where that is faster."""
        if not self._worth(files):
            for file in files:
                yield file, guarded(function, file, options)
            return
        if self._executor is None:
            self.start(files)
        waiting = deque(sorted(files, key=lambda file: file.bytes, reverse=True))
        running: dict[Future[Got | RankscopeError], ReportFile] = {}
        try:
            while waiting or running:
                while waiting and len(running) < AHEAD * self._workers:
                    file = waiting.popleft()
                    running[self._executor.submit(guarded, function, file, options)] = file
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            self.close()

    def close(self) -> None:
        """End them, whatever they are at."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, kill_workers=True)
            self._executor = None

    def _worth(self, files: list[ReportFile]) -> int:
        """How many workers for such reports; 0: this process reads them."""
        if self._jobs is None and sum(file.bytes for file in files) < SMALL_BYTES:
            return 0
        workers = min(self._jobs or available_cores(), len(files))
        return workers if workers > 1 else 0


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def guarded(
    function: Callable[[ReportFile, ShapingOptions], Got], file: ReportFile, options: ShapingOptions
) -> Got | RankscopeError:
    """What the function gets; an error the user can mend is a result like any other."""
    try:
        return function(file, options)
    except RankscopeError as error:
        return error


def _import_needed() -> None:
    for name in NEEDED:
        import_module(name)
