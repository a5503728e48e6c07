"""The only file that prints: data to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rankscope.model.reports import ReportFile, RunWarning
    from rankscope.output.table_layout import Table

PIPED_WIDTH = 10_000


def write(text: str) -> None:
    """A line of data, as it is."""
    print(text)


def prose(text: str) -> None:
    """A sentence, folded to the terminal."""
    for line in _folded(text, sys.stdout):
        print(line)


def error(message: str, hint: str) -> None:
    """What went wrong, and what to do."""
    _tell(f"rankscope: error: {_plain(message)}")
    _tell(f"hint: {_plain(hint)}")


def warn(problems: Iterable[RunWarning], quiet: bool) -> None:
    """What a reader must know beside the numbers."""
    if not quiet:
        for problem in problems:
            _tell(f"rankscope: warning: {_plain(problem.message)}")


def say(text: str, quiet: bool = False) -> None:
    """A remark."""
    if not quiet:
        _tell(text)


def show(table: Table, every: bool = False) -> None:
    """A table that fits the terminal; of many rows those that tell most, unless `every`.

    When piped it is for other programs: whole, and without bars.
    """
    if not sys.stdout.isatty():
        whole = table.without(table.drawn)
        _table(whole, whole.lines(PIPED_WIDTH))
        return
    width = _width(sys.stdout)
    part, gap = (table, 0) if every else table.shortened()
    fitted, dropped = part.fitted(width)
    more = f"… {len(table.rows) - len(part.rows)} more: --all" if gap else ""
    _table(fitted, fitted.lines(width, gap, more))
    left_out = [name for name in dropped if name not in table.drawn]
    if left_out:
        prose(f"(too narrow here for: {', '.join(left_out)})")


def remark(text: str, remedy: str) -> None:
    """What is wrong, and below it what to do."""
    for line in text.splitlines():
        for part in _folded(line, sys.stdout, "  "):
            print(part)
    for part in _folded(f"  → {remedy}", sys.stdout, "    "):
        print(part)


def item(name: str, text: str, width: int) -> None:
    """A name in a column `width` wide, and its text to the right of it."""
    gap = " " * max(1, width - len(name))
    for line in _folded(f"{name}{gap}{text}", sys.stdout, " " * width):
        print(line)


def headline(text: str) -> None:
    """The sentence that matters most."""
    for line in _folded(text, sys.stdout):
        print(_bold(line))


def _table(table: Table, lines: list[str]) -> None:
    if table.title:
        headline(table.title)
    if not table.rows:
        return
    print(_bold(lines[0]))
    for line in lines[1:]:
        print(line)
    if table.note:
        prose(table.note)


def _plain(text: str) -> str:
    from rankscope.util.sanitize import sanitized

    return sanitized(text, 2000)


def _tell(text: str) -> None:
    for line in _folded(text, sys.stderr, "  "):
        print(line, file=sys.stderr)


def _folded(text: str, stream: TextIO, indent: str = "") -> list[str]:
    """Lines for a terminal; one line for anything else."""
    if not stream.isatty():
        return [text]
    from rankscope.output.table_layout import fold

    return fold(text, _width(stream), indent)


def _width(stream: TextIO) -> int:
    """How wide a terminal is; COLUMNS says it where it cannot."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns = 0
    told = os.environ.get("COLUMNS", "")
    return columns or (int(told) if told.isdecimal() else 0) or 80


def _bold(text: str) -> str:
    """`text` in bold where a terminal shows it and NO_COLOR does not forbid it."""
    able = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return f"\x1b[1m{text}\x1b[0m" if able and not os.environ.get("NO_COLOR") else text


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
