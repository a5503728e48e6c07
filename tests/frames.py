"""Frames of the package's schemas from a few plain tuples."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import polars as pl

from rankscope.measure.segment import (
    IterationRanges,
    LabelledRanges,
    find_iterations,
    with_meanings,
)
from rankscope.model.device_work import SYNC_CALLS, InMemoryWork
from rankscope.model.limits import USUAL
from rankscope.model.options import ShapingOptions
from rankscope.model.ranges import Ranges
from rankscope.model.reports import CaptureFacts, Trace
from rankscope.model.schema import DEVICE_WORK, ITERATIONS, RANGES, conform, empty
from rankscope.sources.conventions import vocabulary

PROCESS, THREAD, AUTOGRAD, LOADER = 1, 10, 11, 12


def filled(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """A frame of a test as one of `schema`: what the test does not say is null."""
    return conform(frame, schema, optional=schema.names(), drop_others=True)


Range = tuple[int, int, str] | tuple[int, int, str, int]


def ranges(*rows: Range, domain: str = "", payload: int | None = None) -> pl.DataFrame:
    """(start, end, name[, thread]) as RANGES."""
    return filled(
        pl.DataFrame(
            {
                "start": [row[0] for row in rows],
                "end": [row[1] for row in rows],
                "process": [PROCESS] * len(rows),
                "thread": [row[3] if len(row) > 3 else THREAD for row in rows],
                "domain": [domain] * len(rows),
                "name": [row[2] for row in rows],
                "payload": [payload] * len(rows),
            },
            schema_overrides={"payload": pl.Int64},
        ),
        RANGES,
    )


def named(frame: pl.DataFrame, **options: object) -> LabelledRanges:
    """RANGES with their meanings."""
    return with_meanings(Ranges.of(frame), vocabulary(ShapingOptions(**options)))


def sync_calls(rows: Iterable[tuple[int, int, int]]) -> pl.DataFrame:
    """(start, end, thread) as SYNC_CALLS."""
    listed = [(PROCESS, thread, start, end) for start, end, thread in rows]
    return pl.DataFrame(listed, SYNC_CALLS, orient="row")


def trace(
    ranges: pl.DataFrame | None = None,
    work: pl.DataFrame | None = None,
    calls: Iterable[tuple[int, int, int]] = (),
    part_rows: int = USUAL.part_rows,
) -> Trace:
    """A report of RANGES, DEVICE_WORK and `sync_calls`; work comes in parts of some rows."""
    ranges, work = (
        empty(schema) if frame is None else frame.sort("start", maintain_order=True)
        for frame, schema in ((ranges, RANGES), (work, DEVICE_WORK))
    )
    facts = CaptureFacts("node0", 10**18, 10**9, (), None, "2023.4")
    held = InMemoryWork(work, part_rows=part_rows, sync_calls=sync_calls(calls))
    return Trace(facts, Ranges.of(ranges), held)


def found(*rows: Range, duration_ns: int | None = None, **options: object) -> IterationRanges:
    """The iterations among ranges."""
    result = find_iterations(named(ranges(*rows), **options).meaningful, duration_ns)
    assert result is not None
    return result


def windows(*edges: int) -> pl.DataFrame:
    """ITERATIONS whose ranges touch at the given borders."""
    pairs = list(pairwise(edges))
    return filled(
        pl.DataFrame(
            {
                "iteration": range(len(pairs)),
                "epoch": [0] * len(pairs),
                "number": range(len(pairs)),
                "start": [start for start, _ in pairs],
                "end": [end for _, end in pairs],
                "window_start": [start for start, _ in pairs],
                "window_end": [end for _, end in pairs],
                "complete": [True] * len(pairs),
            }
        ),
        ITERATIONS,
    )


def operations_of(names: Sequence[str | None], *full: str) -> pl.Series:
    """OPERATION of kernels by their short (and whole) names."""
    asked = pl.DataFrame(
        {"name": names, "full": full or names}, schema={"name": pl.String, "full": pl.String}
    )
    return vocabulary(ShapingOptions()).operations(asked)["operation"]


def device_work(rows: Iterable[tuple[int, int, int | None, str, int, int]]) -> pl.DataFrame:
    """(start, end, launch, name, stream, thread) as DEVICE_WORK; a name of "" is a copy."""
    listed = list(rows)
    return filled(
        pl.DataFrame(
            {
                "start": [row[0] for row in listed],
                "end": [row[1] for row in listed],
                "process": [PROCESS] * len(listed),
                "device": [0] * len(listed),
                "context": [0] * len(listed),
                "stream": [row[4] for row in listed],
                "kind": ["kernel" if row[3] else "copy" for row in listed],
                "name": [row[3] for row in listed],
                "operation": operations_of([row[3] for row in listed]),
                "graph": [False] * len(listed),
                "launch": [row[2] for row in listed],
                "launch_thread": [None if row[2] is None else row[5] for row in listed],
            },
            schema_overrides={"launch": pl.Int64, "launch_thread": pl.Int64, "name": pl.String},
        ),
        DEVICE_WORK,
    )
