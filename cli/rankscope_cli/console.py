"""The only file that prints: data to stdout, everything else to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from rankscope.records import Problem, ReportFile
    from rankscope.render.tables import Table

PIPED_WIDTH = 10_000

MOST_ROWS = 20
"""Rows of a table before its middle is left out."""


def write(text: str) -> None:
    """A line of data."""
    print(text)


def error(message: str, hint: str) -> None:
    """What went wrong, and what to do."""
    from rankscope.render.text import plain

    print(f"rankscope: error: {plain(message, 2000)}", file=sys.stderr)
    print(f"hint: {plain(hint, 2000)}", file=sys.stderr)


def warn(problems: Iterable[Problem], quiet: bool) -> None:
    """What a reader must know beside the numbers."""
    from rankscope.render.text import plain

    if not quiet:
        for problem in problems:
            print(f"rankscope: warning: {plain(problem.message, 2000)}", file=sys.stderr)


def say(text: str, quiet: bool = False) -> None:
    """A remark."""
    if not quiet:
        print(text, file=sys.stderr)


def show(table: Table, every: bool = False) -> None:
    """A table that fits the terminal; of many rows the first and last, unless `every`."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    console = _console()
    fitted, dropped = table.fitted(console.width)
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in fitted.columns:
        number = name in fitted.numeric
        rich.add_column(
            Text(name), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    for row in _cut(fitted.rows, every, len(fitted.columns)):
        rich.add_row(*map(Text, row))
    if table.title:
        console.print(Text(table.title, style="bold"))
    console.print(rich)
    if dropped:
        console.print(Text(f"left out to fit: {', '.join(dropped)} (--format csv has them)"))


def remark(text: str, remedy: str) -> None:
    """What is wrong, and below it what to do."""
    from textwrap import wrap

    lines = [*((line, "", "  ") for line in text.splitlines()), (remedy, "  → ", "    ")]
    for part, first, rest in lines:
        for line in wrap(
            part,
            _console().width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        ):
            write(line)


def headline(text: str) -> None:
    """The sentence that matters most."""
    from rich.text import Text

    _console().print(Text(text, style="bold"))


def _console() -> Console:
    """Standard output; when piped it is for other programs, and never folded."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPED_WIDTH
    return Console(width=width, highlight=False, markup=False)


@contextmanager
def progress(
    quiet: bool,
) -> Iterator[tuple[Callable[[list[ReportFile]], None], Callable[[ReportFile, int], None]]]:
    """A bar over the bytes of the reports, with rate and time left; nothing when piped."""
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

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("· reports"),
        TextColumn("{task.fields[done]}/{task.fields[count]}"),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        task = bars.add_task("reading", total=None, done=0, count=0)
        done = 0

        def started(files: list[ReportFile]) -> None:
            total = sum(file.bytes for file in files)
            bars.update(task, total=total, count=len(files))

        def advance(file: ReportFile, _events: int) -> None:
            nonlocal done
            done += 1
            bars.update(task, advance=file.bytes, done=done)

        yield started, advance


def _cut(rows: tuple[tuple[str, ...], ...], every: bool, width: int) -> list[tuple[str, ...]]:
    if every or len(rows) <= MOST_ROWS or not sys.stdout.isatty():
        return list(rows)
    half = MOST_ROWS // 2
    hidden = len(rows) - 2 * half
    gap = (f"… {hidden} more: --all", *[""] * (width - 1))
    return [*rows[:half], gap, *rows[-half:]]
