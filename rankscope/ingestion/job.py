"""Ingest: reports found, processes started that read them, their rows stored, the run opened."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.errors import ReportError, UsageError
from rankscope.ingestion.workers import Crew, map_reports
from rankscope.model.options import ShapingOptions
from rankscope.sources.discover import discover
from rankscope.util.atomic_io import DEFAULT_DB

if TYPE_CHECKING:
    from rankscope.ingestion.preflight import Progress, Started
    from rankscope.run import Run


def ingest(
    paths: Iterable[str | Path],
    db: str | Path = DEFAULT_DB,
    *,
    iteration: str | None = None,
    phases: dict[str, str] | None = None,
    rank_pattern: str | None = None,
    jobs: int | None = None,
    scheduler: str | Path | None = None,
    on_error: str = "fail",
    rebuild: bool = False,
    ranks: Container[int] | None = None,
    started: Started | None = None,
    progress: Progress | None = None,
) -> Run:
    """Read reports into a run's database, and open it.

    A report that is in there already, unchanged and shaped by the same options, is not read
    again. Nothing is ever removed; a report that fails leaves what was there before.

    Args:
        paths: files, folders (searched recursively), globs.
        db: the DuckDB file, made where there is none.
        iteration: pattern of the names of iteration ranges, or `whole`.
        phases: phase → pattern of the names of its ranges.
        rank_pattern: pattern on the report's path, with a group `rank`.
        jobs: worker processes; default: the cores this process may use.
        scheduler: address or scheduler file of a Dask cluster whose workers see the same files;
            it reads the reports instead.
        on_error: `fail`, or `skip` to leave bad reports out and list them.
        rebuild: start the database over; the old one stays until the new one is done.
        ranks: only these ranks; the reports of others are neither exported nor read.
        started: called with the reports that will be read.
        progress: called after each of them.

    Raises:
        ReportError, UsageError, DatabaseError, ToolError: with the file or option, and what to
            do.
    """
    if on_error not in ("fail", "skip"):
        raise UsageError(f"--on-error {on_error}", hint="fail or skip")
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}", hint="at least 1")
    if jobs is not None and scheduler is not None:
        raise UsageError(
            "--jobs with --scheduler",
            hint="a cluster has the workers that were started; leave it out",
        )
    begin = time.monotonic()
    target = Path(db)
    unread: list[tuple[Path, ReportError]] = []
    files = discover(paths, None if on_error == "fail" else lambda *each: unread.append(each))
    with closing(Crew(jobs)) as crew:
        if scheduler is None and (rebuild or not target.exists()):
            crew.start(files)
        # Heavy, and imported while the crew imports the like.
        from rankscope.ingestion.preflight import Ingest
        from rankscope.sources.conventions import vocabulary

        options = ShapingOptions(iteration, tuple(sorted((phases or {}).items())), rank_pattern)
        if iteration not in ("auto", "whole"):
            vocabulary(options)  # a wrong pattern is found before any report is read
        job = Ingest(target, options, skip=on_error == "skip", rebuild=rebuild, ranks=ranks)
        for path, error in unread:
            job.leave_out(path, error)
        job.run(
            files,
            partial(
                map_reports, scheduler=None if scheduler is None else str(scheduler), crew=crew
            ),
            started or (lambda _: None),
            progress or (lambda *_: None),
        )
    from rankscope.run import Ingested, open_run

    run = open_run(target)
    run.ingested = Ingested(tuple(job.outcomes), time.monotonic() - begin, job.events)
    return run
