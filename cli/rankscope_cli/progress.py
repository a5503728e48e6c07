"""The bar on a terminal that shows how much of the reports is read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rankscope.model.reports import ReportFile

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
    with bars:
        task = bars.add_task("reading", total=None, done=0, count=0)

        def started(files: list[ReportFile]) -> None:
            bars.update(task, total=sum(file.bytes for file in files), count=len(files))

        def advance(file: ReportFile, _events: int) -> None:
            bars.update(task, advance=file.bytes, done=bars.tasks[0].fields["done"] + 1)

        yield started, advance
