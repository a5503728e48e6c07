"""Workers of an existing Dask cluster.

Workers read the reports from a shared file system and send the reduced rows back. If a worker is
lost, Dask reads its reports again on another; each report is received whole and once.
"""

from collections.abc import Callable
from concurrent.futures import CancelledError
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future, KilledWorker, get_worker
from distributed.comm import CommClosedError
from msgspec.structs import replace

from rankscope.errors import RankscopeError, ToolError
from rankscope.ingestion.workers.dask_client import (
    CONNECT_S,
    Versions,
    connected,
    mismatch,
    versions,
)
from rankscope.ingestion.workers.local import Finished, Function, Got, guarded
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile

PATIENCE_S = 30.0
"""Seconds to wait for a cluster that has no workers."""

AHEAD = 2
"""Reports in progress per worker thread: one being read, and the next.

Rows stay on their worker until they are fetched, so this bounds the workers' memory; this process
holds the rows of one report only.
"""


def map_on_cluster(
    function: Function[Got],
    files: list[ReportFile],
    options: ShapingOptions,
    scheduler: str,
    connect_s: float = CONNECT_S,
    patience_s: float = PATIENCE_S,
) -> Finished[Got]:
    """Yield as `map_reports` does, from the workers of a Dask cluster.

    Args:
        function, files, options: as of `map_reports`.
        scheduler: its address, or the path of a scheduler file.
        connect_s: seconds that the scheduler may take to answer.
        patience_s: seconds to wait for a cluster that has no workers.

    Raises:
        ToolError: the cluster is not reachable, has no workers, has other versions, or is lost.
        UsageError: `scheduler` is not an address.
    """
    if not files:
        return
    with connected(scheduler, connect_s) as client:
        wanted, folder = versions(), Path.cwd()
        waiting = iter(files)
        running: dict[Future, ReportFile] = {}
        ready: SimpleQueue[Future] = SimpleQueue()
        try:
            while True:
                room = AHEAD * _threads(client) - len(running)
                for file in islice(waiting, max(room, not running)):
                    located = replace(file, folder=folder)
                    future = client.submit(
                        read_report, function, located, options, wanted, pure=False
                    )
                    running[future] = file
                    future.add_done_callback(ready.put)
                if not running:
                    return
                future = _patiently(client, lambda: ready.get(timeout=patience_s))
                yield running.pop(future), _result(client, future, patience_s)
        finally:
            client.cancel([*running])


def read_report(
    function: Function[Got], file: ReportFile, options: ShapingOptions, wanted: Versions
) -> Got | RankscopeError:
    """The function's result for one report, or the error it raised; runs on a worker.

    Raises:
        ToolError: the worker has other versions, or does not see the file.
    """
    who = f"worker {get_worker().address}"
    if error := mismatch({who: versions()}, wanted):
        raise error
    if gone := [place for place in file.places if not place.exists()]:
        raise ToolError(
            f"{gone[0]}: does not exist on {who}",
            hint="workers read the reports themselves: put them where all machines see them "
            "under the same path",
        )
    return guarded(function, file, options)


def _patiently(client: Client, attempt: Callable[[], Got]) -> Got:
    """The result of `attempt`, waited for as long as the cluster has workers."""
    while True:
        try:
            return attempt()
        except (Empty, TimeoutError):
            if not _threads(client):
                raise ToolError(
                    f"the cluster at {client.scheduler.address} has no workers",
                    hint="start workers, or wait until their jobs run; then run the same "
                    "command again to resume",
                ) from None


def _threads(client: Client) -> int:
    """The number of reports that the workers read at once."""
    try:
        return sum(client.nthreads().values())
    except OSError as error:
        raise _lost(client) from error


def _result(client: Client, future: Future, patience_s: float) -> Any:
    """The result for a report; rows lost with their worker are computed again."""
    try:
        if future.status == "error":  # the function may raise anything, including a timeout
            return future.result()
        return _patiently(client, lambda: future.result(timeout=patience_s))
    except KilledWorker as error:
        return ToolError(
            f"every worker that read a report was killed, last {error.last_worker}",
            hint="give workers more memory, or fewer threads each",
        )
    except (CancelledError, CommClosedError) as error:
        raise _lost(client) from error
    except ImportError as error:
        raise ToolError(
            f"a worker cannot read reports ({error})",
            hint="install the same rankscope on the workers",
        ) from error


def _lost(client: Client) -> ToolError:
    return ToolError(
        f"the connection to the scheduler at {client.scheduler.address} was lost",
        hint="is the scheduler still running? Run the same command again to resume",
    )
