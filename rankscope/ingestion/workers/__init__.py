"""Workers that read reports in parallel: local processes or a Dask cluster."""

import logging
from contextlib import closing

from rankscope.errors import ReportBug, ToolError
from rankscope.ingestion.workers.local import Finished, Function, Got
from rankscope.ingestion.workers.local import WorkerPool as WorkerPool
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile, ReportRows
from rankscope.util import bug_log

LOG = logging.getLogger("rankscope.ingestion")

Results = Finished[ReportRows]
"""Reports with their rows or errors, as workers finish them."""


def map_reports(
    function: Function[Got],
    files: list[ReportFile],
    options: ShapingOptions,
    jobs: int | None = None,
    scheduler: str | None = None,
    pool: WorkerPool | None = None,
) -> Finished[Got]:
    """Yield each report with the function's result or the error it raised, as they finish.

    Local processes begin at once, before the first result is asked for.

    Args:
        function: called with a report and the options; must be importable by name.
        jobs: worker processes on this machine; None for the cores this process may use.
        scheduler: address or scheduler file of a Dask cluster, used instead of local processes.
        pool: local processes that were started before; replaces `jobs`.

    Raises:
        ToolError: the cluster cannot be used, or was lost.
        UsageError: `scheduler` is not an address.
    """
    if scheduler is None:
        return _noting((pool or WorkerPool(jobs)).map(function, files, options))
    try:
        from rankscope.ingestion.workers.dask import map_on_cluster
    except ModuleNotFoundError as error:
        raise ToolError(
            f"--scheduler needs Dask, which is not installed ({error.name} is missing)",
            hint="pip install 'rankscope[cluster]'; versions must equal those of the cluster",
        ) from error
    return _noting(map_on_cluster(function, files, options, scheduler))


def _noting(results: Finished[Got]) -> Finished[Got]:
    """Yield results; the traceback of a bug is logged, and the hint says where it is kept."""
    with closing(results):
        for file, result in results:
            if isinstance(result, ReportBug):
                for line in result.details.splitlines():
                    LOG.info("%s", line)
                result.hint += f"; {bug_log.hint(result.details)}"
            yield file, result
