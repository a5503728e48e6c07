"""Reports mapped over an existing Dask cluster.

Workers see the reports on a shared file system and send their reduced rows back. What a lost
worker had, Dask runs again elsewhere; only what is whole comes here, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from dataclasses import replace
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future, KilledWorker, get_worker
from distributed.comm import CommClosedError

from rankscope.errors import RankscopeError, ToolError
from rankscope.ingestion.workers.dask_client import Versions, connected, mismatch, versions
from rankscope.ingestion.workers.local import Got, guarded
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile

PATIENCE_S = 30
"""How long nothing may come back before a cluster without workers is given up."""

AHEAD = 2
"""Reports under way for each thread of the workers: one is read, and one waits to be next.

Rows wait on their worker until they are asked for, so this bounds the workers' memory; here are
only those of the report that is being stored.
"""


def map_on_cluster(
    function: Callable[[ReportFile, ShapingOptions], Got],
    files: list[ReportFile],
    options: ShapingOptions,
    scheduler: str,
) -> Generator[tuple[ReportFile, Got | RankscopeError]]:
    """What `map_reports` yields, from the workers of a Dask cluster.

    Raises:
        ToolError: the cluster cannot be reached, has no workers or other versions, or is lost.
        UsageError: no address of a scheduler.
    """
    if not files:
        return
    with connected(scheduler) as client:
        wanted, folder = versions(), Path.cwd()
        waiting = iter(files)
        running: dict[Future, ReportFile] = {}
        ready: SimpleQueue[Future] = SimpleQueue()
        try:
            while True:
                room = AHEAD * _threads(client) - len(running)
                for file in islice(waiting, max(room, not running)):
                    there = replace(file, folder=folder)
                    future = client.submit(
                        read_report, function, there, options, wanted, pure=False
                    )
                    running[future] = file
                    future.add_done_callback(ready.put)
                if not running:
                    return
                future = _patiently(client, lambda: ready.get(timeout=PATIENCE_S))
                yield running.pop(future), _result(client, future)
        finally:
            client.cancel([*running])


def read_report(
    function: Callable[[ReportFile, ShapingOptions], Got],
    file: ReportFile,
    options: ShapingOptions,
    wanted: Versions,
) -> Got | RankscopeError:
    """On a worker: what the function gets of one report, or the error it raised.

    Raises:
        ToolError: the worker, which may have come late, has other versions, or no such file.
    """
    who = f"worker {get_worker().address}"
    if error := mismatch({who: versions()}, wanted):
        raise error
    if not file.place.exists():
        raise ToolError(
            f"{file.place}: is not there for {who}",
            hint="workers read the reports themselves: keep them where all machines see them "
            "under the same path",
        )
    return guarded(function, file, options)


def _patiently(client: Client, attempt: Callable[[], Got]) -> Got:
    """What an attempt brings, tried as long as the cluster has workers."""
    while True:
        try:
            return attempt()
        except (Empty, TimeoutError):
            if not _threads(client):
                raise ToolError(
                    f"the cluster at {client.scheduler.address} has no workers",
                    hint="start some, or wait until the jobs that hold them run; the same command "
                    "goes on from here",
                ) from None


def _threads(client: Client) -> int:
    """How many reports the workers read at once."""
    try:
        return sum(client.nthreads().values())
    except OSError as error:
        raise _lost(client) from error


def _result(client: Client, future: Future) -> Any:
    """What came of a report; rows lost with their worker are waited for."""
    try:
        if future.status == "error":  # whatever the function raised, a timeout as well
            return future.result()
        return _patiently(client, lambda: future.result(timeout=PATIENCE_S))
    except KilledWorker as error:
        return ToolError(
            f"a report ended every worker that read it, the last of them {error.last_worker}",
            hint="give workers more memory, or fewer threads each",
        )
    except (CancelledError, CommClosedError) as error:
        raise _lost(client) from error
    except ImportError as error:
        raise ToolError(
            f"a worker cannot read reports ({error})",
            hint="install rankscope on the workers as here",
        ) from error


def _lost(client: Client) -> ToolError:
    return ToolError(
        f"the connection to the scheduler at {client.scheduler.address} was lost",
        hint="is the scheduler still up? The same command goes on from here",
    )
