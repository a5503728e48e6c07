"""The compiled parts, loaded when there is enough to do for them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType


@cache
def compiled(name: str) -> ModuleType | None:
    """A module of this folder, None where it cannot be had (nowhere to keep it, no numba)."""
    try:
        usable = import_module("rankscope.read.machine_words").USABLE
        return import_module(f"rankscope.read.{name}") if usable else None
    except Exception:  # numba, the disk, or what another version of numba left there
        return None
