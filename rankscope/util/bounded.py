"""Outside programs with limits: time, output, and no process left over."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from msgspec import Struct

from rankscope.util.lifetime import signals_held
from rankscope.util.supervisor import ENDING_S

KEPT_BYTES = 2**16
"""Bytes of a program's output that are kept: the last ones."""

POLL_S = 0.2
"""Time (s) between two looks at a running program."""

SUPERVISOR = Path(__file__).with_name("supervisor.py")


class Ended(Struct, frozen=True):
    """How a program ended."""

    code: int
    said: str
    """The end of its output and errors."""


class Stopped(Exception):
    """A program was killed at a limit; the text says at which one."""


def run_bounded(
    command: list[str], seconds: float, check: Callable[[], str | None] = lambda: None
) -> Ended:
    """Run a program to its end; it and all it started are killed at a limit, or with this process.

    Args:
        check: called while it runs; a text stops it.

    Raises:
        OSError: it cannot be started.
        Stopped: it reached a limit.
    """
    with signals_held():
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    kept = bytearray()
    reader = threading.Thread(target=_keep_end, args=(process.stdout, kept), daemon=True)
    reader.start()
    limit = time.monotonic() + seconds
    try:
        while True:
            try:
                code = process.wait(POLL_S)
                break
            except subprocess.TimeoutExpired:
                if why := check():
                    raise Stopped(why) from None
                if time.monotonic() > limit:
                    raise Stopped(f"it took more than {seconds:.0f} s") from None
    finally:
        process.stdin.close()  # the supervisor kills all that is left
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2 * ENDING_S)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(timeout=5)
    return Ended(code, kept.decode("utf-8", "replace"))


def _keep_end(stream: IO[bytes], kept: bytearray) -> None:
    with stream:
        while chunk := stream.read1(KEPT_BYTES):  # type: ignore[attr-defined]
            kept += chunk
            del kept[:-KEPT_BYTES]
