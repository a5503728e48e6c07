"""A client of a Dask cluster, after checks that it is one and that its versions match."""

import asyncio
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from distributed import Client
from distributed.core import rpc
from distributed.security import Security
from distributed.versions import VersionMismatchWarning

from rankscope.errors import ToolError, UsageError

CONNECT_S = 10.0
"""Seconds that a scheduler may take to answer."""

EQUAL = ("rankscope", "dask", "distributed", "polars")
"""Packages that need the same version everywhere, because their objects are sent around."""

ADDRESS_HINT = "--scheduler tcp://HOST:8786, or the file of dask scheduler --scheduler-file"

Versions = dict[str, str | None]
"""Package (or python) → version; None where it is not installed."""


@contextmanager
def connected(scheduler: str, connect_s: float = CONNECT_S) -> Iterator[Client]:
    """A client; its remaining tasks are cancelled at the end.

    Raises:
        ToolError: no scheduler answers, or it or its workers have other versions.
        UsageError: `scheduler` is not an address.
    """
    address = _address(scheduler)
    with _silenced():
        with ThreadPoolExecutor(1) as pool:  # the thread of a notebook already runs an event loop
            check = _check_is_scheduler(address, scheduler, connect_s)
            pool.submit(asyncio.run, check).result()
        try:
            client = Client(address, timeout=connect_s, set_as_default=False)
        except (OSError, ImportError) as error:
            raise _unusable(scheduler, "it rejects this client") from error
        try:
            _check_versions(client)
            yield client
        finally:
            client.close(timeout=connect_s)


def versions() -> Versions:
    """The versions installed in this process."""
    installed: Versions = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in EQUAL:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = None
    return installed


def mismatch(members: dict[str, Versions], wanted: Versions) -> ToolError | None:
    """An error that names the first cluster member with other versions; None if all match.

    Args:
        members: member (`the scheduler`, `worker ADDRESS`) → its versions.
        wanted: the versions of this process.
    """
    unequal = {
        who: [
            f"{package} {have.get(package) or 'not installed'} (here {ours or 'not installed'})"
            for package, ours in wanted.items()
            if have.get(package) != ours
        ]
        for who, have in members.items()
        if any(have.get(package) != ours for package, ours in wanted.items())
    }
    if not unequal:
        return None
    who, different = next(iter(unequal.items()))
    others = f", and {len(unequal) - 1} more differ" if len(unequal) > 1 else ""
    return ToolError(
        f"versions differ: {who} has {', '.join(different)}{others}",
        hint="start scheduler and workers from the environment that rankscope runs in",
    )


def _address(scheduler: str) -> str:
    """The address as given, or from a scheduler file."""
    path = Path(scheduler)
    if not (path.suffix == ".json" or path.is_file()):
        return scheduler
    try:
        return str(json.loads(path.read_text("utf-8"))["address"])
    except OSError as error:
        raise ToolError(
            f"{path}: the scheduler file cannot be read ({error.strerror})",
            hint="is the scheduler running? It writes the file when it starts",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{path}: is not a scheduler file", hint=ADDRESS_HINT) from error


async def _check_is_scheduler(address: str, scheduler: str, connect_s: float) -> None:
    """Raise unless a Dask scheduler answers; a client would wait for any other server forever."""
    try:
        peer = rpc(address, connection_args=Security().get_connection_args("client"))
        try:
            reply = await asyncio.wait_for(peer.identity(), connect_s)
        finally:
            await peer.close_rpc()
    except ValueError as error:
        raise UsageError(
            f"--scheduler {scheduler}: is not an address ({error})", hint=ADDRESS_HINT
        ) from error
    except (OSError, TimeoutError) as error:
        raise _unusable(scheduler, "no answer") from error
    except Exception as error:  # unknown servers may answer with anything
        raise _unusable(scheduler, "the server there is not a Dask scheduler") from error
    if reply["type"] != "Scheduler":
        raise _unusable(scheduler, f"a Dask {reply['type'].lower()} answers there")


def _check_versions(client: Client) -> None:
    reply = client.get_versions(packages=[*EQUAL])
    members = {
        "the scheduler": reply["scheduler"],
        **{f"worker {address}": member for address, member in reply["workers"].items()},
    }
    installed = {who: member["packages"] for who, member in members.items() if member}
    for packages in installed.values():  # of Python's version, major and minor only
        packages["python"] = ".".join(str(packages["python"]).split(".")[:2])
    if error := mismatch(installed, versions()):
        raise error


@contextmanager
def _silenced() -> Iterator[None]:
    """Silence Dask's own messages about lost connections and versions; our errors replace them."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    levels = [each.level for each in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VersionMismatchWarning)
        for each in loggers:
            each.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)


def _unusable(scheduler: str, why: str) -> ToolError:
    return ToolError(
        f"--scheduler {scheduler}: cannot be used ({why})",
        hint=f"is the scheduler running, and its port reachable? {ADDRESS_HINT}",
    )
