"""Returning unused memory to the system."""

import ctypes
import gc
import resource
from pathlib import Path

WORTH_BYTES = 512 * 2**20
"""Memory of a process (bytes) from which on it gives some back. It looks for garbage, which takes
0.04 s, if it has a quarter of that more than the last time."""

PAGES = Path("/proc/self/statm")
"""Where Linux tells how much memory a process has, in pages: the second number."""

_after = {"bytes": 0}  # memory after the last time


def give_back(worth_bytes: int | None = None) -> None:
    """Return unused memory to the system, also that which the C library keeps for later.

    The memory that large frames leave behind would otherwise add to that of the next ones: a
    process that compares 512 ranks again and again would keep three times as much. Only Linux with
    glibc can do so.
    """
    worth = WORTH_BYTES if worth_bytes is None else worth_bytes
    has = _resident()
    if has < worth:
        return
    if has >= _after["bytes"] + worth // 4:
        gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)
    _after["bytes"] = _resident()


def _resident() -> int:
    """Bytes of memory that this process has; at its peak where nothing tells how many."""
    try:
        return int(PAGES.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
