"""The compiled parts, loaded where there is enough to read for them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType

WORTH_BYTES = 32 * 2**20
"""Of reports: who reads so many is sooner done with the compiled parts, which take time to load."""

_expected: list[int] = []
"""Bytes of each report that this process has read, or does."""


def expect(size: int) -> None:
    """Note that this process reads a report of so many bytes."""
    _expected.append(size)


def compiled(name: str) -> ModuleType | None:
    """A module of this folder, None while it is not worth its while or where it cannot be had."""
    return _loaded(name) if sum(_expected) >= WORTH_BYTES else None


@cache
def _loaded(name: str) -> ModuleType | None:
    try:
        return import_module(f"{__package__}.{name}")
    except Exception:  # numba, the disk, or what another version of numba left there
        return None
