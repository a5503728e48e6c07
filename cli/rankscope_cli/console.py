"""The only module that prints text: data to stdout, everything else to stderr."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    import logging

    from msgspec import Struct

    from rankscope.api import Run
    from rankscope.model.reports import RunWarning
    from rankscope.output.table_layout import Table

PIPED_WIDTH = 100
"""Width of tables for pipes and files, in characters."""

BELOW = 2
"""Lines that remain free below tables on a terminal: for a warning and the prompt."""

UNLIMITED = 10_000
"""Width of whole tables for pipes and files, in characters: they are never folded."""

MOST_ALIKE = 3
"""Most warnings of a kind that are printed; the rest is counted."""

PIPE_CHARACTERS = 60_000
"""Characters that fit into a pipe; with more, a command waits until the reader has read some."""

RESOURCES = ExitStack()
"""Resources of a command, such as open databases. They are closed when it ends, or before it prints
more than fits into a pipe."""

LOGGER = "rankscope"
"""Parent of the library's loggers, one per package."""


def write(text: str, at_once: bool = False) -> None:
    """Print a line of data, unchanged.

    Args:
        at_once: flush it, for a reader of a pipe that waits for it.
    """
    _Output.written = True
    if len(text) > PIPE_CHARACTERS:
        RESOURCES.close()
    print(text, flush=at_once)


def write_document(document: Struct) -> None:
    """Print a JSON document."""
    from rankscope.output.documents.common import dumps

    write(dumps(document))


def prose(text: str) -> None:
    """Print a sentence, folded to the width of the terminal."""
    for line in _folded(text, sys.stdout):
        _Output.lines += 1
        print(line)


class _Output:
    """The output of this run on stdout."""

    json_command: str | None = None  # with --format json: the command
    written = False
    lines = 0  # of prose so far
    log_handler: logging.Handler | None = None


def note_command(arguments: Sequence[str]) -> None:
    """Note the command and its format, so that errors have the same format as the result."""
    words = [word for word in arguments if not word.startswith("-")]
    formats = [following for word, following in pairwise(arguments) if word == "--format"]
    formats += [word.partition("=")[2] for word in arguments if word.startswith("--format=")]
    _Output.json_command = words[0] if words and formats[-1:] == ["json"] else None
    _Output.written = False
    _Output.lines = 0


def error(message: str, hint: str, code: str = "failed", lines: Iterable[str] = ()) -> None:
    """Print an error and its remedy to stderr, and with --format json to stdout as well.

    Args:
        code: the error's name in JSON.
        lines: printed between the message and the hint.
    """
    _to_stderr(f"rankscope: error: {_sanitized(message)}")
    for line in lines:
        _to_stderr(f"  {_sanitized(line)}")
    _to_stderr(f"hint: {_sanitized(hint)}")
    if _Output.json_command is not None and not _Output.written:
        from msgspec import UNSET

        from rankscope.output.documents.common import Error, Failure, one_line

        failure = Failure(
            code=code,
            message=_sanitized(message),
            hint=_sanitized(hint),
            lines=tuple(map(_sanitized, lines)) or UNSET,
        )
        write(one_line(Error(format=f"rankscope/{_Output.json_command}/1", error=failure)))


def warn(problems: Iterable[RunWarning], quiet: bool, show_all: bool = False) -> None:
    """Print warnings to stderr, unless `quiet`: each once, and at most `MOST_ALIKE` of a kind."""
    if quiet:
        return
    kinds: dict[str, list[str]] = {}
    for problem in problems:
        messages = kinds.setdefault(problem.code, [])
        if problem.message not in messages:
            messages.append(problem.message)
    for texts in kinds.values():
        most = len(texts) if show_all else MOST_ALIKE
        for message in texts[:most]:
            _to_stderr(f"rankscope: warning: {_sanitized(message)}")
        if len(texts) > most:
            _to_stderr(f"rankscope: warning: and {len(texts) - most} more like these")


def warn_of_run(run: Run, problems: Iterable[RunWarning], quiet: bool, verbose: bool) -> None:
    """Print the warnings that `ingest` does not show, and count the others.

    That a pattern of this command fits nothing is no matter of the reports.
    """
    if quiet or verbose:
        warn(problems, quiet, show_all=verbose)
        return
    from rankscope.compare.comparison import Stage
    from rankscope.output.quantities import short_path
    from rankscope.util.wording import counted

    problems = list(problems)
    shown = {
        each.message
        for each in run.compare(until=Stage.MATCH).warnings
        if run.ingested is None or each.code != "pattern-unused"
    }
    warn([each for each in problems if each.message not in shown], quiet)
    count = len({each.message for each in problems} & shown)
    if count:
        _to_stderr(
            f"rankscope: {counted(count, 'warning')} about the reports: "
            f"rankscope check --db {shlex.quote(short_path(run.db))}"
        )


def say(text: str, quiet: bool = False) -> None:
    """Print a message to stderr, unless `quiet`."""
    if not quiet:
        _to_stderr(text)


def start_log() -> None:
    """Print the library's log records from level INFO on to stderr, until `stop_log`."""
    import logging

    class StderrHandler(logging.Handler):
        """Prints records as lines `rankscope: …`."""

        def emit(self, record: logging.LogRecord) -> None:
            try:
                _to_stderr(f"rankscope: {_sanitized(record.getMessage())}")
            except Exception:  # as the handlers of the standard library
                self.handleError(record)

    stop_log()
    _Output.log_handler = StderrHandler()
    logger = logging.getLogger(LOGGER)
    logger.addHandler(_Output.log_handler)
    logger.setLevel(logging.INFO)


def stop_log() -> None:
    """Undo `start_log`."""
    handler, _Output.log_handler = _Output.log_handler, None
    if handler is not None:
        logger = sys.modules["logging"].getLogger(LOGGER)
        logger.removeHandler(handler)
        logger.setLevel("NOTSET")


def show(table: Table, show_all: bool = False) -> None:
    """Print a table that fits the terminal, or PIPED_WIDTH in a pipe or file.

    If it has many rows, the most relevant ones are printed, unless `show_all`, which in a pipe or
    file is the whole table.
    """
    from rankscope.output.screen import lines_of

    if sys.stdout.isatty():
        lines = lines_of(table, _extent(sys.stdout, "columns"), show_all=show_all)
    else:
        width = UNLIMITED if show_all else PIPED_WIDTH
        lines = lines_of(table, width, show_all=show_all, sentences=UNLIMITED)
    _write_lines(lines[1:])


def show_together(tables: Sequence[Table], show_all: bool, below: str) -> None:
    """Print tables below each other, and a text below them; all fits a terminal, unless `show_all`.

    Args:
        below: one line below the tables, if it is not empty.
    """
    if show_all or not sys.stdout.isatty():
        for table in tables:
            write("")
            show(table, show_all)
        last = ["", below] if below else []
    else:
        from rankscope.output.screen import fitting

        width, height = _extent(sys.stdout, "columns"), _extent(sys.stdout, "lines")
        last = _folded(below, sys.stdout) if below else []
        room = height - _Output.lines - len(last) - BELOW
        lines = fitting(tables, width, room)
        _write_lines(lines if len(lines) >= room else [*lines, ("", False)])
    for line in last:
        print(line)


def problem(text: str, remedy: str) -> None:
    """Print a problem, and its remedy below it."""
    for line in text.splitlines():
        for folded in _folded(line, sys.stdout, "  "):
            print(folded)
    for folded in _folded(f"  → {remedy}", sys.stdout, "    "):
        print(folded)


def item(name: str, text: str, width: int) -> None:
    """Print a name in a column of `width` characters, and its text to the right of it."""
    gap = " " * max(1, width - len(name))
    for line in _folded(f"{name}{gap}{text}", sys.stdout, " " * width):
        print(line)


def headline(text: str) -> None:
    """Print the most important sentence, in bold."""
    for line in _folded(text, sys.stdout):
        _Output.lines += 1
        print(_bold(line))


def _write_lines(lines: Iterable[tuple[str, bool]]) -> None:
    """Print lines, headings in bold."""
    for line, is_heading in lines:
        print(_bold(line) if is_heading else line)


def _sanitized(text: str) -> str:
    from rankscope.util.sanitize import sanitized

    return sanitized(text, 2000)


def _to_stderr(text: str) -> None:
    for line in _folded(text, sys.stderr, "  "):
        print(line, file=sys.stderr)


def _folded(text: str, stream: TextIO, indent: str = "") -> list[str]:
    """A text as lines for a terminal, or as one line for a pipe or file."""
    if not stream.isatty():
        return [text]
    from rankscope.output.table_layout import fold

    return fold(text, _extent(stream, "columns"), indent)


def _extent(stream: TextIO, side: Literal["columns", "lines"]) -> int:
    """The size of a terminal; if unknown, that of COLUMNS or LINES, else 80 or 24."""
    try:
        size: int = getattr(os.get_terminal_size(stream.fileno()), side)
    except OSError:
        size = 0
    variable = os.environ.get(side.upper(), "")
    return (
        size or (int(variable) if variable.isdecimal() else 0) or (80 if side == "columns" else 24)
    )


def _bold(text: str) -> str:
    """`text` in bold if stdout is a terminal that can show it, and NO_COLOR is not set."""
    able = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return f"\x1b[1m{text}\x1b[0m" if able and not os.environ.get("NO_COLOR") else text
