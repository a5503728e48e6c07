"""What a run's database stores: every table and column with its type and its meaning.

`schema.sql` is generated from this (`python -m tests.store.schema_file`), and so are the comments
that DuckDB shows. Frames on their way into a table have the table's schema (`model/schema.py`).

A new nullable column, such as that of a metric, needs no new schema version: `store/migrations.py`
adds it to databases that lack it. Any other change raises `SCHEMA_VERSION`.

Times are nanoseconds on the report's own axis (0 = its session start) unless the meaning says
otherwise. Null is unknown, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.model.metrics import METRICS, Metric, measured_metrics


@dataclass(frozen=True, slots=True)
class Column:
    """A stored column."""

    dtype: pl.DataType
    meaning: str
    is_nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A stored table."""

    meaning: str
    columns: dict[str, Column]
    key: str | None = None  # the column that identifies a row
    is_later: bool = False  # databases of the same schema version may lack it: it is empty then

    @property
    def schema(self) -> pl.Schema:
        """Columns and dtypes of the frames that go into it."""
        return pl.Schema((name, each.dtype) for name, each in self.columns.items())


INTEGER, TEXT, FLAG = pl.Int64(), pl.String(), pl.Boolean()
LENGTHS = pl.List(pl.Int32())


def metric_dtype(metric: Metric) -> pl.DataType:
    """The dtype of a metric's values in one iteration: Int64 or Float64."""
    return pl.Int64() if metric.unit.is_whole else pl.Float64()


RANK = Column(INTEGER, "Rank of the job")
ITERATION = Column(INTEGER, "Iteration number, the same step on every rank")

TABLES = {
    "meta": Table(
        "What this file is: schema_version, and which clock rank_iterations uses",
        {
            "key": Column(TEXT, "Name of the fact"),
            "value": Column(TEXT, "The fact", is_nullable=True),
        },
        key="key",
    ),
    "reports": Table(
        "A row per report that was read",
        {
            "path": Column(TEXT, "Where the report was when it was read"),
            "kind": Column(TEXT, "Format of the report, e.g. nsys-sqlite or kineto"),
            "bytes": Column(INTEGER, "Size of the file"),
            "modified_ns": Column(INTEGER, "Modification time of the file, ns since the epoch"),
            "options": Column(TEXT, "The ingest options that shaped its rows, as JSON"),
            "host": Column(TEXT, "Host it was captured on", is_nullable=True),
            "utc_start_ns": Column(
                INTEGER,
                "UTC of the report's time 0 by its host's clock, ns since the epoch",
                is_nullable=True,
            ),
            "duration_ns": Column(
                INTEGER, "Where the capture ends on the report's axis", is_nullable=True
            ),
            "exporter": Column(
                TEXT, "Version of the program that wrote the file", is_nullable=True
            ),
            "software": Column(
                TEXT, "Versions of driver, CUDA and NCCL, where it states them", is_nullable=True
            ),
            "windows": Column(
                TEXT,
                "Files of further windows of its process, from its folder, as JSON: path → start "
                "on the report's axis, ns",
                is_nullable=True,
            ),
            "events": Column(INTEGER, "Number of events read from it"),
            "iterations": Column(INTEGER, "Iterations found in it, of the rank that has most"),
        },
        key="path",
    ),
    "ranks": Table(
        "A row per rank",
        {
            "rank": RANK,
            "path": Column(TEXT, "Path of its report"),
            "pid": Column(INTEGER, "Its process id, as the GUI names its row"),
            "local_rank": Column(INTEGER, "Its number on its host, where known", is_nullable=True),
            "world_size": Column(
                INTEGER,
                "Ranks of the whole job, where its environment says so",
                is_nullable=True,
            ),
            "host": Column(TEXT, "Host it ran on", is_nullable=True),
            "evidence": Column(TEXT, "What says that it is this rank"),
            "numbered": Column(FLAG, "Whether its iterations carry numbers; else they are counted"),
            "convention": Column(TEXT, "Framework or option whose naming its iterations follow"),
            "has_device": Column(FLAG, "Whether its report holds device work"),
            "clock_gpu": Column(
                FLAG, "Whether nearly all its iterations have device work in some phase"
            ),
            "work_known": Column(FLAG, "Whether its waits are visible on the host clock"),
            "gpu_uuid": Column(TEXT, "UUID of the GPU that it computed on", is_nullable=True),
            "gpu_name": Column(TEXT, "Model of that GPU", is_nullable=True),
            "gpu_bus": Column(TEXT, "Slot of that GPU: its place on the bus", is_nullable=True),
            "adapters": Column(
                TEXT, "GUIDs of its host's network adapters, with blanks between", is_nullable=True
            ),
            "cpu": Column(TEXT, "Model of its host's CPU", is_nullable=True),
        },
        key="rank",
    ),
    "iterations": Table(
        "A row per rank and iteration: where its range lies",
        {
            "rank": RANK,
            "iteration": Column(
                INTEGER, "Number that means the same step on every rank; epochs count on"
            ),
            "epoch": Column(INTEGER, "How often the numbers had started over"),
            "number": Column(INTEGER, "Number as the range's name or payload says"),
            "start_ns": Column(INTEGER, "Start of the iteration's own range"),
            "end_ns": Column(INTEGER, "End of the iteration's own range"),
            "view_start_ns": Column(INTEGER, "Start of its first host range: look from here"),
            "view_end_ns": Column(INTEGER, "End of its last device work: look until here"),
            "complete": Column(FLAG, "False where the capture's edge or a kill cut it"),
        },
    ),
    "measures": Table(
        "A row per rank, iteration and clock; null is unknown, never 0",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "clock": Column(TEXT, "host: what the CPU thread did; gpu: what the device did"),
            "window_start_ns": Column(
                INTEGER, "Where the iteration's window starts on this clock", is_nullable=True
            ),
            **{
                each.column: Column(metric_dtype(each), each.comment, is_nullable=True)
                for each in measured_metrics()
            },
        },
    ),
    "collectives": Table(
        "A row per rank and collective call or kernel",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "place": Column(TEXT, "host: a blocking call; device: a kernel"),
            "communicator": Column(TEXT, "The rank's own name for the group: its source or stream"),
            "operation": Column(
                TEXT,
                "all_reduce, all_gather, reduce_scatter, all_to_all, barrier, rooted, "
                "point_to_point, wait or grouped",
            ),
            "ordinal": Column(
                INTEGER, "Number among the calls of the iteration, by which ranks match"
            ),
            "gradient": Column(FLAG, "Whether it reduces gradients"),
            "arrival_ns": Column(INTEGER, "When the rank was ready to enter it"),
            "start_ns": Column(INTEGER, "When the call or kernel started"),
            "end_ns": Column(INTEGER, "When it ended"),
            "bytes": Column(INTEGER, "Message size, where known", is_nullable=True),
        },
    ),
    "exposed": Table(
        "Intervals of exposed communication, disjoint per rank and clock",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "clock": Column(TEXT, "host or gpu"),
            "start_ns": Column(INTEGER, "Start"),
            "end_ns": Column(INTEGER, "End"),
        },
    ),
    "activities": Table(
        "What phases are spent on: a row per rank, iteration, phase, kind and name",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "phase": Column(TEXT, "The phase in which it was launched, or that owns the idling"),
            "kind": Column(
                TEXT,
                "kernel, copy, set, idle (of the device) or range (of the host, nested in the "
                "phase)",
            ),
            "name": Column(
                TEXT, "Kernel or range; empty: without a name, or the sum of all minor ones"
            ),
            "count": Column(INTEGER, "Number of operations", is_nullable=True),
            "total_ns": Column(INTEGER, "Sum of their lengths", is_nullable=True),
            "size": Column(
                INTEGER, "Blocks of kernels, bytes of copies and sets, else 0", is_nullable=True
            ),
            "clear_ns": Column(
                INTEGER,
                "Part of total_ns in operations that overlap no collective; null for ranges and "
                "idling",
                is_nullable=True,
            ),
            "clear_size": Column(
                INTEGER, "Blocks or bytes of those; null for ranges and idling", is_nullable=True
            ),
            "launches": Column(
                LENGTHS,
                "Lengths of at most 6 of a kernel's launches, evenly spaced from the first on; "
                "negative where collectives run all the time, null where they run a part of it; "
                "null for what is no kernel with a name",
                is_nullable=True,
            ),
        },
    ),
    "host_states": Table(
        "What the training thread did: a row per rank, iteration, phase, state and name; only of "
        "reports that recorded it",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "phase": Column(
                TEXT, "Phase on the host clock, or exposed_communication: a blocking collective"
            ),
            "state": Column(
                TEXT,
                "on_cpu; blocked: off the CPU in a call of the operating system; off_cpu: off the "
                "CPU without one; cuda_call; profiler: its own time; unknown: no table tells",
            ),
            "name": Column(
                TEXT,
                "Call; of on_cpu the call, else the function by samples; of unknown off_cpu where "
                "calls are not recorded; empty: none, or the sum of all minor ones",
            ),
            "count": Column(INTEGER, "Number of stretches; of functions: of samples"),
            "total_ns": Column(
                INTEGER, "Time; over states and names it adds up to the phase on the host clock"
            ),
        },
        is_later=True,
    ),
    "file_accesses": Table(
        "Files that the training thread read or wrote: a row per rank, iteration, phase, call and "
        "file; only of reports that recorded it",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "phase": Column(TEXT, "Phase on the host clock in which the access began"),
            "call": Column(TEXT, "Call of the C library; empty: unknown"),
            "file": Column(TEXT, "Name of the file without its folders; empty: all minor ones"),
            "count": Column(INTEGER, "Number of accesses"),
            "bytes": Column(INTEGER, "Bytes read or written, where known", is_nullable=True),
            "total_ns": Column(INTEGER, "Sum of their lengths"),
        },
        is_later=True,
    ),
    "counters": Table(
        "Counters of GPUs, network adapters and unified memory: a row per rank in whose report "
        "they are, iteration, device and metric; of all devices of the rank's host",
        {
            "rank": RANK,
            "iteration": Column(INTEGER, "Iteration of this rank in which they were sampled"),
            "source": Column(TEXT, "gpu; nic: a network adapter; process: that of the rank"),
            "device": Column(
                TEXT,
                "UUID or else slot of the GPU, GUID of the adapter; empty: unknown, or the process",
            ),
            "metric": Column(
                TEXT,
                "clock (MHz), sys_clock (MHz), sm_active, dram_read, dram_write, pcie_rx, pcie_tx, "
                "nvlink_rx, nvlink_tx (%), sent, received (bytes per second), send_waits (ticks "
                "per second), gpu_page_faults, cpu_page_faults (of unified memory)",
            ),
            "count": Column(INTEGER, "Number of samples; of page faults: of events"),
            "value": Column(pl.Float64(), "Mean of the samples; of page faults: their number"),
        },
        is_later=True,
    ),
    "problems": Table(
        "Warnings about the numbers of a report",
        {
            "path": Column(TEXT, "Path of the report"),
            "code": Column(TEXT, "Short name of the warning"),
            "message": Column(TEXT, "What it is and what to do"),
            "ranks": Column(
                pl.List(pl.Int64()),
                "Ranks it concerns; empty: all of the report's",
                is_nullable=True,
            ),
        },
    ),
}
"""Name → table, of the rows that reports become, in the order in which they are created."""

COMPARED_TABLES = {
    "rank_iterations": "A row per rank and iteration with every metric on the clock named in meta; "
    "null is unknown",
    "answers": "What the commands say without options, as JSON; of which version of rankscope",
    "clocks": "A row per rank whose clock is tied to the lowest rank's",
    "communicators": "A row per group of ranks that call collectives together",
    "streams": "A row per rank and kind of call: which group they are made in",
    "unmatched": "A row per rank, group and reason for which calls have no counterparts",
    "scores": "A row per rank: means over the selected iterations, and who waited for it",
    "waits_of_all": "A row per rank: who waited for it, in all iterations that are complete on "
    "every rank, warm-up too",
    "by_iteration": "A row per selected iteration: how far ranks were apart",
    "what_if": "What the run would save, by replay",
}
"""Name → meaning, of the tables that comparing all ranks gives; their dtypes are the frames'."""

_COMPARED_COLUMNS = {
    "rank": "Rank of the job",
    "iteration": "Iteration number, the same step on every rank",
    "epoch": "How often the numbers had started over",
    "number": "Number as the range's name or payload says",
    "flagged": "Whether this rank stood out in this iteration; null where that is unknown",
    "cause": "Phase with the largest excess where flagged",
    "selected": "Whether the iteration is among the compared ones, from which scores are made",
    "value": "The answer, as JSON",
    "offset_ns": "To add to the rank's UTC to get the lowest rank's, in the middle of the run",
    "drift_ppm": "How the offset grows, microseconds per second",
    "residual_ns": "Largest disagreement of the clocks after that correction",
    "group": "Number of the group",
    "place": "host: blocking calls; device: kernels",
    "communicator": "The rank's own name for the group: its source or stream",
    "label": "What its collectives have in common: name, or stream and habits",
    "members": "Number of ranks in it",
    "ends_error_ns": "How far the ends of its members scatter: error of waits by duration",
    "clock_error_ns": "Largest residual of its members: error of waits by arrival",
    "apart_ns": "Median difference of waits by duration and by arrival",
    "shown": "The waits that are shown: by duration or by arrival",
    "operation": "Kind of collective",
    "reason": "Why they are left out",
    "count": "Number of calls",
    "last_arriver_share": "Share of its collectives in which the rank arrived last",
    "cost_ns": "Sum of what others waited for it",
    "gain_ns": "What fixing it alone would save",
    "spread_ns": "Largest less smallest work",
    "slowest_rank": "Rank that needed most work",
    "flagged_ranks": "Ranks that stood out, worst first",
    "cluster": "normal, or slow and why",
    "kind": "verdict, rank, role, phase, iterations or all",
    "name": "What it is about",
    "time_ns": "What the selected iterations would take",
    "gain": "Saved share of their time",
}


def compared_meaning(column: str) -> str:
    """The meaning of a column in a table of `COMPARED_TABLES`.

    Raises:
        KeyError: the column is neither a metric's nor described here.
    """
    if column in _COMPARED_COLUMNS:
        return _COMPARED_COLUMNS[column]
    for metric in METRICS.values():
        if metric.column == column:
            return metric.comment
    raise KeyError(f"column {column}: described neither by a metric nor in model/tables.py")
