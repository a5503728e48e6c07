"""What a host does: instructions, and a writer of programs."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

Instruction = tuple[Any, ...]
"""A code and its arguments, in the order of `Program`'s methods."""


class Code(IntEnum):
    """Kinds of instructions."""

    KERNEL = 0
    EDGE = 1
    COLLECTIVE = 2
    EXCHANGE = 3
    COPY = 4
    WORK = 5
    PUSH = 6
    POP = 7
    THREAD = 8
    SYNC = 9
    ITERATION = 10
    FETCH = 11
    NOTE = 12
    AFTER = 13
    AWAIT = 14
