"""Waiting for what other processes do."""

import time
from collections.abc import Callable

SOON_S = 60
"""A loaded machine gets there; an idle one is far faster."""


def until(true: Callable[[], bool]) -> None:
    """Wait, but not for ever."""
    deadline = time.monotonic() + SOON_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
