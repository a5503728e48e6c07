"""What a run's database stores: every table and column with its type and its meaning.

`schema.sql` is generated from this (`python -m tests.store.schema_file`), and so are the comments
that DuckDB shows. Frames on their way into a table have the table's schema (`model/schema.py`).

A new nullable column, such as that of a metric, needs no new schema version: `store/migrations.py`
adds it to databases that lack it. Any other change raises the version of the schema.

Times are nanoseconds on the report's own axis (0 = its session start) unless the meaning says
otherwise. Null is unknown, never 0.
"""

import polars as pl

from rankscope.model.columns import (
    FLAG,
    INTEGER,
    OF_AMOUNTS,
    OF_AXIS,
    OF_COUNTERS,
    OF_LENGTHS,
    OF_NUMBERS,
    OF_OFFSETS,
    OF_ORDINALS,
    OF_RANKS,
    OF_SIZES,
    OF_UTC,
    TEXT,
    WINDOWS,
    Column,
    Table,
    nullable,
)
from rankscope.model.kinds import OPERATIONS, PARTS, Clock, Counter, HostState
from rankscope.model.metrics import Metric, Unit, measured_metrics
from rankscope.model.options import StoredOptions

OF_ITERATIONS = {"iterations": ("rank", "iteration")}
"""What the rows of a rank's iteration refer to."""


def metric_dtype(metric: Metric) -> pl.DataType:
    """The dtype of a metric's values in one iteration: Int64 or Float64."""
    return pl.Int64() if metric.unit.is_whole else pl.Float64()


def metric_column(metric: Metric) -> Column:
    """The column of a metric's values in one iteration."""
    limits = OF_LENGTHS if metric.unit is Unit.NS else OF_AMOUNTS
    return nullable(metric_dtype(metric), metric.comment, limits)


RANK = Column(INTEGER, "Rank of the job", OF_RANKS)
ITERATION = Column(INTEGER, "Iteration number, the same step on every rank", OF_NUMBERS)

TABLES = {
    "meta": Table(
        "What this file is: schema_version, and which clock rank_iterations uses",
        {
            "key": Column(TEXT, "Name of the fact"),
            "value": nullable(TEXT, "The fact"),
        },
        key=("key",),
    ),
    "reports": Table(
        "A row per report that was read",
        {
            "path": Column(TEXT, "Where the report was when it was read", is_path=True),
            "kind": Column(TEXT, "Format of the report, e.g. nsys-sqlite or kineto"),
            "bytes": Column(INTEGER, "Size of the file", OF_AMOUNTS),
            "modified_ns": Column(
                INTEGER, "Modification time of the file, ns since the epoch", OF_OFFSETS
            ),
            "options": Column(
                TEXT, "The ingest options that shaped its rows, as JSON", json=StoredOptions
            ),
            "host": nullable(TEXT, "Host it was captured on"),
            "utc_start_ns": nullable(
                INTEGER,
                "UTC of the report's time 0 by its host's clock, ns since the epoch",
                OF_UTC,
            ),
            "duration_ns": nullable(
                INTEGER, "Where the capture ends on the report's axis", OF_AXIS
            ),
            "exporter": nullable(TEXT, "Version of the program that wrote the file"),
            "software": nullable(TEXT, "Versions of driver, CUDA and NCCL, where it states them"),
            "windows": nullable(
                TEXT,
                "Files of further windows of its process, from its folder, as JSON: path → start "
                "on the report's axis, ns",
                json=WINDOWS,
            ),
            "events": Column(INTEGER, "Number of events read from it", OF_AMOUNTS),
            "iterations": Column(
                INTEGER, "Iterations found in it, of the rank that has most", OF_AMOUNTS
            ),
        },
        key=("path",),
    ),
    "ranks": Table(
        "A row per rank",
        {
            "rank": RANK,
            "path": Column(TEXT, "Path of its report", is_path=True),
            "pid": Column(INTEGER, "Its process id, as the GUI names its row", OF_NUMBERS),
            "local_rank": nullable(INTEGER, "Its number on its host, where known", OF_RANKS),
            "world_size": nullable(
                INTEGER, "Ranks of the whole job, where its environment says so", OF_SIZES
            ),
            "host": nullable(TEXT, "Host it ran on"),
            "evidence": Column(TEXT, "What says that it is this rank"),
            "numbered": Column(FLAG, "Whether its iterations carry numbers; else they are counted"),
            "convention": Column(TEXT, "Framework or option whose naming its iterations follow"),
            "has_device": Column(FLAG, "Whether its report holds device work"),
            "clock_gpu": Column(
                FLAG, "Whether nearly all its iterations have device work in some phase"
            ),
            "work_known": Column(FLAG, "Whether its waits are visible on the host clock"),
            "gpu_uuid": nullable(TEXT, "UUID of the GPU that it computed on"),
            "gpu_name": nullable(TEXT, "Model of that GPU"),
            "gpu_bus": nullable(TEXT, "Slot of that GPU: its place on the bus"),
            "adapters": nullable(TEXT, "GUIDs of its host's network adapters, with blanks between"),
            "cpu": nullable(TEXT, "Model of its host's CPU"),
        },
        refers={"reports": ("path",)},
        key=("rank",),
    ),
    "iterations": Table(
        "A row per rank and iteration: where its range lies",
        {
            "rank": RANK,
            "iteration": Column(
                INTEGER,
                "Number that means the same step on every rank; epochs count on",
                OF_NUMBERS,
            ),
            "epoch": Column(INTEGER, "How often the numbers had started over", OF_AMOUNTS),
            "number": Column(INTEGER, "Number as the range's name or payload says", OF_NUMBERS),
            "start_ns": Column(INTEGER, "Start of the iteration's own range", OF_AXIS),
            "end_ns": Column(INTEGER, "End of the iteration's own range", OF_AXIS),
            "view_start_ns": Column(
                INTEGER, "Start of its first host range: look from here", OF_AXIS
            ),
            "view_end_ns": Column(INTEGER, "End of its last device work: look until here", OF_AXIS),
            "complete": Column(FLAG, "False where the capture's edge or a kill cut it"),
        },
        key=("rank", "iteration"),
        ordered=(("start_ns", "end_ns"), ("view_start_ns", "view_end_ns")),
        refers={"ranks": ("rank",)},
        complete={"ranks": "rank"},
    ),
    "measures": Table(
        "A row per rank, iteration and clock; null is unknown, never 0",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "clock": Column(
                TEXT, "host: what the CPU thread did; gpu: what the device did", names=tuple(Clock)
            ),
            "window_start_ns": nullable(
                INTEGER, "Where the iteration's window starts on this clock", OF_AXIS
            ),
            **{each.column: metric_column(each) for each in measured_metrics()},
        },
        key=("rank", "iteration", "clock"),
        joint=(("window_start_ns", "iteration_ns"),),
        refers=OF_ITERATIONS,
    ),
    "collectives": Table(
        "A row per rank and collective call or kernel",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "place": Column(
                TEXT, "host: a blocking call; device: a kernel", names=("host", "device")
            ),
            "communicator": Column(TEXT, "The rank's own name for the group: its source or stream"),
            "operation": Column(
                TEXT,
                "all_reduce, all_gather, reduce_scatter, all_to_all, barrier, rooted, "
                "point_to_point, wait or grouped",
                names=(*OPERATIONS, "wait"),
            ),
            "ordinal": Column(
                INTEGER,
                "Number among the calls of the iteration, by which ranks match",
                OF_ORDINALS,
            ),
            "gradient": Column(FLAG, "Whether it reduces gradients"),
            "arrival_ns": Column(INTEGER, "When the rank was ready to enter it", OF_AXIS),
            "start_ns": Column(INTEGER, "When the call or kernel started", OF_AXIS),
            "end_ns": Column(INTEGER, "When it ended", OF_AXIS),
            "bytes": nullable(INTEGER, "Message size, where known", OF_AMOUNTS),
        },
        key=("rank", "iteration", "place", "communicator", "operation", "ordinal"),
        ordered=(("start_ns", "end_ns"), ("arrival_ns", "end_ns")),
        refers=OF_ITERATIONS,
    ),
    "exposed": Table(
        "Intervals of exposed communication, disjoint per rank and clock",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "clock": Column(TEXT, "host or gpu", names=tuple(Clock)),
            "start_ns": Column(INTEGER, "Start", OF_AXIS),
            "end_ns": Column(INTEGER, "End", OF_AXIS),
        },
        key=("rank", "iteration", "clock", "start_ns"),
        ordered=(("start_ns", "end_ns"),),
        refers=OF_ITERATIONS,
    ),
    "activities": Table(
        "What phases are spent on: a row per rank, iteration, phase, kind and name",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "phase": Column(
                TEXT, "The phase in which it was launched, or that owns the idling", names=PARTS
            ),
            "kind": Column(
                TEXT,
                "kernel, copy, set, idle (of the device) or range (of the host, nested in the "
                "phase)",
                names=("kernel", "graph", "copy", "set", "idle", "range"),
            ),
            "name": Column(
                TEXT, "Kernel or range; empty: without a name, or the sum of all minor ones"
            ),
            "count": nullable(INTEGER, "Number of operations", OF_AMOUNTS),
            "total_ns": nullable(INTEGER, "Sum of their lengths", OF_LENGTHS),
            "size": nullable(
                INTEGER, "Blocks of kernels, bytes of copies and sets, else 0", OF_AMOUNTS
            ),
            "clear_ns": nullable(
                INTEGER,
                "Part of total_ns in operations that overlap no collective; null for ranges and "
                "idling",
                OF_LENGTHS,
            ),
            "clear_size": nullable(
                INTEGER, "Blocks or bytes of those; null for ranges and idling", OF_AMOUNTS
            ),
            "launches": nullable(
                pl.List(pl.Int32()),
                "Lengths of at most 6 of a kernel's launches, evenly spaced from the first on; "
                "negative where collectives run all the time, null where they run a part of it; "
                "null for what is no kernel with a name",
                most_items=6,
                items_nullable=True,
            ),
        },
        key=("rank", "iteration", "phase", "kind", "name"),
        refers=OF_ITERATIONS,
    ),
    "host_states": Table(
        "What the training thread did: a row per rank, iteration, phase, state and name; only of "
        "reports that recorded it",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "phase": Column(
                TEXT,
                "Phase on the host clock, or exposed_communication: a blocking collective",
                names=PARTS,
            ),
            "state": Column(
                TEXT,
                "on_cpu; blocked: off the CPU in a call of the operating system; off_cpu: off the "
                "CPU without one; cuda_call; profiler: its own time; unknown: no table tells",
                names=tuple(HostState),
            ),
            "name": Column(
                TEXT,
                "Call; of on_cpu the call, else the function by samples; of unknown off_cpu where "
                "calls are not recorded; empty: none, or the sum of all minor ones",
            ),
            "count": Column(INTEGER, "Number of stretches; of functions: of samples", OF_AMOUNTS),
            "total_ns": Column(
                INTEGER,
                "Time; over states and names it adds up to the phase on the host clock",
                OF_LENGTHS,
            ),
        },
        key=("rank", "iteration", "phase", "state", "name"),
        refers=OF_ITERATIONS,
        is_later=True,
    ),
    "file_accesses": Table(
        "Files that the training thread read or wrote: a row per rank, iteration, phase, call and "
        "file; only of reports that recorded it",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "phase": Column(TEXT, "Phase on the host clock in which the access began", names=PARTS),
            "call": Column(TEXT, "Call of the C library; empty: unknown"),
            "file": Column(TEXT, "Name of the file without its folders; empty: all minor ones"),
            "count": Column(INTEGER, "Number of accesses", OF_AMOUNTS),
            "bytes": nullable(INTEGER, "Bytes read or written, where known", OF_AMOUNTS),
            "total_ns": Column(INTEGER, "Sum of their lengths", OF_LENGTHS),
        },
        key=("rank", "iteration", "phase", "call", "file"),
        refers=OF_ITERATIONS,
        is_later=True,
    ),
    "counters": Table(
        "Counters of GPUs, network adapters and unified memory: a row per rank in whose report "
        "they are, iteration, device and metric; of all devices of the rank's host",
        {
            "rank": RANK,
            "iteration": Column(
                INTEGER, "Iteration of this rank in which they were sampled", OF_NUMBERS
            ),
            "source": Column(
                TEXT,
                "gpu; nic: a network adapter; process: that of the rank",
                names=("gpu", "nic", "process"),
            ),
            "device": Column(
                TEXT,
                "UUID or else slot of the GPU, GUID of the adapter; empty: unknown, or the process",
            ),
            "metric": Column(
                TEXT,
                "clock (MHz), sys_clock (MHz), sm_active, dram_read, dram_write, pcie_rx, pcie_tx, "
                "nvlink_rx, nvlink_tx (%), sent, received (bytes per second), send_waits (ticks "
                "per second), gpu_page_faults, cpu_page_faults (of unified memory)",
                names=tuple(Counter),
            ),
            "count": Column(INTEGER, "Number of samples; of page faults: of events", OF_AMOUNTS),
            "value": Column(
                pl.Float64(), "Mean of the samples; of page faults: their number", OF_COUNTERS
            ),
        },
        key=("rank", "iteration", "source", "device", "metric"),
        refers=OF_ITERATIONS,
        is_later=True,
    ),
    "problems": Table(
        "Warnings about the numbers of a report",
        {
            "path": Column(TEXT, "Path of the report"),
            "code": Column(TEXT, "Short name of the warning"),
            "message": Column(TEXT, "What it is and what to do"),
            "ranks": nullable(
                pl.List(pl.Int64()),
                "Ranks it concerns; empty: all of the report's",
                OF_RANKS,
                most_items=OF_SIZES[1],
            ),
        },
        refers={"reports": ("path",)},
    ),
}
"""Name → table, of the rows that reports become, in the order in which they are created."""

PER_RANK = tuple(
    name for name, table in TABLES.items() if "rank" in table.columns and name != "ranks"
)
"""Tables with rows per rank; `RankRows` has an attribute for each."""
