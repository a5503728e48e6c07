"""One ingest from start to end: reports found, workers started, rows stored, ranks compared."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.errors import ReportError, UsageError
from rankscope.ingestion.workers import WorkerPool, map_reports
from rankscope.model.options import ShapingOptions
from rankscope.sources.discover import discover
from rankscope.util.atomic_io import DEFAULT_DB

if TYPE_CHECKING:
    from rankscope.ingestion.preflight import Progress, Started
    from rankscope.model.reports import ReportOutcome


@dataclass(frozen=True, slots=True)
class Ingested:
    """What an ingest did."""

    outcomes: tuple[ReportOutcome, ...]
    seconds: float
    events: int


def ingest_reports(
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
) -> Ingested:
    """Read reports into a run's database; parameters and errors as `rankscope.ingest` has them.

    Importing this module loads nothing heavy, so that the workers start before polars is here.
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
    with closing(WorkerPool(jobs)) as crew:
        if scheduler is None and (rebuild or not target.exists()):
            crew.start(files)
        # Heavy, and imported while the crew imports the like.
        from rankscope.ingestion.preflight import IngestJob
        from rankscope.sources.conventions import vocabulary

        options = ShapingOptions(iteration, tuple(sorted((phases or {}).items())), rank_pattern)
        if iteration not in ("auto", "whole"):
            vocabulary(options)  # a wrong pattern is found before any report is read
        job = IngestJob(target, options, skip=on_error == "skip", rebuild=rebuild, ranks=ranks)
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
    return Ingested(tuple(job.outcomes), time.monotonic() - begin, job.events)
