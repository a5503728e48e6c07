"""The file that keeps tracebacks of bugs, so that they can be reported."""

import os
import time
from pathlib import Path

from rankscope._version import __version__
from rankscope.util.atomic_io import cache_home
from rankscope.util.private import closed_folder

MOST_BYTES = 1_000_000
"""Size from which on the file is begun anew."""


def hint(details: str) -> str:
    """What to do about a bug, whose traceback is kept."""
    path = kept(details)
    where = "what --verbose says" if path is None else f"the last traceback in {path}"
    return f"please report the bug, with {where}"


def kept(details: str) -> Path | None:
    """Append a traceback to `errors.log` in the cache folder, which only this user can read.

    Returns:
        The file; None where it cannot be written.
    """
    try:
        path = closed_folder(cache_home(), cache_home()) / "errors.log"
        begin = os.O_APPEND if path.exists() and path.stat().st_size < MOST_BYTES else os.O_TRUNC
        flags = os.O_WRONLY | os.O_CREAT | begin | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(path, flags, 0o600), "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} rankscope {__version__}\n{details}\n")
    except OSError:
        return None
    return path
