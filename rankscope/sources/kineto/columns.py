"""Kineto events → frames in whole nanoseconds, one per nature of event.

The category gives the nature; its spelling differs by version (`Operator`, `cpu_op`). The copies
of user annotations on the device (`gpu_user_annotation`) are left out, since they would count
twice.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache

import msgspec
import polars as pl

from rankscope.model.schema import OPERATION, OPERATORS
from rankscope.sources.conventions import drains, short_name, stated_operations, synchronises
from rankscope.sources.device_faults import captures, launches_kernel
from rankscope.sources.kineto.json_stream import Args, Event, Number

RANGE, LAUNCH, WORK, SPAN, NAMED = "range", "launch", "work", "span", "named"

CATEGORIES = {
    "user_annotation": RANGE,
    "cpu_op": RANGE,
    "operator": RANGE,
    "kernel": WORK,
    "gpu_memcpy": WORK,
    "memcpy": WORK,
    "gpu_memset": WORK,
    "memset": WORK,
    "runtime": LAUNCH,
    "trace": SPAN,
}
"""Lower-case categories → nature."""

LAUNCHES = ("_runtime", "_driver")
"""Endings of the categories of API calls, of any API."""

WINDOW_END = "Record Window End"
"""Name of the instant event at which the profiler stopped."""

OWNED: dict[str, pl.DataType] = dict.fromkeys(
    ("start", "end", "process", "thread", "rank"), pl.Int64()
)

SCHEMAS: dict[str, pl.Schema] = {
    RANGE: pl.Schema({**OWNED, "domain": pl.String(), "name": pl.String(), "external": pl.Int64()}),
    LAUNCH: pl.Schema(
        {
            **OWNED,
            "correlation": pl.Int64(),
            "graph": pl.Boolean(),
            "waits": pl.Boolean(),
            "drains": pl.Boolean(),
            "kernel": pl.Boolean(),
            "captures": pl.Int8(),
        }
    ),
    WORK: pl.Schema(
        {
            "start": pl.Int64(),
            "end": pl.Int64(),
            "device": pl.Int64(),
            "context": pl.UInt32(),
            "stream": pl.UInt32(),
            "kind": pl.String(),
            "name": pl.String(),
            "full": pl.String(),
            "operation": OPERATION,
            "bytes": pl.Int64(),
            "grid": pl.Int64(),
            "communicator": pl.String(),
            "sequence": pl.Int64(),
            "correlation": pl.Int64(),
            "external": pl.Int64(),
            "owner": pl.Int64(),  # the `pid` of the event, which is no process of the host's
            "rank": pl.Int64(),
        }
    ),
    SPAN: pl.Schema({"start": pl.Int64, "end": pl.Int64}),
    NAMED: pl.Schema({"owner": pl.Int64, "rank": pl.Int64}),
}
"""Nature → columns: times on the file's axis, the rest as in RANGES and DEVICE_WORK. `external`
is the id of an operator, `full` a kernel's whole name, `operation` what the trace states;
`correlation` links work to its launch, which `waits` if it holds its thread until the device is
done, `drains` as in SYNC_CALLS, and launches a `kernel` or something else."""

NEEDED = {
    RANGE: ["start", "end", "process", "thread"],
    LAUNCH: ["start", "end", "process", "thread"],
    WORK: ["start", "end", "stream"],
    SPAN: ["start", "end"],
    NAMED: ["owner", "rank"],
}
"""Nature → columns without which an event has no time or no owner."""

ELEMENT_BYTES = {
    **dict.fromkeys(("byte", "char", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("short", "half", "bfloat16"), 2),
    **dict.fromkeys(("int", "float"), 4),
    **dict.fromkeys(("long", "double", "complexfloat"), 8),
}
"""Lower-case names of data types → bytes of an element."""

LATEST_NS = 2**61
"""In the year 2043; differences and sums of later times could overflow."""

RANK_NAME = re.compile(r"\brank[\s_:#-]*([0-9]{1,7})\b", re.IGNORECASE)
"""In the names that merging tools give processes."""

NOTHING = Args()


def frames(batch: Iterable[Event]) -> dict[str, pl.DataFrame]:
    """The events that matter: nature → frame of SCHEMAS; times and owners may be null."""
    sorted_out: dict[str, list[Event]] = defaultdict(list)
    for event in batch:
        if event.ph == "X":
            sorted_out[_nature(event.cat)].append(event)
        elif event.name == WINDOW_END:
            sorted_out[SPAN].append(event)
        elif event.name == "process_name":
            sorted_out[NAMED].append(event)
    sorted_out.pop("", None)
    if NAMED in sorted_out:
        parts = {NAMED: _names(sorted_out.pop(NAMED))}
        return parts | {nature: _frame(nature, events) for nature, events in sorted_out.items()}
    return {nature: _frame(nature, events) for nature, events in sorted_out.items()}


@cache
def _nature(category: str) -> str:
    """The nature of a category; empty if its events are not used."""
    lower = category.lower()
    return LAUNCH if lower.endswith(LAUNCHES) else CATEGORIES.get(lower, "")


def _names(events: list[Event]) -> pl.DataFrame:
    """The ranks that names of processes have: `RANK 3 - GPU`."""
    found = [RANK_NAME.search(str((event.args or NOTHING).name)) for event in events]
    ranks = [None if each is None else int(each[1]) for each in found]
    owners = integers([event.pid for event in events])
    return pl.DataFrame({"owner": owners, "rank": pl.Series(ranks, dtype=pl.Int64)})


def _frame(nature: str, events: list[Event]) -> pl.DataFrame:
    args = [event.args or NOTHING for event in events]
    start, length = (times(each) for each in ([e.ts for e in events], [e.dur for e in events]))
    if nature == SPAN:
        length = length.fill_null(0)
    frame = pl.DataFrame(
        {
            "start": start,
            "end": (start + length).set(length < 0, None),
            "category": pl.Series([event.cat for event in events], dtype=pl.String),
            "name": pl.Series([event.name for event in events], dtype=pl.String),
            "external": integers([each.external for each in args]).fill_null(
                integers([each.older_external for each in args])
            ),
            "correlation": integers([each.correlation for each in args]),
            "rank": _ranks(args),
        }
    )
    if nature == WORK:
        frame = _work(frame, events, args)
    elif nature == RANGE:
        frame = frame.with_columns(_of_collectives(args))
    if nature in (RANGE, LAUNCH):
        operator = (pl.col("category") == "cpu_op") | (
            (pl.col("category") == "Operator") & pl.col("name").str.contains("::", literal=True)
        )
        frame = frame.with_columns(
            process=integers([event.pid for event in events]),
            thread=integers([event.tid for event in events]),
            domain=pl.when(operator).then(pl.lit(OPERATORS)).otherwise(pl.lit("")),
        )
    if nature == LAUNCH:
        frame = frame.with_columns(
            graph=pl.col("name").str.contains("GraphLaunch", literal=True),
            waits=synchronises().fill_null(False),
            drains=drains(),
            captures=captures(),
            kernel=launches_kernel(),
        )
    return frame.select(pl.col(name).cast(dtype) for name, dtype in SCHEMAS[nature].items())


def _work(frame: pl.DataFrame, events: list[Event], args: list[Args]) -> pl.DataFrame:
    """Kernels, copies and sets with the columns that only they have."""
    category = pl.col("category").str.to_lowercase()
    is_kernel = category == "kernel"
    element = pl.Series([each.element for each in args], dtype=pl.String).str.to_lowercase()
    message = integers([each.elements for each in args]) * element.replace_strict(
        ELEMENT_BYTES, default=None, return_dtype=pl.Int64
    )
    # Older versions name the stream in `tid` alone.
    streams = integers([each.stream for each in args]).fill_null(integers([e.tid for e in events]))
    owners = integers([e.pid for e in events])
    contexts = integers([each.context for each in args]).fill_null(0)
    blocks = [None if each.grid is None else math.prod(each.grid) for each in args]
    return frame.with_columns(
        device=integers([each.device for each in args]).fill_null(owners),
        owner=owners,
        context=contexts.cast(pl.UInt32, wrap_numerical=True),
        stream=streams.cast(pl.UInt32, wrap_numerical=True),
        kind=pl.when(is_kernel)
        .then(pl.lit("kernel"))
        .when(category.str.ends_with("memcpy"))
        .then(pl.lit("copy"))
        .otherwise(pl.lit("set")),
        name=pl.when(is_kernel).then(short_name()).otherwise(pl.lit("")),
        full=pl.when(is_kernel).then("name"),
        operation=pl.when(is_kernel).then(
            stated_operations(pl.Series([each.collective for each in args], dtype=pl.String))
        ),
        bytes=integers([each.bytes for each in args]).fill_null(message),
        grid=pl.when(is_kernel).then(
            pl.Series(blocks, dtype=pl.Float64).cast(pl.Int64, strict=False)
        ),
        communicator=_communicator(args),
        sequence=integers([each.sequence for each in args]),
    )


def _ranks(args: list[Args]) -> pl.Series:
    """The rank that each event states; null without a whole number."""
    every = [each.rank for each in args]
    if not any(every):
        return pl.Series([0 if each == 0 else None for each in every], dtype=pl.Int64)
    return pl.Series([each if type(each) is int else None for each in every], dtype=pl.Int64)


def _of_collectives(args: list[Args]) -> pl.Expr:
    """The `name` of a range, which for `record_param_comms` is that of its collective."""
    collective = pl.Series([each.collective for each in args], dtype=pl.String)
    is_call = (pl.col("name") == "record_param_comms") & collective.is_not_null()
    return (
        pl.when(is_call)
        .then(pl.format("nccl:{}", pl.lit(collective)))
        .otherwise("name")
        .alias("name")
    )


def _communicator(args: list[Args]) -> pl.Series:
    """Name and members of the process group of each collective: the same on all its ranks."""
    groups = [
        None if each.group is None else f"{each.group} {each.members or ''}".rstrip()
        for each in args
    ]
    return pl.Series(groups, dtype=pl.String).str.replace_all(", ", ",", literal=True)


def times(raw: list[msgspec.Raw]) -> pl.Series:
    """Microseconds as written in the file (numbers, or text) → nanoseconds; else null.

    They are read as decimals: a float cannot hold nanoseconds since 1970.
    """
    text = pl.Series([b"\0".join(raw).decode("utf-8", "replace")]).str.split("\0").explode()
    exact = text.str.strip_chars('" ').cast(pl.Decimal(38, 3), strict=False)
    time = (exact * 1000).cast(pl.Int64, strict=False)
    return time.set(time.abs() > LATEST_NS, None)


def integers(values: list[Number]) -> pl.Series:
    """Int64 of numbers, or of text that ends in one (`stream 7`); else null."""
    try:
        return pl.Series(values, dtype=pl.Int64)
    except (TypeError, OverflowError):
        return pl.Series([_integer(value) for value in values], dtype=pl.Int64)


def _integer(value: Number) -> int | None:
    found = re.search(r"(?:^|[^\d.])(-?\d{1,18})(?:\.0*)?$", str(value)[-40:])
    return int(found[1]) if found else None
