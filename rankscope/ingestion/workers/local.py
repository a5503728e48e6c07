"""Worker processes on this machine."""

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
"""Total size of reports below which this process is faster than starting workers."""

NEEDED = ("rankscope.measure.report", "adbc_driver_sqlite")
"""Modules that workers import while they wait for the first report."""

ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # else loky takes a worker that read a large report for a memory leak and restarts it
    "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18",
}
"""Environment variables of the workers."""

AHEAD = 2
"""Reports in progress per worker: one being read, and one whose rows wait to be stored."""

Got = TypeVar("Got")


class WorkerPool:
    """Worker processes, as many as the reports justify; must be closed."""

    def __init__(self, jobs: int | None = None) -> None:
        """Start no process yet; `jobs` is the limit, None for the cores this process may use."""
        self._jobs = jobs
        self._workers = 0
        self._executor: Any = None  # loky's

    def start(self, files: list[ReportFile]) -> None:
        """Start the workers that `map` will need for these reports; they import meanwhile."""
        self._workers = self._worth(files)
        if not self._workers:
            return
        # loky's workers are not forked (polars must not be) and need no `if __name__` guard.
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
        """Yield as `map_reports` does, from workers, or from this process where that is faster."""
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
        """Stop the workers at once."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, kill_workers=True)
            self._executor = None

    def _worth(self, files: list[ReportFile]) -> int:
        """The number of workers for these reports; 0 if this process reads them."""
        if self._jobs is None and sum(file.bytes for file in files) < SMALL_BYTES:
            return 0
        workers = min(self._jobs or available_cores(), len(files))
        return workers if workers > 1 else 0


def available_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def guarded(
    function: Callable[[ReportFile, ShapingOptions], Got], file: ReportFile, options: ShapingOptions
) -> Got | RankscopeError:
    """The function's result, or the error it raised if the user can fix it."""
    try:
        return function(file, options)
    except RankscopeError as error:
        return error


def _import_needed() -> None:
    for name in NEEDED:
        import_module(name)
