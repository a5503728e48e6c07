"""Reports mapped over an existing Dask cluster; only this module imports Dask.

Workers see the reports on a shared file system and send their reduced rows back. What a lost
worker had, Dask runs again elsewhere; only what is whole comes here, and once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue

from distributed import Client, Future, KilledWorker, get_worker
from distributed.core import rpc
from distributed.security import Security
from distributed.versions import VersionMismatchWarning

from rankscope.errors import RankscopeError, ToolError, UsageError
from rankscope.execute.local import Got, guarded
from rankscope.records import ReportFile, ShapingOptions

EQUAL = ("rankscope", "dask", "distributed", "polars")
"""Packages that must be of one version everywhere: their objects travel between the processes."""

CONNECT_S = 10
"""How long a scheduler may take to answer."""

PATIENCE_S = 30
"""How long nothing may come back before a cluster without workers is given up."""

AHEAD = 2
"""Reports under way for each thread of the workers: one is read, and one waits to be next.

Rows wait on their worker until they are asked for, so this bounds the cluster's memory; here are
only those of the report that is being stored.
"""

ADDRESS_HINT = "--scheduler tcp://HOST:8786, or the file of dask scheduler --scheduler-file"


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
    with _connected(scheduler) as client:
        ours = _versions()
        _check_versions(client, ours)
        folder = Path.cwd()
        waiting = iter(files)
        running: dict[Future, ReportFile] = {}
        ready: SimpleQueue[Future] = SimpleQueue()
        try:
            while True:
                room = AHEAD * sum(client.nthreads().values()) - len(running)
                for file in islice(waiting, max(room, not running)):
                    there = replace(file, folder=folder)
                    future = client.submit(read_report, function, there, options, ours, pure=False)
                    running[future] = file
                    future.add_done_callback(ready.put)
                if not running:
                    return
                future = _patiently(client, lambda: ready.get(timeout=PATIENCE_S))
                yield running.pop(future), _result(client, future)
                del future  # the worker may forget it
        except (OSError, CancelledError) as error:
            raise _lost(scheduler) from error
        finally:
            client.cancel([*running])


def read_report(
    function: Callable[[ReportFile, ShapingOptions], Got],
    file: ReportFile,
    options: ShapingOptions,
    wanted: dict[str, str | None],
) -> Got | RankscopeError:
    """On a worker: what the function gets of one report, or the error it raised.

    Raises:
        ToolError: the worker has other versions than the process that asks, or no such file.
    """
    address = get_worker().address
    if unequal := _unequal(address, _versions(), wanted):
        raise _mismatch([unequal])
    if not file.place.exists():
        raise ToolError(
            f"{file.place}: is not there for worker {address}",
            hint="workers read the reports themselves: keep them where all machines see them under "
            "the same path",
        )
    return guarded(function, file, options)


@contextmanager
def _connected(scheduler: str) -> Iterator[Client]:
    """A client of a scheduler that was seen to be one; what is left of its tasks is forgotten."""
    address = _address(scheduler)
    with _silenced():
        asyncio.run(_check_is_scheduler(address, scheduler))
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ImportError) as error:
            raise _unreachable(scheduler, "it does not take this client") from error
        try:
            yield client
        finally:
            client.close(timeout=CONNECT_S)


@contextmanager
def _silenced() -> Iterator[None]:
    """Dask's own words about lost connections and versions stay unsaid: errors say it here."""
    logger = logging.getLogger("distributed")
    loggers = [logger, *(logging.getLogger(f"distributed.{name}") for name in ("client", "core"))]
    before = [each.level for each in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VersionMismatchWarning)
        for each in loggers:
            each.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for each, level in zip(loggers, before, strict=True):
                each.setLevel(level)


def _address(scheduler: str) -> str:
    """The address as given, or as it stands in a scheduler file."""
    path = Path(scheduler)
    if not (path.suffix == ".json" or path.is_file()):
        return scheduler
    try:
        address = json.loads(path.read_text("utf-8"))["address"]
    except OSError as error:
        raise ToolError(
            f"{path}: the scheduler file cannot be read ({error.strerror})",
            hint="is the scheduler up? It writes the file when it starts",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{path}: is no scheduler file", hint=ADDRESS_HINT) from error
    return str(address)


async def _check_is_scheduler(address: str, scheduler: str) -> None:
    """Raises unless a Dask scheduler answers: a client would wait for some others for ever."""
    try:
        peer = rpc(address, connection_args=Security().get_connection_args("client"))
        try:
            told = await asyncio.wait_for(peer.identity(), CONNECT_S)
        finally:
            await peer.close_rpc()
    except ValueError as error:
        raise UsageError(
            f"--scheduler {scheduler}: is no address ({error})", hint=ADDRESS_HINT
        ) from error
    except OSError as error:
        raise _unreachable(scheduler, "no answer") from error
    except Exception as error:  # whatever the bytes of a stranger lead to
        raise _unreachable(scheduler, "what answers there is no Dask scheduler") from error
    if told["type"] != "Scheduler":
        raise _unreachable(scheduler, f"a Dask {told['type'].lower()} answers there")


def _versions() -> dict[str, str | None]:
    """Versions of what must be equal, in this process; None for what is not installed."""
    found: dict[str, str | None] = {"python": _short(".".join(map(str, sys.version_info[:3])))}
    for name in EQUAL:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _short(python: str) -> str:
    """Of Python's version what matters: 3.11."""
    return ".".join(python.split(".")[:2])


def _check_versions(client: Client, ours: dict[str, str | None]) -> None:
    """Raises `ToolError` where the scheduler or a worker has other versions, naming the first."""
    told = client.get_versions(packages=[*EQUAL])
    members = {"the scheduler": told["scheduler"], **told["workers"]}
    unequal = [
        difference
        for name, member in members.items()
        if member is not None
        and (
            difference := _unequal(
                name,
                {**member["packages"], "python": _short(str(member["packages"]["python"]))},
                ours,
            )
        )
    ]
    if unequal:
        raise _mismatch(unequal)


def _unequal(name: str, theirs: dict[str, str | None], ours: dict[str, str | None]) -> str | None:
    """How a member of the cluster differs from this process, in words."""
    different = [
        f"{package} {theirs.get(package) or 'not installed'} (here {wanted or 'not installed'})"
        for package, wanted in ours.items()
        if theirs.get(package) != wanted
    ]
    where = name if name.startswith("the ") else f"worker {name}"
    return f"{where} has {', '.join(different)}" if different else None


def _patiently(client: Client, attempt: Callable[[], Got]) -> Got:
    """What an attempt brings, tried as long as the cluster has workers."""
    while True:
        try:
            return attempt()
        except (Empty, TimeoutError):
            if not client.nthreads():
                raise ToolError(
                    f"the cluster at {client.scheduler.address} has no workers",
                    hint="start some, or wait until the jobs that hold them run; the same command "
                    "goes on from here",
                ) from None


def _result(client: Client, future: Future) -> object:
    """What came of a report; rows lost with their worker are waited for."""
    try:
        return _patiently(client, lambda: future.result(timeout=PATIENCE_S))
    except KilledWorker as error:
        return ToolError(
            f"a report killed every worker that read it, the last of them {error.last_worker}",
            hint="give workers more memory, or fewer threads each",
        )
    except ImportError as error:
        raise ToolError(
            f"a worker cannot read reports ({error})",
            hint="install rankscope on the workers as here",
        ) from error


def _mismatch(unequal: list[str]) -> ToolError:
    others = f", and {len(unequal) - 1} more differ" if len(unequal) > 1 else ""
    return ToolError(
        f"versions are unequal: {unequal[0]}{others}",
        hint="start scheduler and workers from the environment that rankscope runs in",
    )


def _unreachable(scheduler: str, why: str) -> ToolError:
    return ToolError(
        f"--scheduler {scheduler}: cannot be used ({why})",
        hint=f"is the scheduler up, and its port open from here? {ADDRESS_HINT}",
    )


def _lost(scheduler: str) -> ToolError:
    return ToolError(
        f"--scheduler {scheduler}: the connection was lost",
        hint="is the scheduler still up? The same command goes on from here",
    )
