"""Writes a rank's record as the PyTorch profiler would: Kineto JSON, packed if its name says so."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.forge.host import DATA_PARALLEL, TENSOR_PARALLEL
from tests.forge.job import Job
from tests.forge.names import KERNELS
from tests.forge.record import DeviceOp, RankRecord

Event = dict[str, object]

BASE_NS = 1_790_857_026_000_000_000
"""Newer versions count from a moment a few months back, so that doubles keep the nanoseconds."""

FILE_NAME = "trace-{rank}-of-{world}.json"
GROUPS = {DATA_PARALLEL: "dp", TENSOR_PARALLEL: "tp"}
FLOAT_BYTES = 4


def export_kineto(
    job: Job, record: RankRecord, folder: Path, file_name: str = FILE_NAME, *, meta: bool = True
) -> Path:
    """Write one rank's trace into a folder and give its path.

    Args:
        file_name: format string over `rank`, `world`, `host`, `pid`.
        meta: tell of the rank in `distributedInfo`, and of process groups at NCCL kernels.
    """
    who = record.identity
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name.format(
        rank=who.rank, world=who.world_size, host=who.host, pid=who.pid
    )
    document: Event = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "a device"}]}
    if meta:
        document["distributedInfo"] = {
            "backend": "nccl",
            "rank": who.rank,
            "world_size": who.world_size,
        }
        document["host_name"] = who.host
    document |= {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": list(_events(job, record, meta)),
        "traceName": str(path),
    }
    text = re.sub(r'"(\d+\.\d{3})us"', r"\1", json.dumps(document, indent=1))
    path.write_bytes(gzip.compress(text.encode(), 1) if path.suffix == ".gz" else text.encode())
    return path


def _event(category: str, name: str, pid: int, tid: int, **more: object) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **more}


def _times(record: RankRecord, start: int, end: int) -> Event:
    since = record.clock.utc_epoch() + start - BASE_NS
    return {"ts": _us(since), "dur": _us(end - start)}


def _us(ns: int) -> str:
    """Marked for `export_kineto` to take the quotes off: a float would lose digits."""
    return f"{ns // 1000}.{ns % 1000:03d}us"


def _events(job: Job, record: RankRecord, meta: bool) -> Iterator[Event]:
    who = record.identity
    yield {"ph": "M", "name": "process_name", "pid": who.pid, "tid": 0, "args": {"name": "python"}}
    for start, end, name, tid, _ in record.ranges:
        times = _times(record, start, end)
        yield _event("user_annotation", name, who.pid, tid, **times, args={"Ev Idx": 0})
        # Annotations stand a second time over the device work that ran in them.
        yield _event("gpu_user_annotation", name, who.local_rank, 7, **times, args={})
    for start, end, name, tid, correlation in record.calls:
        times, called = _times(record, start, end), re.sub(r"_v\d+$", "", name)
        ids = {"External id": correlation, "cbid": 211, "correlation": correlation}
        yield _event("cpu_op", "aten::op", who.pid, tid, **times, args={"External id": correlation})
        yield _event("cuda_runtime", called, who.pid, tid, **times, args=ids)
        yield {"ph": "s", "id": correlation, "pid": who.pid, "tid": tid, "ts": times["ts"],
               "cat": "ac2g", "name": "ac2g"}  # fmt: skip
    for op in record.kernels:
        kernel = KERNELS[op[2]]
        grid = max(1, round(kernel.grid * op[7]))
        shape = {"grid": [grid, 1, 1], "block": [kernel.block, 1, 1]}
        args = {**_place(record, op), **shape, **(_group(job, record, op) if meta else {})}
        times = _times(record, op[0], op[1])
        yield _event("kernel", kernel.demangled, who.local_rank, op[3], **times, args=args)
    for op in record.copies:
        args = {**_place(record, op), "bytes": op[6], "memory bandwidth (GB/s)": 12.5}
        times = _times(record, op[0], op[1])
        yield _event("gpu_memcpy", f"Memcpy {op[2]}", who.local_rank, op[3], **times, args=args)


def _place(record: RankRecord, op: DeviceOp) -> Event:
    device = record.identity.local_rank
    return {"device": device, "context": 1, "stream": op[3], "correlation": op[4]}


def _group(job: Job, record: RankRecord, op: DeviceOp) -> Event:
    """What NCCL kernels state of their process group."""
    kind = GROUPS.get(op[3])
    name = None if kind is None else job.group_of(kind, record.identity.rank)
    if name is None:
        return {}
    members = list(job.groups()[name])
    return {
        "Collective name": op[2],
        "In msg nelems": op[6] // FLOAT_BYTES,
        "Out msg nelems": op[6] // FLOAT_BYTES,
        "Group size": len(members),
        "dtype": "Float",
        "Process Group Name": str(list(job.groups()).index(name)),
        "Process Group Description": name,
        "Process Group Ranks": str(members),
    }
