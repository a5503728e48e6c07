"""A client of a Dask cluster that was seen to be one, and to have the versions of this process."""

from __future__ import annotations

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

CONNECT_S = 10
"""How long a scheduler may take to answer."""

EQUAL = ("rankscope", "dask", "distributed", "polars")
"""Packages that must be of one version everywhere: their objects travel between the processes."""

ADDRESS_HINT = "--scheduler tcp://HOST:8786, or the file of dask scheduler --scheduler-file"

Versions = dict[str, str | None]
"""Package (or python) → version; None where it is not installed."""


@contextmanager
def connected(scheduler: str) -> Iterator[Client]:
    """A client; what is left of its tasks at the end is forgotten.

    Args:
        scheduler: an address, or the path of a scheduler file.

    Raises:
        ToolError: no scheduler answers there, or it or its workers have other versions.
        UsageError: no address.
    """
    address = _address(scheduler)
    with _silenced():
        with ThreadPoolExecutor(1) as pool:  # a notebook's thread has a loop already
            pool.submit(asyncio.run, _check_is_scheduler(address, scheduler)).result()
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ImportError) as error:
            raise _unusable(scheduler, "it does not take this client") from error
        try:
            _check_versions(client)
            yield client
        finally:
            client.close(timeout=CONNECT_S)


def versions() -> Versions:
    """What is installed where this runs."""
    found: Versions = {"python": ".".join(map(str, sys.version_info[:2]))}
    for name in EQUAL:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def mismatch(members: dict[str, Versions], wanted: Versions) -> ToolError | None:
    """The error that names the first member of a cluster with other versions; None without one.

    Args:
        members: who (`the scheduler`, `worker ADDRESS`) → what is installed there.
        wanted: what is installed in the process that asks.
    """
    unequal = {
        who: [
            f"{package} {theirs.get(package) or 'not installed'} (here {ours or 'not installed'})"
            for package, ours in wanted.items()
            if theirs.get(package) != ours
        ]
        for who, theirs in members.items()
        if any(theirs.get(package) != ours for package, ours in wanted.items())
    }
    if not unequal:
        return None
    who, different = next(iter(unequal.items()))
    others = f", and {len(unequal) - 1} more differ" if len(unequal) > 1 else ""
    return ToolError(
        f"versions are unequal: {who} has {', '.join(different)}{others}",
        hint="start scheduler and workers from the environment that rankscope runs in",
    )


def _address(scheduler: str) -> str:
    """The address as given, or as it stands in a scheduler file."""
    path = Path(scheduler)
    if not (path.suffix == ".json" or path.is_file()):
        return scheduler
    try:
        return str(json.loads(path.read_text("utf-8"))["address"])
    except OSError as error:
        raise ToolError(
            f"{path}: the scheduler file cannot be read ({error.strerror})",
            hint="is the scheduler up? It writes the file when it starts",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{path}: is no scheduler file", hint=ADDRESS_HINT) from error


async def _check_is_scheduler(address: str, scheduler: str) -> None:
    """Raises unless a Dask scheduler answers: a client would wait for others for ever."""
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
    except (OSError, TimeoutError) as error:
        raise _unusable(scheduler, "no answer") from error
    except Exception as error:  # whatever the bytes of a stranger lead to
        raise _unusable(scheduler, "what answers there is no Dask scheduler") from error
    if told["type"] != "Scheduler":
        raise _unusable(scheduler, f"a Dask {told['type'].lower()} answers there")


def _check_versions(client: Client) -> None:
    told = client.get_versions(packages=[*EQUAL])
    members = {
        "the scheduler": told["scheduler"],
        **{f"worker {address}": member for address, member in told["workers"].items()},
    }
    error = mismatch(
        {who: _installed(member["packages"]) for who, member in members.items() if member},
        versions(),
    )
    if error is not None:
        raise error


def _installed(packages: Versions) -> Versions:
    """What Dask tells of a member; of Python's version the first two numbers matter."""
    python = str(packages["python"]).split(".")
    return packages | {"python": ".".join(python[:2])}


@contextmanager
def _silenced() -> Iterator[None]:
    """Dask's own words about lost connections and versions stay unsaid: errors say it here."""
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
        hint=f"is the scheduler up, and its port open from here? {ADDRESS_HINT}",
    )
