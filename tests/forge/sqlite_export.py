"""Writes a rank's record as the SQLite file that `nsys export` makes of a report."""

import random
from collections.abc import Iterator
from pathlib import Path

from tests.forge.host import LAUNCH_NCCL
from tests.forge.job import Job
from tests.forge.names import KERNELS
from tests.forge.record import RankRecord
from tests.forge.schema import columns
from tests.forge.tables import GLOBAL_VM, Rows, StringPool, general_tables, write_export

PUSH_POP, THREAD_NAME, DOMAIN_CREATE = 59, 39, 75
DOMAINS = {1: "MPI"}
CAPTURE_TAIL_NS = 300_000_000


def export(job: Job, record: RankRecord, folder: Path) -> Path:
    """Write one rank's report into a folder and give its path; a file of that name is replaced."""
    who, options = record.identity, job.export
    name = options.file_name.format(rank=who.rank, host=who.host, pid=who.pid)
    pool = StringPool()
    older = options.schema == "2022.4"
    tables: dict[str, Rows] = {
        **general_tables(
            record, options.schema, gpu=job.gpu, with_rank=options.rank_in_environment
        ),
        "ANALYSIS_DETAILS": [_details(record)],
        "PROCESSES": [(who.global_pid(), who.pid, "python3.11"), (GLOBAL_VM | 1 << 24, 1, "bash")],
        "ThreadNames": _threads(job, record, pool),
        "PROFILER_OVERHEAD": [_overhead(record, pool)],
    }
    events = {"NVTX_EVENTS": _ranges(job, record, pool)}
    if job.gpu:
        events["CUPTI_ACTIVITY_KIND_RUNTIME"] = list(_calls(record, pool))
        events["CUPTI_ACTIVITY_KIND_KERNEL"] = list(_kernels(record, pool, older))
        events["CUPTI_ACTIVITY_KIND_MEMCPY"] = list(_copies(record, older))
    rng = random.Random(f"{job.seed}/rows/{who.rank}")
    for rows in events.values():
        # Exports come in order of start, but nobody promises that.
        if options.shuffle_rows:
            rng.shuffle(rows)
        else:
            rows.sort(key=lambda row: row[0])  # type: ignore[return-value]
    return write_export(folder / name, options.schema, tables | events, pool)


def _details(record: RankRecord) -> tuple[object, ...]:
    last_range = max((row[1] for row in record.ranges), default=0)
    last_kernel = max((row[1] for row in record.kernels), default=0)
    duration = max(last_range, last_kernel) + CAPTURE_TAIL_NS
    start = 280_000_000 + record.identity.pid * 1_000
    return (GLOBAL_VM, duration, start, start + duration)


def _overhead(record: RankRecord, pool: StringPool) -> tuple[object, ...]:
    tid = record.identity.global_tid(record.identity.main_tid)
    return (6_849_196, 27_426_352, tid, pool["NVTX profiling initialization"], 0)


def _threads(job: Job, record: RankRecord, pool: StringPool) -> Rows:
    who = record.identity
    rows: Rows = [(pool["python3.11"], 20, who.global_tid(who.main_tid))]
    if job.gpu:
        rows.append((pool["pt_autograd_0"], 20, who.global_tid(who.autograd_tid)))
    if job.background_loader:
        rows.append((pool["python3.11"], 20, who.global_tid(who.loader_tid)))
    return rows


def _ranges(job: Job, record: RankRecord, pool: StringPool) -> Rows:
    who = record.identity
    width = len(columns("NVTX_EVENTS", job.export.schema))

    def row(
        kind: int, text: str, tid: int, domain: int, *, start: int, end: int | None
    ) -> tuple[object, ...]:
        registered = kind == PUSH_POP and (domain != 0 or job.export.registered_names)
        head = (start, end, kind, None, None, None, None if registered else text)
        ids = (who.global_tid(tid), None, pool[text] if registered else None, domain)
        return (*head, *ids, *[None] * (width - len(head) - len(ids)))

    rows = [
        row(PUSH_POP, name, tid, domain, start=start, end=end)
        for start, end, name, tid, domain in record.ranges
    ]
    before = min((r[0] for r in record.ranges), default=0) - 1_000_000
    for domain in {r[4] for r in record.ranges} - {0}:
        label, tid = DOMAINS[domain], who.main_tid
        rows.append(row(DOMAIN_CREATE, label, tid, domain, start=before, end=None))
        rank = f"{label} Rank {who.rank}"
        rows.append(row(THREAD_NAME, rank, tid, 0, start=before + 1, end=None))
    return rows


def _calls(record: RankRecord, pool: StringPool) -> Iterator[tuple[object, ...]]:
    tids = {tid: record.identity.global_tid(tid) for tid in {call[3] for call in record.calls}}
    for start, end, name, tid, correlation in record.calls:
        driver = 1 if name == LAUNCH_NCCL else 0
        yield (start, end, driver, tids[tid], correlation, pool[name], 0, None)


def _kernels(record: RankRecord, pool: StringPool, older: bool) -> Iterator[tuple[object, ...]]:
    who = record.identity
    pid = who.global_pid()
    green = () if older else (0,)
    shapes: dict[tuple[str, float], tuple[object, ...]] = {}
    for launched, (start, end, name, stream, corr, node, _, scale) in enumerate(record.kernels, 1):
        if (name, scale) not in shapes:
            kernel = KERNELS[name]
            names = (pool[kernel.demangled], pool[kernel.short], pool[kernel.mangled])
            grid, block = (max(1, round(kernel.grid * scale)), 1, 1), (kernel.block, 1, 1)
            memory = (0, kernel.shared_memory, 0, 250_871_808)
            shapes[name, scale] = (*names, 1, 1, kernel.registers, *grid, *block, *memory)
        place = (start, end, who.local_rank, 1, *green, stream, corr, pid)
        yield (*place, *shapes[name, scale], launched, 32_768, node, 0)


def _copies(record: RankRecord, older: bool) -> Iterator[tuple[object, ...]]:
    who = record.identity
    green = () if older else (0,)
    nothing = (None,) * 5
    for start, end, name, stream, corr, node, nbytes, _ in record.copies:
        to_device = name == "HtoD"
        kinds = (1, None, 1, 2) if to_device else (2, None, 2, 0)
        place = (start, end, who.local_rank, 1, *green, stream, corr, who.global_pid())
        yield (*place, nbytes, *kinds, *nothing, node, None)
