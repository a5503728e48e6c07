"""Memory that nothing uses any more."""

from __future__ import annotations

import ctypes
import gc
import sys


def give_back() -> None:
    """Give the system the memory that nothing uses, also what the C library keeps for later.

    What large frames leave behind would otherwise add to what the next ones need. Only glibc can
    give back what it keeps.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
