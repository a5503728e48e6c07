"""Events of a thread, as the operating system and the profiler saw them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from rankscope.model.intervals import Flags, Times
from rankscope.model.schema import COUNTERS

Names = NDArray[np.int32]

COLLECTING = "gc_collect"
"""The function of a sample in Python's garbage collector."""


class Calls(Struct, frozen=True):
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

    @classmethod
    def joined(cls, parts: Sequence[tuple[int, Calls]]) -> Calls:
        """The calls of all parts, each part moved by a time (ns)."""
        before = np.cumsum([0, *(len(each.names) for _, each in parts)], dtype=np.int32)
        return cls(
            np.concatenate([each.start + ns for ns, each in parts]),
            np.concatenate([each.end + ns for ns, each in parts]),
            np.concatenate(
                [each.name + base for base, (_, each) in zip(before[:-1], parts, strict=True)]
            ),
            pl.concat(each.names for _, each in parts),
        )


class Switches(Struct, frozen=True):
    """When a thread came onto a CPU and left it, in time order. Shape: (n,) each."""

    at: Times
    on: Flags  # came onto a CPU; else left it


class Samples(Struct, frozen=True):
    """What a thread was executing at some moments, in any order. Shape: (n,) each."""

    at: Times
    function: pl.Series  # String
    period_ns: int | None = None  # of time on the CPU in user code; None is unknown


FILE_USES = pl.Schema(
    {
        "start": pl.Int64,
        "end": pl.Int64,
        "call": pl.String,  # "" is unknown
        "file": pl.String,  # without its folders
        "bytes": pl.Int64,  # null is unknown
    }
)
"""Accesses of one thread to files, in any order."""


class ThreadEvents(Struct, frozen=True):
    """What is recorded of one thread; None where the report lacks the table."""

    switches: Switches | None = None
    os_calls: Calls | None = None
    cuda_calls: Calls | None = None
    samples: Samples | None = None
    profiler: Calls | None = None  # time that the profiler itself took
    files: pl.DataFrame | None = None  # FILE_USES

    @property
    def known(self) -> bool:
        """Whether anything says what the thread did."""
        sources = (self.switches, self.os_calls, self.cuda_calls, self.samples)
        return any(each is not None for each in sources)


Spans = dict[int, tuple[int, int]]
"""Thread → the time that is of interest."""

HostEvents = Callable[[Spans], dict[int, ThreadEvents]]
"""Threads → what is recorded of them in that time; reads the report."""

WINDOWED_COUNTERS = pl.Schema(
    [("window", pl.Int64())]
    + [(name, COUNTERS[name]) for name in ("source", "device", "metric", "count", "value")]
)
"""Counters in windows of time: COUNTERS before windows are iterations of a rank."""

CounterEvents = Callable[[dict[int, Times]], dict[int, pl.DataFrame]]
"""Process → n + 1 edges of windows, to process → WINDOWED_COUNTERS; reads the report.

Counters of the host are those of the first process."""
