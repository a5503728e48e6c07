"""Every frame that passes between stages: columns, dtypes, units.

Times are int64 nanoseconds on the report's own axis (0 = session start) unless a name says
otherwise. `process` is the profiler's process key (host, machine and pid in one number), unique
within a report. Frames of one stage are checked against these with `conform`.
"""

from collections.abc import Collection
from functools import lru_cache

import polars as pl

from rankscope.model import kinds
from rankscope.model.frames import framed, with_series
from rankscope.model.tables import TABLES

RANGES = pl.Schema(
    {
        "start": pl.Int64,
        "end": pl.Int64,
        "process": pl.Int64,
        "thread": pl.Int64,
        "domain": pl.String,  # of NVTX, "" for the default one; or one of those below
        "name": pl.String,
        "payload": pl.Int64,  # integer, null without one; of GLOO the ns from call to wait
    }
)
"""Host ranges (NVTX push/pop and start/end, MPI calls as domain `MPI`), a row a range."""

SIGNATURES = pl.Schema((name, RANGES[name]) for name in ("process", "thread", "domain", "name"))
"""Who opened ranges and what they say, a row for all that are alike in it."""

MOMENTS = pl.Schema(
    {
        "start": pl.Int64,
        "end": pl.Int64,
        "payload": pl.Int64,
        "signature": pl.UInt32,  # row of SIGNATURES
    }
)
"""What is left of RANGES, a row a range."""

OPERATORS = "operators"
"""Domain of ranges that are operators of the framework where the report marks them."""

GLOO = "gloo"
"""Domain of waits for gloo's collectives, on the thread that called them."""

WORK = pl.Enum(("kernel", "graph", "set", "copy"))
"""Kinds of device work; a graph is a CUDA graph traced as a whole."""

OPERATION = pl.Enum(kinds.OPERATIONS)
"""What a kernel that communicates does."""

DEVICE_WORK = pl.Schema(
    {
        "start": pl.Int64(),
        "end": pl.Int64(),
        "process": pl.Int64(),
        "device": pl.Int64(),
        "context": pl.UInt32(),  # of the device; 0 where the report names none
        "stream": pl.UInt32(),  # as the profiler numbers it, unique within `context`
        "kind": WORK,
        "name": pl.Categorical(),  # kernel's short name, "" for copies and sets
        "operation": OPERATION,  # of communication, null for others
        "bytes": pl.Int64(),  # moved; of a collective its message, null where unknown
        "grid": pl.Int64(),  # blocks of a kernel, null for others
        "communicator": pl.String(),  # the same on every rank, or as PEERS; null where unknown
        "sequence": pl.Int64(),  # of a collective in its communicator; null where unknown
        "graph": pl.Boolean(),  # replayed from a CUDA graph
        "launch": pl.Int64(),  # start of the API call that launched it; null without a record
        "launch_thread": pl.Int64(),
    }
)
"""Kernels, copies and sets on the device, joined with their launches, a row an operation."""

PEERS = "^([0-9]+ )?(to|from) [0-9]"
"""In place of a communicator: whom a kernel sends to and receives from, as `to 5, from 3`.

After the number of a communicator, its members are counted in place of ranks."""

STREAM = ("device", "context", "stream")
"""Columns of DEVICE_WORK that name a stream of a process."""

DEVICE_KINDS = pl.Schema(
    {
        "process": pl.Int64(),
        "device": pl.Int64(),
        "kind": WORK,
        "name": pl.Categorical(),
        "operation": OPERATION,
        "end": pl.Int64(),  # of the last one
    }
)
"""What device work there is, a row for operations that are alike."""

ITERATIONS = pl.Schema(
    {
        "iteration": pl.Int64,  # unique on its rank; the same step on every rank
        "epoch": pl.Int64,
        "number": pl.Int64,  # as the name or payload says; the ordinal without one
        "start": pl.Int64,  # of the iteration's own range
        "end": pl.Int64,
        "window_start": pl.Int64,  # host clock: end of the previous iteration's range
        "window_end": pl.Int64,
        "complete": pl.Boolean,  # false where the capture's edge or a kill cut it
    }
)
"""Iterations of one rank on the host clock, in time order."""

MARKS = pl.Schema(
    {
        "start": pl.Int64,
        "end": pl.Int64,
        "label": pl.String,  # one of PARTS
        "fetch": pl.Boolean,  # fetches data (a copy to the device does not)
        "operation": pl.String,  # of a collective, else null
        "source": pl.String,  # "annotation" | "mpi" for collectives, else null
        "called": pl.Int64,  # when a collective was called that is waited for later, else null
    }
)
"""Ranges of the training thread that mean something, a row a range."""

SEGMENTS = pl.Schema(
    [
        ("start", pl.Int64()),
        ("end", pl.Int64()),
        ("window", pl.Int64()),
        ("label", pl.Enum(kinds.PARTS)),
    ]
)
"""A timeline cut into disjoint pieces with one owner each; `window` = row of ITERATIONS."""

MEASURES = TABLES["measures"].schema
"""The metrics that need no other rank, a row per rank, iteration and clock."""

COLLECTIVES = TABLES["collectives"].schema
"""Collectives of the chosen windows, a row per rank and instance."""

EXPOSED = TABLES["exposed"].schema
"""Intervals of exposed communication, disjoint per rank and clock."""

ACTIVITIES = TABLES["activities"].schema
"""What phases are spent on, a row per rank, iteration, phase, kind and name."""

HOST_STATES = TABLES["host_states"].schema
"""What the training thread did, a row per rank, iteration, phase, state and name."""

FILE_ACCESSES = TABLES["file_accesses"].schema
"""Files that the training thread used, a row per rank, iteration, phase, call and file."""

COUNTERS = TABLES["counters"].schema
"""Counters of a host, a row per rank in whose report they are, iteration, device and metric."""

RANK_ITERATIONS = TABLES["iterations"].schema
"""Iterations as stored: the range itself, and the stretch to look at in the GUI."""


def empty(schema: pl.Schema) -> pl.DataFrame:
    """A frame of `schema` without rows."""
    return _empty(tuple(schema.items())).clone()


@lru_cache
def _empty(columns: tuple[tuple[str, pl.DataType], ...]) -> pl.DataFrame:
    return pl.DataFrame(schema=columns)


def ordered(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """`frame` by a column, ties as they come; itself where it is so already, as most are."""
    in_order = frame[column].is_sorted()
    return frame if in_order else frame.sort(column, maintain_order=True)


def conform(
    frame: pl.DataFrame,
    schema: pl.Schema,
    *,
    optional: Collection[str] = (),
    drop_others: bool = False,
) -> pl.DataFrame:
    """The frame with the columns of a schema, in its order and dtypes.

    Args:
        frame: whose columns are checked.
        schema: the wanted ones.
        optional: columns that may be missing; they become null, that is unknown.
        drop_others: whether columns that the schema lacks are dropped; else they are an error.

    Raises:
        ValueError: a column is missing, or one too many: a bug of the stage.
    """
    have = frame.columns
    missing = [name for name in schema if name not in have and name not in optional]
    others = [name for name in have if name not in schema]
    if missing or (others and not drop_others):
        wrong = [f"{name} is missing" for name in missing]
        wrong += [] if drop_others else [f"{name} is not in the schema" for name in others]
        raise ValueError(f"a frame does not conform to its schema: {', '.join(wrong)}")
    unknown = constant("", None, frame.height)
    return framed(
        (frame[name] if name in have else unknown.alias(name)).cast(dtype)
        for name, dtype in schema.items()
    )


def of_rank(
    rank: int, frame: pl.DataFrame, schema: pl.Schema, *, drop_others: bool = False
) -> pl.DataFrame:
    """The rows of a rank with its number, as `conform` makes them fit a schema."""
    with_rank = with_series(frame, constant("rank", rank, frame.height))
    return conform(with_rank, schema, drop_others=drop_others)


def constant(name: str, value: object, rows: int) -> pl.Series:
    """A column with one value in all rows."""
    return pl.Series(name, [value]).new_from_index(0, rows)
