"""Memory that nothing uses any more."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Give the system the memory that the C library keeps for later; only glibc can do so.

    What large frames leave behind would otherwise add to what the next ones need.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
