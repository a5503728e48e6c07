"""What a thread did, as the operating system and the profiler saw it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.model.intervals import Flags, Times

Names = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one thread, in any order. Shape: (n,) each, but of `names`."""

    start: Times
    end: Times
    name: Names  # place in `names`
    names: pl.Series  # String

    @classmethod
    def none(cls) -> Calls:
        """No calls."""
        nothing: Times = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing.astype(np.int32), pl.Series(dtype=pl.String))


@dataclass(frozen=True, slots=True)
class Switches:
    """When a thread came onto a CPU and left it, in time order. Shape: (n,) each."""

    at: Times
    on: Flags  # came onto a CPU; else left it


@dataclass(frozen=True, slots=True)
class Samples:
    """What a thread was executing at some moments, in any order. Shape: (n,) each."""

    at: Times
    function: pl.Series  # String
    period_ns: int | None = None  # of time on the CPU in user code; None is unknown


@dataclass(frozen=True, slots=True)
class ThreadEvents:
    """What is recorded of one thread; None where the report lacks the table."""

    switches: Switches | None = None
    os_calls: Calls | None = None
    cuda_calls: Calls | None = None
    samples: Samples | None = None
    profiler: Calls | None = None  # time that the profiler itself took

    @property
    def known(self) -> bool:
        """Whether anything says what the thread did."""
        told = (self.switches, self.os_calls, self.cuda_calls, self.samples)
        return any(each is not None for each in told)


Spans = dict[int, tuple[int, int]]
"""Thread → the time that is of interest."""

HostEvents = Callable[[Spans], dict[int, ThreadEvents]]
"""Threads → what is recorded of them in that time; reads the report."""
