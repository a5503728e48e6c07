"""Worker processes on this machine."""

import faulthandler
import gc
import os
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from rankscope.errors import RankscopeError, ReportBug, ReportError, UnreadableReport
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile
from rankscope.sources import formats
from rankscope.sources.columns.sqlite_pages import loader
from rankscope.sources.discover import describe_again
from rankscope.util.lifetime import end_with_parent, signals_held
from rankscope.util.threads import available_cores

SMALL_BYTES = 48 * 2**20
"""Size of exports that are read in the time that a worker needs to start. Reports of less in all
are read by this process; up to twice that size, it reads in place of one worker."""

REPORT_BYTES = 4 * 2**20
"""The fixed cost of a report, in bytes that are read in the same time."""

OTHERS_TIMES = 1.5
"""About how many times as long as an export of its size a trace or what is exported first takes."""

EXPORT_TIMES = 4
"""About how many times as large as the report its SQLite export is."""

NEEDED = ("rankscope.measure.report", "adbc_driver_sqlite")
"""Modules that workers import while they wait for the first report."""

ENVIRONMENT = {
    "POLARS_MAX_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # the allocator of polars keeps freed memory for 10 s: fewer page faults within a report
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000",
    # else loky takes a worker that read a large report for a memory leak and restarts it
    "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18",
}
"""Environment variables of the workers."""

TIDIED_UP = "ignore:resource_tracker:UserWarning"
"""What loky's tracker of semaphores would say after an interrupt: it has removed those left."""

AHEAD = 2
"""Reports in progress per worker: one being read, and one whose rows wait to be stored."""

AHEAD_BYTES = 2**28
"""More reports than that are in progress where they have no more bytes than this together: workers
read on while this process checks reports, or imports what stores them."""

TRIES_ALONE = 2
"""Times that a report is read alone before it is blamed for the end of its worker.

Before that, it may have been lost with the worker of another report. A worker may also be killed
because other programs take the memory.
"""

SIGNAL_NAME = re.compile(r"\b(SIG[A-Z]+)\b")
"""In loky's message about workers that were killed."""

LESS_HINT = (
    "read fewer reports at once with --jobs 1, use a machine with more memory, or leave it "
    "out with --on-error skip"
)

CHANGED_HINT = "is it still being written or copied? Run the same command again when that is done"

Got = TypeVar("Got")

Function = Callable[[ReportFile, ShapingOptions], Got]

Finished = Generator[tuple[ReportFile, Got | RankscopeError]]
"""Reports with their results or errors, as workers finish them."""

_Read = Callable[[ReportFile], Got | RankscopeError]
_Running = dict[Future[Got | RankscopeError], ReportFile]


class WorkerPool:
    """Worker processes, as many as the reports justify; must be closed."""

    def __init__(self, jobs: int | None = None, cores: int | None = None) -> None:
        """Start no process yet.

        Args:
            jobs: the limit; None: as many as there are cores.
            cores: those that this process may use; None: they are counted.
        """
        self._jobs = jobs
        self._cores = available_cores() if cores is None else cores
        self._workers = 0
        self._most = 0  # reports in progress
        self._helps = False  # whether this process reads as well
        self._share = 0  # bytes that each of them will read
        self._executor: Any = None  # loky's

    def start(self, files: list[ReportFile]) -> None:
        """Start the workers that `map` will need for these reports; they import meanwhile."""
        readers = self._worker_count(files)
        if not readers:
            return
        self._helps = self._jobs is None and _size(files) < 2 * SMALL_BYTES
        self._workers = readers - self._helps
        self._share = sum(map(_bytes_read, files)) // readers
        if self._helps:
            loader.amount.announce(self._share)
        self._start(self._workers)

    def map(
        self, function: Function[Got], files: list[ReportFile], options: ShapingOptions
    ) -> Finished[Got]:
        """Yield as `map_reports` does, from workers, or from this process where that is faster.

        Workers begin at once, before the first result is asked for.
        """
        read: _Read[Got] = partial(guarded, function, options=options)
        if not self._worker_count(files):
            loader.amount.announce(sum(map(_bytes_read, files)))
            return ((file, read(file)) for file in files)
        if self._executor is None:
            self.start(files)
        waiting = deque(sorted(files, key=lambda file: file.bytes, reverse=True))
        ahead = 0 if self._helps else AHEAD_BYTES // max(waiting[0].bytes, 1)
        self._most = max(AHEAD * self._workers, ahead)
        running: _Running[Got] = {}
        lost = self._submit_all(read, waiting, running)
        return self._results(read, waiting, running, lost)

    def _results(
        self,
        read: _Read[Got],
        waiting: deque[ReportFile],
        running: _Running[Got],
        lost: list[ReportFile],
    ) -> Finished[Got]:
        """Yield the results of reports that are waiting, running, or lost with their worker."""
        try:
            while waiting or running or lost:
                lost = lost or self._submit_all(read, waiting, running)
                reads = self._helps and bool(waiting) and not lost
                if reads:
                    file = waiting.pop()
                    yield file, read(file)
                results, killed = _finished(running, all_of_them=bool(lost), patient=not reads)
                yield from results
                if lost := lost + killed:
                    begun = AHEAD * self._workers  # at most: workers take what was submitted first
                    waiting.extendleft(reversed(lost[begun:]))
                    yield from self._each_alone(read, lost[:begun])
                    if waiting:
                        self._start(self._workers)
                    lost = []
        finally:
            self.close()

    def close(self) -> None:
        """Stop the workers at once."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, kill_workers=True)
            self._executor = None

    def _start(self, workers: int) -> None:
        """Start processes, in place of those that run."""
        # loky's workers are not forked (polars must not be) and need no `if __name__` guard.
        from loky import get_reusable_executor

        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
        with signals_held():  # Python's own tracker lets signals in again as soon as it runs
            resource_tracker.ensure_running()
        with signals_held(), _tidied_up(), suppress(BrokenExecutor):
            self._executor = get_reusable_executor(
                max_workers=workers,
                env=ENVIRONMENT,
                initializer=_ready,
                initargs=(os.getpid(), self._share, gc.get_threshold()[0]),
                reuse=False,
            )
            for _ in range(workers):
                self._executor.submit(_import_needed)

    def _submit(self, read: _Read[Got], file: ReportFile) -> Future[Got | RankscopeError]:
        with signals_held():  # a worker that was idle for long is started again here
            submitted: Future[Got | RankscopeError] = self._executor.submit(read, file)
        return submitted

    def _submit_all(
        self, read: _Read[Got], waiting: deque[ReportFile], running: _Running[Got]
    ) -> list[ReportFile]:
        """Start as many reports as there is room for; gives one that met killed workers, if any."""
        while waiting and len(running) < self._most:
            file = waiting.popleft()
            try:
                running[self._submit(read, file)] = file
            except BrokenExecutor:
                return [file]
        return []

    def _each_alone(self, read: _Read[Got], files: list[ReportFile]) -> Finished[Got]:
        """Read reports that were lost with a worker again, one at a time in one process."""
        is_ready = False
        for file in files:
            for _ in range(TRIES_ALONE):
                if not is_ready:
                    self._start(1)
                try:
                    result = self._submit(read, file).result()
                    is_ready = True
                    break
                except BrokenExecutor as error:
                    result, is_ready = _killed(file, error), False
            yield file, result

    def _worker_count(self, files: list[ReportFile]) -> int:
        """The number of processes that read these reports; 0 if this one alone does."""
        if self._jobs is None and _size(files) < SMALL_BYTES:
            return 0
        readers = min(self._jobs or self._cores, len(files))
        return readers if readers > 1 else 0


@contextmanager
def _tidied_up() -> Iterator[None]:
    """Within it, processes start with TIDIED_UP, as loky's tracker does with the first executor."""
    sys.warnoptions.append(TIDIED_UP)
    try:
        yield
    finally:
        sys.warnoptions.remove(TIDIED_UP)


def _size(files: list[ReportFile]) -> float:
    """The cost of reports, in bytes of exports that are read in the same time."""
    times = (1 if _bytes_read(file) == file.bytes else OTHERS_TIMES for file in files)
    return sum((REPORT_BYTES + file.bytes) * each for file, each in zip(files, times, strict=True))


def _finished(
    running: _Running[Got], all_of_them: bool, patient: bool
) -> tuple[list[tuple[ReportFile, Got | RankscopeError]], list[ReportFile]]:
    """Take out of `running` what has a result, and what was lost with a killed worker, in order."""
    until = ALL_COMPLETED if all_of_them else FIRST_COMPLETED
    done = wait(running, None if patient or all_of_them else 0, until).done
    if any(isinstance(future.exception(), BrokenExecutor) for future in done):
        done = wait(running).done  # a killed worker takes all that is in progress along
    results: list[tuple[ReportFile, Got | RankscopeError]] = []
    lost: list[ReportFile] = []
    for future in [each for each in running if each in done]:
        file = running.pop(future)
        if isinstance(future.exception(), BrokenExecutor):
            lost.append(file)
        else:
            results.append((file, future.result()))
    return results, lost


def guarded(
    function: Function[Got], file: ReportFile, options: ShapingOptions
) -> Got | RankscopeError:
    """The function's result, or an error that names the report, whatever was raised."""
    result: Got | RankscopeError
    try:
        result = function(file, options)
    except RankscopeError as error:
        result = error
    except MemoryError:
        result = ReportError(f"{file.path}: too large for the memory that is free", hint=LESS_HINT)
    except Exception as error:
        result = ReportBug(
            f"{file.path}: cannot be read because of a bug in rankscope ({type(error).__name__})",
            hint="leave it out with --on-error skip",
            details="".join(traceback.format_exception(error)),
        )
    return _changed(file) or result


def _changed(file: ReportFile) -> UnreadableReport | None:
    """The error of a report that is not as it was when it was found."""
    try:
        now = describe_again(file)
    except UnreadableReport:
        return UnreadableReport(f"{file.path}: vanished while it was read", hint=CHANGED_HINT)
    if (now.bytes, now.modified_ns) == (file.bytes, file.modified_ns):
        return None
    return UnreadableReport(f"{file.path}: changed while it was read", hint=CHANGED_HINT)


def _killed(file: ReportFile, error: BrokenExecutor) -> ReportError:
    """The error of a report whose reader was killed each time it was read alone."""
    signals = sorted({*SIGNAL_NAME.findall(str(error))})
    how = f" by {', '.join(signals)}" if signals else ""
    return ReportError(
        f"{file.path}: the process that read it was killed twice{how}; probably the memory is "
        "not enough",
        hint=LESS_HINT,
    )


def _bytes_read(file: ReportFile) -> int:
    """About the number of bytes of an export that are read of a report; 0 of other profilers."""
    form = formats.find(file.kind)
    if form is None or form.family != "nsys":
        return 0
    return file.bytes * (EXPORT_TIMES if form.exported else 1)


def _ready(parent: int, share: int, garbage_after: int) -> None:
    """Prepare a worker of the process `parent`, which will read about `share` bytes.

    It looks for garbage after as many new objects as `parent` does.
    """
    gc.set_threshold(garbage_after)
    faulthandler.disable()  # loky's; a crash is one line of error
    end_with_parent(parent)
    loader.amount.announce(share)


def _import_needed() -> None:
    for name in NEEDED:
        import_module(name)
