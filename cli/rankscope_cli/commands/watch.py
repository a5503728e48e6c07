"""`rankscope watch`: reports that arrive while a job runs, and the verdicts that change."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import console
from rankscope_cli.bundles import ShapingOfSeveral
from rankscope_cli.options import DB, LONGEST_S, Db, Format, FormatOption, Jobs, Quiet, Verbose

if TYPE_CHECKING:
    from rankscope.watch.watcher import Poll, Watcher

INTERVAL_S = 30.0
"""Time between two searches of the folder, s."""


def watch(
    *,
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder in which reports arrive, searched recursively."),
    ],
    db: Db = DB,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SECONDS",
            min=0.1,
            max=LONGEST_S,
            help="Time between two looks.",
        ),
    ] = INTERVAL_S,
    settle: Annotated[
        float,
        typer.Option(
            "--settle",
            metavar="SECONDS",
            min=0,
            max=LONGEST_S,
            help="A report is complete when its size and time did not change for this long.",
        ),
    ] = 10.0,
    patience: Annotated[
        float,
        typer.Option(
            "--patience",
            metavar="SECONDS",
            min=0,
            max=LONGEST_S,
            help="If ranks are missing, a window is compared when no report came for this long.",
        ),
    ] = 300.0,
    once: Annotated[
        bool, typer.Option("--once", help="Take in what is there, and stop: for cron.")
    ] = False,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Program to run when the verdict changes: it gets the verdict as JSON on stdin "
            "and in variables RANKSCOPE_*. No shell is involved.",
        ),
    ] = None,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            "--prometheus",
            metavar="FILE.prom",
            help="Write the last verdict for the textfile collector of node_exporter.",
        ),
    ] = None,
    shaping: ShapingOfSeveral,
    jobs: Jobs = None,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Take in reports as they arrive in a folder, and tell when the verdict changes.

    Each window of the job gets a database of its own: run.duckdb, run-2.duckdb and so on. Stop it
    with Ctrl-C; the same command goes on where it stopped.

    Examples:

      rankscope watch profiles/ --db run.duckdb

      rankscope watch profiles/ --exec 'notify-slow-rank' --format json

      rankscope watch profiles/ --once --prometheus /var/lib/node_exporter/rankscope.prom
    """
    from rankscope.errors import UsageError
    from rankscope.output.quantities import short_path
    from rankscope.util.atomic_io import check_writable
    from rankscope.watch.notify import words_of
    from rankscope.watch.watcher import Watcher, WatchOptions

    if output not in (Format.TABLE, Format.JSON):
        raise UsageError(
            f"--format {output.value}: watch writes a line per verdict", hint="table or json"
        )
    if prometheus is not None:
        check_writable(prometheus)
    words = None if command is None else words_of(command)
    watcher = Watcher(folder, db, WatchOptions(shaping, jobs, settle, patience))
    if not once:
        console.say(
            f"rankscope: watching {short_path(folder)} every {interval:g} s; a verdict is printed "
            f"when it changes; the database is {short_path(db)}; Ctrl-C ends it",
            quiet,
        )
    for number in count():
        poll = watcher.poll(once)
        _announce(watcher, poll, words, output, once, quiet)
        if prometheus is not None:
            _write(watcher, prometheus, quiet)
        if once and (number or not poll.growing):
            break
        time.sleep(settle if once else interval)


def _announce(
    watcher: Watcher,
    poll: Poll,
    words: list[str] | None,
    output: Format,
    once: bool,
    quiet: bool,
) -> None:
    """Print the results of a poll, and pass verdicts to the program of `--exec`."""
    from rankscope.output.documents.common import one_line
    from rankscope.util.wording import counted
    from rankscope.watch import documents
    from rankscope.watch.notify import tell

    console.warn(poll.problems, quiet)
    read = [f"{counted(poll.taken, 'report')} read"] if poll.taken else []
    if read or once:
        for text in (*read, *poll.waiting):
            console.say(f"rankscope: {text}", quiet)
    for each in poll.announcements:
        as_json = output is Format.JSON
        text = one_line(documents.document(each)) if as_json else documents.line(each)
        console.write(text, at_once=True)
        watcher.announced(each)
        if words is not None and each.changed:
            console.warn(tell(words, each), quiet)


def _write(watcher: Watcher, target: Path, quiet: bool) -> None:
    """Write the file for node_exporter; a failure is a warning, since the next poll tries again."""
    from rankscope.errors import DatabaseError, UsageError
    from rankscope.util.atomic_io import write_whole
    from rankscope.util.sanitize import sanitized
    from rankscope.watch.documents import prometheus

    try:
        write_whole(target, prometheus(watcher).encode())
    except (DatabaseError, UsageError) as error:
        console.say(f"rankscope: warning: {sanitized(error.message, 2000)}", quiet)
