"""Writes what ranks did as the SQLite files that `nsys export` makes of their reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.forge.record import Identity, RankClock, RankRecord
from tests.forge.tables import GLOBAL_VM, Rows, StringPool, general_tables, write_export
from tests.jobs.draws import generator
from tests.jobs.job import MS, Job
from tests.jobs.names import CHANNELS, KERNELS
from tests.jobs.state import Played, Rank

PUSH_POP, DOMAIN_CREATE = 59, 75
NCCL_DOMAIN = 3
TAIL_NS = 250 * MS

SYNCHRONIZATIONS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
LAYOUT = f"""CREATE TABLE {SYNCHRONIZATIONS} (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL,
    eventId INTEGER NOT NULL, eventSyncId INTEGER
)"""


def clock(job: Job, rank: int) -> RankClock:
    """A rank's clock: one offset and rate per host, a session start of its own."""
    host = generator(job.seed, "clock", job.host_of(rank))
    offset, drift = int(host.integers(-8 * MS, 8 * MS)), int(host.integers(-20_000, 20_000))
    own = generator(job.seed, "session", rank)
    return RankClock(-int(own.integers(100 * MS, 900 * MS)), offset, drift)


def identity(job: Job, rank: int) -> Identity:
    """A rank's process, threads and machine."""
    local = rank % job.ranks_per_host
    pid = 4_000 + 37 * local
    threads = (pid, pid + 11, pid + 12)
    return Identity(rank, local, job.ranks, job.host_of(rank), pid, *threads)


def write(job: Job, played: Played, folder: Path) -> list[Path]:
    """Write the reports of all ranks that have one into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = range(job.ranks) if job.report.ranks is None else job.report.ranks
    return [_write(job, played.ranks[rank], folder) for rank in chosen]


def _write(job: Job, rank: Rank, folder: Path) -> Path:
    who, when = identity(job, rank.number), clock(job, rank.number)
    record = RankRecord(who, when)
    schema = job.report.schema
    older = schema == "2022.4"
    path = folder / f"report_rank_{rank.number}.sqlite"
    pool = StringPool()
    last = when.local(max((row[1] for row in rank.ranges), default=0))
    tables: dict[str, Rows] = {
        **general_tables(record, path.name, schema),
        "ANALYSIS_DETAILS": [(GLOBAL_VM, last + TAIL_NS, 280 * MS, 280 * MS + last + TAIL_NS)],
        "PROCESSES": [(who.global_pid(), who.pid, "python3.11")],
        "ThreadNames": [
            (pool["python3.11"], 20, who.global_tid(who.main_tid)),
            (pool["pt_autograd_0"], 20, who.global_tid(who.autograd_tid)),
        ],
        "TARGET_INFO_CUDA_STREAM": [
            (stream, 0, 1, who.pid, 1, 0, 1 if stream == 7 else 2) for stream in rank.streams
        ],
        "NVTX_EVENTS": _ranges(job, rank, who, when, pool),
        "CUPTI_ACTIVITY_KIND_RUNTIME": _calls(rank, who, when, pool),
        "CUPTI_ACTIVITY_KIND_KERNEL": _kernels(rank, who, when, pool, older),
        "CUPTI_ACTIVITY_KIND_MEMCPY": _copies(rank, who, when, older),
        SYNCHRONIZATIONS: _syncs(rank, who, when),
    }
    return write_export(path, schema, tables, pool, {SYNCHRONIZATIONS: LAYOUT})


def _local(when: RankClock, rows: list[tuple], column: int) -> list[int]:
    """True times of a column as the report tells them; the same as `RankClock.local`."""
    times = np.array([row[column] for row in rows], np.int64)
    began = when.session_start * when.drift_ppb // 10**9
    # Products of a minute and some ten thousand ppb fit 64 bits.
    local: list[int] = (
        times - when.session_start + times * when.drift_ppb // 10**9 - began
    ).tolist()
    return local


def _ranges(job: Job, rank: Rank, who: Identity, when: RankClock, pool: StringPool) -> Rows:
    tids = {0: who.global_tid(who.main_tid), 1: who.global_tid(who.autograd_tid)}
    rows: Rows = []
    times = zip(_local(when, rank.ranges, 0), _local(when, rank.ranges, 1), strict=True)
    values = (None,) * 7
    for (start, end), (_, _, name, thread, payload) in zip(times, rank.ranges, strict=True):
        head = (start, end, PUSH_POP, None, None, None)
        if name.startswith("nccl"):
            rows.append(
                (*head, None, tids[thread], None, pool[name], NCCL_DOMAIN, *values, payload)
            )
        else:
            rows.append((*head, name, tids[thread], None, None, 0, *values, None))
    if job.report.payload and rows:
        first = min(row[0] for row in rows) - MS
        made = (first, None, DOMAIN_CREATE, None, None, None)
        rows.append((*made, "NCCL", tids[0], None, None, NCCL_DOMAIN, *values, None))
    rows.sort(key=lambda row: row[0])  # type: ignore[return-value]
    return rows


def _calls(rank: Rank, who: Identity, when: RankClock, pool: StringPool) -> Rows:
    tids = {0: who.global_tid(who.main_tid), 1: who.global_tid(who.autograd_tid)}
    starts, ends = _local(when, rank.calls, 0), _local(when, rank.calls, 1)
    return [
        (start, end, 0, tids[thread], correlation, pool[name], 0, None)
        for start, end, (_, _, name, thread, correlation) in zip(
            starts, ends, rank.calls, strict=True
        )
    ]


def _kernels(rank: Rank, who: Identity, when: RankClock, pool: StringPool, older: bool) -> Rows:
    pid, green = who.global_pid(), () if older else (0,)
    known: dict[str, tuple[object, ...]] = {}
    rows: Rows = []
    rank.kernels.sort(key=lambda row: row[0])
    starts, ends = _local(when, rank.kernels, 0), _local(when, rank.kernels, 1)
    for nth, (start, end, (_, _, name, stream, correlation, shape)) in enumerate(
        zip(starts, ends, rank.kernels, strict=True), 1
    ):
        kernel = KERNELS[name]
        if name not in known:
            names = (pool[kernel.demangled], pool[kernel.short], pool[f"_Z{kernel.short}"])
            known[name] = (*names, 1, 1, kernel.registers)
        grid = CHANNELS if name.startswith("nccl:") else shape
        place = (start, end, who.local_rank, 1, *green, stream, correlation, pid)
        block = (grid, 1, 1, kernel.block, 1, 1, 0, kernel.shared_memory, 0, 250_871_808)
        rows.append((*place, *known[name], *block, nth, 32_768, None, 0))
    return rows


def _copies(rank: Rank, who: Identity, when: RankClock, older: bool) -> Rows:
    green = () if older else (0,)
    rank.copies.sort(key=lambda row: row[0])
    starts, ends = _local(when, rank.copies, 0), _local(when, rank.copies, 1)
    rows: Rows = []
    for start, end, (_, _, name, stream, correlation, nbytes) in zip(
        starts, ends, rank.copies, strict=True
    ):
        kinds = (1, None, 1, 2) if name == "HtoD" else (2, None, 2, 0)
        place = (start, end, who.local_rank, 1, *green, stream, correlation, who.global_pid())
        rows.append((*place, nbytes, *kinds, *(None,) * 5, None, None))
    return rows


def _syncs(rank: Rank, who: Identity, when: RankClock) -> Rows:
    starts, ends = _local(when, rank.syncs, 0), _local(when, rank.syncs, 1)
    return [
        (start, end, who.local_rank, 1, 0, stream, corr, who.global_pid(), 3, 0, None)
        for start, end, (_, _, stream, corr) in zip(starts, ends, rank.syncs, strict=True)
    ]
