"""The run that the arguments of a command name: a database, or reports to ingest into one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.errors import UsageError
from rankscope_cli import console
from rankscope_cli.progress import progress_bar

if TYPE_CHECKING:
    from rankscope.api import Run
    from rankscope.ingestion.job import Ingested
    from rankscope.model.options import ShapingOptions


def run_of(paths: list[str], db: Path, shaping: ShapingOptions, quiet: bool, verbose: bool) -> Run:
    """The run of a database, or of reports, which are ingested first.

    Args:
        paths: a database, or reports, folders and patterns; empty: the run of `db`.
        db: the database to open; with reports, the one to ingest them into.
        shaping: how reports become rows.

    Raises:
        UsageError: a folder without reports holds several databases, or nothing; or names in
            reports are given without reports.
    """
    named = _database(paths)
    if named is not None or not paths:
        if shaping != type(shaping)():
            raise UsageError(
                "--iteration, --phase and so on are about reports, and none is named",
                hint="give them with the reports: rankscope imbalance PROFILES --iteration REGEX",
            )
        return opened(named or db)
    from rankscope.ingestion.job import ingest_reports

    with progress_bar(quiet) as (started, advance):
        ingested = ingest_reports(paths, db, shaping, started=started, progress=advance)
    run = opened(db, just_stored=True)
    run.ingested = ingested
    say_skipped(ingested, verbose)
    read = sum(each.status == "read" for each in ingested.outcomes)
    from rankscope.output.quantities import short_path
    from rankscope.util.wording import counted

    reports = counted(len(ingested.outcomes), "report")
    console.say(f"rankscope: {reports} ({read} read) in {short_path(run.db)}", quiet)
    return run


def say_skipped(ingested: Ingested, verbose: bool) -> None:
    """Say which reports were left out, and why: all of them if `verbose`."""
    from rankscope.util.wording import MOST_LISTED

    skipped = [each.reason for each in ingested.outcomes if each.status == "skipped"]
    most = len(skipped) if verbose else MOST_LISTED
    for reason in skipped[:most]:
        console.say(f"rankscope: skipped: {reason}")
    if len(skipped) > most:
        console.say(f"rankscope: skipped: and {len(skipped) - most} more; -v names all")


def opened(db: Path, just_stored: bool = False) -> Run:
    """The run of a database, which stays open until the command ends: see `api.reading`.

    Args:
        just_stored: whether this process has just stored reports in it: others may be doing so,
            and are waited for.
    """
    from rankscope.api import reading
    from rankscope.store.connection import AFTERWARDS_S, PATIENCE_S

    patience_s = AFTERWARDS_S if just_stored else PATIENCE_S
    return console.RESOURCES.enter_context(reading(db, patience_s=patience_s))


def _database(paths: list[str]) -> Path | None:
    """The database that a single path names: the file, or the one in a folder without reports."""
    if len(paths) != 1:
        return None
    path = Path(paths[0])
    if path.suffix == ".duckdb":
        return path
    if not path.is_dir():
        return None
    from rankscope.sources.discover import discover
    from rankscope.store.database import databases_in
    from rankscope.util.wording import counted

    databases = databases_in(path)
    if not databases:
        return None
    try:
        discover(paths, lambda *_: None)
    except UsageError:
        if len(databases) == 1:
            return databases[0]
        listed = ", ".join(shlex.quote(str(each)) for each in databases)
        raise UsageError(
            f"{path} holds no reports, but {counted(len(databases), 'database')}",
            hint=f"name one: {listed}",
        ) from None
    return None
