"""The bar on a terminal that shows how much of the reports is read."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankscope.model.reports import ReportFile

POLL_S = 0.3
"""Time (s) between two updates of the progress of reports."""

BESIDE_BAR = 58
"""Characters beside the bar of progress, so that it stays one line on a narrow terminal."""


@contextmanager
def progress_bar(
    quiet: bool,
) -> Iterator[tuple[Callable[[list[ReportFile]], None], Callable[[ReportFile, int], None]]]:
    """A progress bar over the bytes of the reports, with rate and time left, on a terminal.

    Yields:
        A function to call with all reports, and one to call after each report.
    """
    if quiet or not sys.stderr.isatty():
        yield (lambda _: None), (lambda *_: None)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    screen = Console(stderr=True)
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(min(40, max(screen.width - BESIDE_BAR, 1))),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("· reports"),
        TextColumn("{task.fields[done]}/{task.fields[count]}"),
        console=screen,
        transient=True,
    )
    with _metered() as so_far, bars:
        task = bars.add_task("reading", total=None, done=0, count=0)
        sizes: dict[str, int] = {}  # of the reports that are not done
        done = 0

        def started(files: list[ReportFile]) -> None:
            sizes.update({str(file.path): file.bytes for file in files})
            bars.update(task, total=sum(sizes.values()), count=len(files))

        def advance(file: ReportFile, _events: int) -> None:
            nonlocal done
            done += sizes.pop(str(file.path), 0)
            bars.update(task, completed=done, done=bars.tasks[0].fields["done"] + 1)

        def poll() -> None:
            part = sum(min(read, sizes.get(path, 0)) for path, read in so_far().items())
            bars.update(task, completed=max(bars.tasks[0].completed, done + part))

        with _repeated(poll):
            yield started, advance


@contextmanager
def _metered() -> Iterator[Callable[[], dict[str, int]]]:
    """Within it, processes that read reports record their progress.

    Yields:
        A function that returns the bytes read of each report in progress.
    """
    import tempfile

    from rankscope.util import meter

    with tempfile.TemporaryDirectory(prefix="rankscope.") as folder:
        os.environ[meter.FOLDER] = folder
        try:
            yield lambda: meter.read_so_far(Path(folder))
        finally:
            del os.environ[meter.FOLDER]


@contextmanager
def _repeated(poll: Callable[[], None]) -> Iterator[None]:
    """Call a function every POLL_S in a thread."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(POLL_S):
            poll()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
