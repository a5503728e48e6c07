"""Kineto events → frames in whole nanoseconds, one per nature of event.

The category gives the nature; its spelling differs by version (`Operator`, `cpu_op`). The copies
of user annotations on the device (`gpu_user_annotation`) are left out, since they would count
twice.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import polars as pl

from rankscope.model.schema import OPERATION, OPERATORS, conform
from rankscope.sources.conventions import short_name, stated_operations, synchronises
from rankscope.sources.device_faults import captures, launches_kernel
from rankscope.sources.kineto.json_stream import Args, Event, EventFile, Number

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

UNUSED_CATEGORIES = re.compile(
    "gpu_user_annotation|python_function|ac2g|cuda_(sync|event|profiler)|overhead|gpu_pm|fwd"
)
"""Beginnings of categories, in lower case, whose events add nothing to the others."""

UNUSED, STRANGE = "unused", "strange"
"""In place of a nature: of events with a category of these, and of events with an unknown one."""

WINDOW_END = "Record Window End"
"""Name of the instant event at which the profiler stopped."""

OWNED: dict[str, pl.DataType] = dict.fromkeys(
    ("start", "end", "process", "thread", "rank"), pl.Int64()
)

SCHEMAS: dict[str, pl.Schema] = {
    RANGE: pl.Schema(
        {
            **OWNED,
            "domain": pl.String(),
            "name": pl.String(),
            "external": pl.Int64(),
            "peer": pl.String(),
        }
    ),
    LAUNCH: pl.Schema(
        {
            **OWNED,
            "correlation": pl.Int64(),
            "graph": pl.Boolean(),
            "waits": pl.Boolean(),
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
is the id of an operator, `peer` whom it sends to or receives from, `full` a kernel's whole name,
`operation` what the trace states; `correlation` links work to its launch, which `waits` if it holds
its thread until the device is done, and launches a `kernel` or something else."""

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

RANK_LABEL = re.compile(r"\[([A-Z]{2}[0-9]{1,6}-?)+\]")
"""What the merging tool of SGLang writes before process ids: tensor, data, pipeline, expert."""

NOTHING = Args()


def frames(batch: Iterable[Event], file: EventFile) -> dict[str, pl.DataFrame]:
    """The events that matter, for `finished`: by nature; times and owners may be null."""
    sorted_out: dict[str, list[Event]] = defaultdict(list)
    for event in batch:
        if event.ph == "X":
            sorted_out[_nature(event.cat)].append(event)
        elif event.ph in ("B", "E"):
            if whole := file.ended(event):
                sorted_out[_nature(whole.cat)].append(whole)
        elif event.name == WINDOW_END:
            sorted_out[SPAN].append(event)
        elif event.name == "process_name":
            sorted_out[NAMED].append(event)
    sorted_out.pop(UNUSED, None)
    file.strange.update(each.cat for each in sorted_out.pop(STRANGE, ()) if _of_device(each))
    all_events = [event for events in sorted_out.values() for event in events]
    moments = times([event.ts for event in all_events] + [event.dur for event in all_events])
    by_nature = {}
    for nature, events in sorted_out.items():
        start, length = (moments.slice(at, len(events)) for at in (0, len(all_events)))
        by_nature[nature] = _frame(nature, events, start, length)
        moments = moments.slice(len(events))
    return by_nature


@cache
def _nature(category: str) -> str:
    """The nature of a category, or `UNUSED` or `STRANGE`."""
    lower = category.lower()
    if UNUSED_CATEGORIES.match(lower):
        return UNUSED
    return LAUNCH if lower.endswith(LAUNCHES) else CATEGORIES.get(lower, STRANGE)


def _of_device(event: Event) -> bool:
    """Whether an event without a known category is of a device or of a call to one, or may be."""
    args = event.args or NOTHING
    places = (args.correlation, args.device, args.stream)
    return not event.cat or places.count(None) < len(places)


def _frame(nature: str, events: list[Event], start: pl.Series, length: pl.Series) -> pl.DataFrame:
    """Times, and the columns that TAKEN lists."""
    args = [event.args or NOTHING for event in events]
    length = length.fill_null(0) if nature == SPAN else length
    no_time = (length < 0) | ((start == 0) & (length == 0))  # profilers write 0 for unknown times
    columns = {"start": start, "end": (start + length).set(no_time, None)}
    for name in TAKEN[nature].split():
        of_event, read = SOURCES[name]
        columns[name] = read(events if of_event else args)
    return pl.DataFrame(columns)


def finished(nature: str, parts: list[pl.DataFrame]) -> pl.DataFrame:
    """All events of a nature as a frame of SCHEMAS; times and owners may be null."""
    no_time = pl.Series(dtype=pl.Int64)
    frame = pl.concat([_frame(nature, [], no_time, no_time), *parts], rechunk=True)
    if nature == WORK:
        frame = _work(frame)
    elif nature == RANGE:
        frame = _ranges(frame)
    elif nature == NAMED:
        frame = frame.rename({"named": "rank"})
    elif nature == LAUNCH:
        frame = frame.with_columns(
            graph=pl.col("name").str.contains("GraphLaunch", literal=True),
            waits=synchronises().fill_null(False),
            captures=captures(),
            kernel=launches_kernel(),
        )
    return conform(frame, SCHEMAS[nature], drop_others=True)


def _ranges(frame: pl.DataFrame) -> pl.DataFrame:
    """Host ranges; the name of `record_param_comms` is that of its collective."""
    name, category, collective = pl.col("name"), pl.col("category"), pl.col("collective")
    is_operator = (category == "cpu_op") | (
        (category == "Operator") & name.str.contains("::", literal=True)
    )
    ranges = frame.with_columns(
        domain=pl.when(is_operator).then(pl.lit(OPERATORS)).otherwise(pl.lit("")),
        external=pl.coalesce("external", "older"),
    )
    if not frame["collective"].count():
        return ranges.with_columns(peer=pl.lit(None, pl.String))
    is_call = (name == "record_param_comms") & collective.is_not_null()
    of_call = pl.format("nccl:{}", collective)
    peer = (
        pl.when(is_call & (collective == "send"))
        .then(pl.format("to {}", "destination"))
        .when(is_call & (collective == "recv"))
        .then(pl.format("from {}", "source"))
    )
    return ranges.with_columns(name=pl.when(is_call).then(of_call).otherwise(name), peer=peer)


def _work(frame: pl.DataFrame) -> pl.DataFrame:
    """Kernels, copies and sets."""
    category = pl.col("category").str.to_lowercase()
    is_kernel = category == "kernel"
    element = pl.col("element").str.to_lowercase()
    element_bytes = element.replace_strict(ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    full = frame["name"].unique()
    short = full.to_frame().select(short_name()).to_series()
    return frame.with_columns(
        # Older versions name the stream in `tid` alone.
        stream=pl.coalesce("stream", "thread").cast(pl.UInt32, wrap_numerical=True),
        context=pl.col("context").fill_null(0).cast(pl.UInt32, wrap_numerical=True),
        device=pl.coalesce("device", "owner"),
        kind=pl.when(is_kernel)
        .then(pl.lit("kernel"))
        .when(category.str.ends_with("memcpy"))
        .then(pl.lit("copy"))
        .otherwise(pl.lit("set")),
        name=pl.when(is_kernel)
        .then(pl.col("name").replace_strict(full, short, return_dtype=pl.String))
        .otherwise(pl.lit("")),
        full=pl.when(is_kernel).then("name"),
        operation=pl.when(is_kernel).then(stated_operations(frame["collective"])),
        bytes=pl.coalesce("bytes", pl.col("elements") * element_bytes),
        grid=pl.when(is_kernel).then(pl.col("grid").cast(pl.Int64, strict=False)),
        external=pl.coalesce("external", "older"),
    )


Read = Callable[[list[Any]], pl.Series]


def _texts(attribute: str) -> Read:
    get = attrgetter(attribute)
    return lambda rows: pl.Series([*map(get, rows)], dtype=pl.String)


def _numbers(attribute: str) -> Read:
    get = attrgetter(attribute)
    return lambda rows: integers([*map(get, rows)])


def _blocks(args: list[Args]) -> pl.Series:
    """The number of blocks of each kernel."""
    blocks = [None if each.grid is None else math.prod(each.grid) for each in args]
    return pl.Series(blocks, dtype=pl.Float64)


def _stated_ranks(events: list[Event]) -> pl.Series:
    """The rank that each event states; null without a whole number."""
    ranks = [None if each.args is None else each.args.rank for each in events]
    if ranks.count(None) < len(ranks):
        ranks = [each if type(each) is int else None for each in ranks]
    elif ranks and isinstance(events[0].pid, str):
        ranks = [_labelled(str(each.pid)) for each in events]
    return pl.Series(ranks, dtype=pl.Int64)


@cache
def _labelled(process: str) -> int | None:
    """The rank of `[TP02-DP00] 83`; None without one, or of two dimensions."""
    label = RANK_LABEL.match(process)
    places = {*map(int, re.findall("[0-9]+", label[0]))} if label else {0, 1, 2}
    *others, rank = sorted(places)
    return None if {*others} - {0} else rank


def _named_ranks(args: list[Args]) -> pl.Series:
    """The ranks that names of processes have: `RANK 3 - GPU`."""
    matches = [RANK_NAME.search(str(each.name)) for each in args]
    return pl.Series([None if each is None else int(each[1]) for each in matches], dtype=pl.Int64)


def _communicators(args: list[Args]) -> pl.Series:
    """Name and members of the process group of each collective: the same on all its ranks."""
    groups = [
        None if each.group is None else f"{each.group} {each.members or ''}".rstrip()
        for each in args
    ]
    return pl.Series(groups, dtype=pl.String).str.replace_all(", ", ",", literal=True)


SOURCES: dict[str, tuple[bool, Read]] = {
    "name": (True, _texts("name")),
    "category": (True, _texts("cat")),
    "process": (True, _numbers("pid")),
    "owner": (True, _numbers("pid")),
    "thread": (True, _numbers("tid")),
    "rank": (True, _stated_ranks),
    "named": (False, _named_ranks),
    "collective": (False, _texts("collective")),
    "element": (False, _texts("element")),
    "older": (False, _numbers("older_external")),
    "grid": (False, _blocks),
    "communicator": (False, _communicators),
    "external": (False, _numbers("external")),
    "correlation": (False, _numbers("correlation")),
    "device": (False, _numbers("device")),
    "context": (False, _numbers("context")),
    "stream": (False, _numbers("stream")),
    "bytes": (False, _numbers("bytes")),
    "elements": (False, _numbers("elements")),
    "sequence": (False, _numbers("sequence")),
    "source": (False, _numbers("source")),
    "destination": (False, _numbers("destination")),
}
"""Column → whether it is read from the events, else from their `args`; and how."""

TAKEN = {
    RANGE: "process thread rank category name collective external older source destination",
    LAUNCH: "process thread rank name correlation",
    WORK: "owner thread rank category name collective external older correlation device context "
    "stream bytes grid element elements communicator sequence",
    SPAN: "",
    NAMED: "owner named",
}
"""Nature → columns of SOURCES that are read."""


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
    match = re.search(r"(?:^|[^\d.])(-?\d{1,18})(?:\.0*)?$", str(value)[-40:])
    return int(match[1]) if match else None
