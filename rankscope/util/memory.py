"""Returning unused memory to the system."""

import ctypes
import gc
import resource

WORTH_BYTES = 512 * 2**20
"""Peak memory of a process (bytes) from which on it gives some back, which takes 0.03 s."""


def give_back(worth_bytes: int | None = None) -> None:
    """Return unused memory to the system, also that which the C library keeps for later.

    The memory that large frames leave behind would otherwise add to that of the next ones: a
    process that compares 512 ranks again and again would keep three times as much. Only Linux with
    glibc can do so.
    """
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak_bytes < (WORTH_BYTES if worth_bytes is None else worth_bytes):
        return
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
