"""Loads the compiled reader where it pays off, tests it, and logs whether it is used."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from rankscope.util.atomic_io import cache_home
from rankscope.util.private import NotPrivate, private_folder

WORTH_BYTES = 32 * 2**20
"""Minimum total size of reports (bytes) for which loading the compiled reader pays off."""

COMPILED = ("records.py", "shapes.py")
"""The modules of which numba makes machine code."""

SWITCH = "RANKSCOPE_COMPILED"
"""Environment variable: 0 turns the compiled reader off."""

LOG = logging.getLogger("rankscope.sources")

_begun: list[int] = []
"""Bytes of each report that this process has read or is reading."""

_announced: list[int] = []
"""Bytes that this process is expected to read, as passed to `announce`."""


class _NotUsed(Exception):
    """The compiled reader cannot be used; the message says why."""


def expect(size: int) -> None:
    """Note that this process reads a report of this many bytes."""
    _begun.append(size)


def announce(size: int) -> None:
    """Note that this process will read reports of this many bytes in all."""
    _announced.append(size)


def compiled() -> ModuleType | None:
    """The module `records`; None while it does not pay off, or where it cannot be used.

    The first call that loads it takes some 0.3 s, or several seconds where it must be compiled
    first. It logs one line: whether the reader is used, and why not.
    """
    if max(sum(_begun), sum(_announced)) < WORTH_BYTES:
        return None
    return _loaded(switched_off=os.environ.get(SWITCH) == "0")


@cache
def _loaded(*, switched_off: bool) -> ModuleType | None:
    """The module once it has passed its self-test; None where it cannot be used."""
    try:
        if switched_off:
            raise _NotUsed(f"{SWITCH} is 0")
        records = _imported()
        _test(records)
    except _NotUsed as reason:
        LOG.info("compiled reader: not used because %s", reason)
        return None
    LOG.info("compiled reader: used")
    return records


def _imported() -> ModuleType:
    """The module, compiled now or taken from numba's cache; raises `_NotUsed`."""
    if sys.byteorder != "little":
        raise _NotUsed("this processor is big-endian")
    try:
        import numba
        from numba.core.errors import NumbaError
    except (ImportError, OSError) as error:  # absent, not made for this NumPy, a library missing
        raise _NotUsed(f"numba cannot be imported ({_words(error)})") from error
    config: Any = numba.config
    if config.DISABLE_JIT:
        raise _NotUsed("NUMBA_DISABLE_JIT is set")
    # numba chooses the folder of a function's cache when it meets the decorator, which is within
    # this import. All other functions of the process keep theirs.
    # It looks for changes in the file of the function alone, so the folder depends on all of them.
    before = config.CACHE_DIR
    top = Path(before) if before else cache_home()
    folder = (top if before else top / "compiled") / _sources()
    try:  # machine code is loaded from there
        config.CACHE_DIR = str(private_folder(folder, folder if before else top))
    except NotPrivate as error:
        raise _NotUsed(f"its cache is not safe: {error}") from error
    except OSError as error:
        raise _NotUsed(f"its cache {folder} cannot be made ({error.strerror})") from error
    try:
        return import_module(f"{__package__}.records")
    except (NumbaError, ImportError, RuntimeError) as error:
        raise _NotUsed(f"it cannot be compiled ({_words(error)})") from error
    except (OSError, EOFError, pickle.UnpicklingError, AttributeError, IndexError) as error:
        # What a disk and what unpickling a damaged file may raise.
        raise _NotUsed(
            f"its cache in {config.CACHE_DIR} cannot be used ({_words(error)})"
        ) from error
    finally:
        config.CACHE_DIR = before


def _sources() -> str:
    """A hash of the compiled modules' source."""
    files = (Path(__file__).with_name(name) for name in COMPILED)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _test(records: ModuleType) -> None:
    """Raise `_NotUsed` where the module does not pass the self-test."""
    from rankscope.sources.columns.sqlite_pages.self_test import failure

    found = failure(records)
    if found is not None:
        raise _NotUsed(f"its self-test failed: {found}")


def _words(error: Exception) -> str:
    """The kind and the first line of an exception."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
