"""Workers that read reports in parallel: local processes or a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import closing

from rankscope.errors import RankscopeError, ReportBug, ToolError
from rankscope.ingestion.workers.local import Got
from rankscope.ingestion.workers.local import WorkerPool as WorkerPool
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile, ReportRows
from rankscope.util import bug_log

LOG = logging.getLogger("rankscope.ingestion")

Results = Generator[tuple[ReportFile, ReportRows | RankscopeError]]
"""Reports with their rows or errors, as workers finish them."""


def map_reports(
    function: Callable[[ReportFile, ShapingOptions], Got],
    files: list[ReportFile],
    options: ShapingOptions,
    jobs: int | None = None,
    scheduler: str | None = None,
    pool: WorkerPool | None = None,
) -> Generator[tuple[ReportFile, Got | RankscopeError]]:
    """Yield each report with the function's result or the error it raised, as they finish.

    Local processes begin at once, before the first result is asked for.

    Args:
        function: called with a report and the options; must be importable by name.
        options: passed to the function.
        jobs: worker processes on this machine; None for the cores this process may use.
        scheduler: address or scheduler file of a Dask cluster, used instead of local processes.
        pool: local processes that were started before; replaces `jobs`.

    Raises:
        ToolError: the cluster cannot be used, or was lost.
        UsageError: `scheduler` is not an address.
    """
    if scheduler is None:
        return _noting((pool or WorkerPool(jobs)).map(function, files, options))
    return _noting(_on_cluster(function, files, options, scheduler))


def _noting(
    results: Generator[tuple[ReportFile, Got | RankscopeError]],
) -> Generator[tuple[ReportFile, Got | RankscopeError]]:
    """Yield results, after the traceback of a bug was logged."""
    with closing(results):
        for file, result in results:
            yield file, _noted(result) if isinstance(result, ReportBug) else result


def _noted(bug: ReportBug) -> ReportBug:
    """The error with the place of its traceback, which is logged and kept in a file."""
    for line in bug.details.splitlines():
        LOG.info("%s", line)
    path = bug_log.kept(bug.details)
    where = "what --verbose says" if path is None else f"the last traceback in {path}"
    hint = f"leave it out with --on-error skip; please report the bug, with {where}"
    return ReportBug(bug.message, hint=hint, details=bug.details)


def _on_cluster(
    function: Callable[[ReportFile, ShapingOptions], Got],
    files: list[ReportFile],
    options: ShapingOptions,
    scheduler: str,
) -> Generator[tuple[ReportFile, Got | RankscopeError]]:
    try:
        from rankscope.ingestion.workers.dask import map_on_cluster
    except ModuleNotFoundError as error:
        raise ToolError(
            f"--scheduler needs Dask, which is not installed ({error.name} is missing)",
            hint="pip install 'rankscope[cluster]'; versions must equal those of the cluster",
        ) from error
    return map_on_cluster(function, files, options, scheduler)
