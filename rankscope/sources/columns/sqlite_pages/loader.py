"""Loads the compiled reader where it pays off, tests it, and logs whether it is used."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from rankscope.errors import UsageError
from rankscope.util.atomic_io import cache_home, write_whole
from rankscope.util.private import NotPrivate, private_folder

if TYPE_CHECKING:
    from pathlib import Path

    from rankscope.sources.columns.sqlite_pages.layout import Decode

WORTH_BYTES = 32 * 2**20
"""Minimum total size of reports (bytes) for which loading the compiled reader pays off."""

WORTH_COMPILING_BYTES = 128 * 2**20
"""The same where it must be compiled first, once for a machine: that takes 16 s of CPU time, and a
megabyte is read 15 to 20 ms faster, also by later ingests."""

SWITCH = "RANKSCOPE_COMPILED"
"""Environment variable: 0 turns the compiled reader off; 1 uses it for reports of any size."""

LOG = logging.getLogger("rankscope.sources")


class Amount(Struct):
    """Bytes of reports that a process reads."""

    worth_bytes: int = WORTH_BYTES
    worth_compiling_bytes: int = WORTH_COMPILING_BYTES
    begun: int = 0
    announced: int = 0

    def expect(self, size: int) -> None:
        """Note that the process reads a report of this many bytes."""
        self.begun += size

    def announce(self, size: int) -> None:
        """Note that the process will read reports of this many bytes in all."""
        self.announced += size

    @property
    def pays_off(self) -> bool:
        """Whether it is worth loading the compiled reader."""
        return self.in_all >= self.worth_bytes

    @property
    def pays_compiling(self) -> bool:
        """Whether it is worth compiling it first."""
        return self.in_all >= self.worth_compiling_bytes

    @property
    def in_all(self) -> int:
        """Bytes that are known of."""
        return max(self.begun, self.announced)


amount = Amount()
"""Of this process."""


class _NotUsed(Exception):
    """The compiled reader cannot be used; the message says why."""


def compiled() -> Decode | None:
    """`records.decode` as machine code; None while it does not pay off, or cannot be used.

    The first call that loads it takes some 0.1 s, or several seconds where it must be compiled
    first. It logs one line: whether the reader is used, and why not.
    """
    switch = os.environ.get(SWITCH)
    if not switch and not amount.pays_off:
        return None
    return loaded(switched_off=switch == "0", compiling=bool(switch) or amount.pays_compiling)


@cache
def loaded(*, switched_off: bool, compiling: bool) -> Decode | None:
    """The function once it has passed its self-test; None where it cannot be used.

    Args:
        switched_off: do not use it.
        compiling: compile it where no earlier process has.
    """
    try:
        if switched_off:
            raise _NotUsed(f"{SWITCH} is 0")
        decode = _made_or_kept(compiling)
        _test(decode)
    except _NotUsed as reason:
        LOG.info("compiled reader: not used because %s", reason)
        return None
    LOG.info("compiled reader: used")
    return decode


def _made_or_kept(compiling: bool) -> Decode:
    """The function, compiled now or from an earlier process's file; raises `_NotUsed`."""
    if sys.byteorder != "little":
        raise _NotUsed("this processor is big-endian")
    try:
        from rankscope.sources.columns.sqlite_pages import machine_code
    except (ImportError, OSError) as error:
        raise _NotUsed(f"llvmlite cannot be imported ({error})") from error
    folder = cache_home() / "compiled"
    try:  # what lies there is run
        file = private_folder(folder, cache_home()) / f"{machine_code.key()}.o"
        code = _kept(file)
        if code is None and not compiling:
            raise _NotUsed("it is not compiled yet, and these reports are too small to do it for")
        if code is None:
            with file.with_suffix(".lock").open("w") as lock:  # one process compiles for all
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(lock, fcntl.LOCK_EX)
                code = _kept(file)
                if code is None:
                    code = machine_code.make()
                    write_whole(file, _digest(code) + code)
    except NotPrivate as error:
        raise _NotUsed(f"its cache is not safe: {error}") from error
    except (OSError, UsageError) as error:
        raise _NotUsed(f"its cache {folder} cannot be used ({error})") from error
    except machine_code.NoMachineCode as error:
        raise _NotUsed(str(error)) from error
    return machine_code.load(code)


def _digest(code: bytes) -> bytes:
    return hashlib.sha256(code).digest()


def _kept(file: Path) -> bytes | None:
    """The machine code of a file, which begins with its digest; None if it is damaged or absent."""
    if not file.exists():
        return None
    content, size = file.read_bytes(), hashlib.sha256().digest_size
    digest, code = content[:size], content[size:]
    return code if digest == _digest(code) else None


def _test(decode: Decode) -> None:
    """Raise `_NotUsed` where the function does not pass the self-test."""
    from rankscope.sources.columns.sqlite_pages.self_test import failure

    fault = failure(decode)
    if fault is not None:
        raise _NotUsed(f"its self-test failed: {fault}")
