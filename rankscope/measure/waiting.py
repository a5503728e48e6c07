"""From when on a rank waits for a collective of its device. See METHOD.md#gpu-clock."""

from collections import deque

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.model.arrays import filled, is_null
from rankscope.model.intervals import Times
from rankscope.util.numbers import NEVER

LOOK_AHEAD = 100_000
"""Number of later operations that are searched for one that waits for a collective.

A launch queue holds about a thousand operations, so an operation is hardly overtaken by more.
"""


class Requests(Struct, frozen=True):
    """Requests that a rank waits for: operations from launch to start, synchronising calls.

    Shape: (n,) each, in any order.
    """

    since: Times  # launch of the operation, start of the call
    until: Times  # start of the operation, end of the call

    def behind(self, ends: Times) -> Times:
        """For each end of a collective, the earliest moment from which a request waits for it.

        A request that is fulfilled before a collective ends has not waited for it.

        Returns:
            `NEVER` where none waits; shape: that of `ends`.
        """
        order = np.argsort(self.until, kind="stable")
        earliest = np.minimum.accumulate(np.append(self.since[order], NEVER)[::-1])[::-1]
        return np.asarray(earliest[np.searchsorted(self.until[order], ends)])


class LaunchedOperations:
    """The operations of the training threads that do not communicate, as far as they were added.

    One without a launch record counts as launched when the one before it started: nothing shows
    that the host was late.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.rows = 0
        self._parts: deque[Requests] = deque()
        self._latest: int | None = None  # start

    def add(self, part: pl.DataFrame) -> None:
        """Add the next chunk of what `attribute` describes, in the order of the starts."""
        self.rows += part.height
        own = part["training"].to_numpy() & is_null(part["operation"])
        if not own.any():
            return
        start, launch = part["start"].to_numpy()[own], filled(part["launch"], 0)[own]
        before = np.append(start[0] if self._latest is None else self._latest, start[:-1])
        since = np.where(is_null(part["launch"])[own], before, launch)
        self._parts.append(Requests(since, start))
        self._latest = int(start[-1])

    def since(self, moment: int) -> Requests:
        """The operations that started at `moment` or later; earlier chunks are dropped."""
        while self._parts and self._parts[0].until[-1] < moment:
            self._parts.popleft()
        nothing = np.empty(0, np.int64)
        return Requests(
            np.concatenate([nothing, *(part.since for part in self._parts)]),
            np.concatenate([nothing, *(part.until for part in self._parts)]),
        )
