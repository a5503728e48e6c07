"""Map one function over reports, several at once, results as they come."""

from __future__ import annotations

from collections.abc import Callable, Generator

from rankscope.errors import RankscopeError, ToolError
from rankscope.ingestion.workers.local import Got
from rankscope.ingestion.workers.local import WorkerPool as WorkerPool
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile


def map_reports(
    function: Callable[[ReportFile, ShapingOptions], Got],
    files: list[ReportFile],
    options: ShapingOptions,
    jobs: int | None = None,
    scheduler: str | None = None,
    crew: WorkerPool | None = None,
) -> Generator[tuple[ReportFile, Got | RankscopeError]]:
    """Each report with what the function got of it, or the error it raised, in order of their end.

    Args:
        function: importable by name.
        files: the reports.
        options: passed on.
        jobs: worker processes on this machine; None for the cores this process may use.
        scheduler: address or scheduler file of the Dask cluster that does it instead.
        crew: worker processes that were started early, in place of `jobs`.

    Raises:
        ToolError: the cluster cannot be used, or was lost.
        UsageError: no address of a scheduler.
    """
    if scheduler is None:
        return (crew or WorkerPool(jobs)).map(function, files, options)
    try:
        from rankscope.ingestion.workers.dask import map_on_cluster
    except ModuleNotFoundError as error:
        raise ToolError(
            f"--scheduler needs Dask, which is not installed ({error.name} is missing)",
            hint="pip install 'rankscope[cluster]', in the version that the cluster has",
        ) from error
    return map_on_cluster(function, files, options, scheduler)
