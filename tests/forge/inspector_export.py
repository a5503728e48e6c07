"""Writes a rank's record as NCCL Inspector would: a JSON object per line.

Made from the description in NVIDIA/nccl, plugins/profiler/inspector/README.md, and from the code of
inspector_json.cc beside it.
"""

import json
from collections import Counter
from pathlib import Path
from zlib import crc32

from tests.forge.host import DATA_PARALLEL, TENSOR_PARALLEL
from tests.forge.job import Job
from tests.forge.record import RankRecord

Line = dict[str, object]

GROUPS = {DATA_PARALLEL: "dp", TENSOR_PARALLEL: "tp"}
DUMPED = 64
"""Operations that are written at once."""


def export_inspector(
    job: Job, record: RankRecord, folder: Path, *, version: str = "v4.3", verbose: bool = True
) -> Path:
    """Write one rank's dump into a folder and give its path.

    Args:
        version: of the format: up to v4.2 each line says whose it is, from v4.3 on the first of
            each dump.
        verbose: tell when operations ran.
    """
    who = record.identity
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{who.host}-pid{who.pid}.log"
    called = {correlation: start for start, _, _, _, correlation in record.calls}
    operations: dict[int, list[Line]] = {}
    numbers: Counter[tuple[int, str]] = Counter()
    for op in sorted(record.kernels):
        start, end, name, stream, correlation, size = *op[:5], op[6]
        if not name.startswith("nccl:"):
            continue
        operation = name.removeprefix("nccl:")
        times = [_us(record, time) for time in (called.get(correlation, start), start, end)]
        operations.setdefault(stream, []).append(
            _operation(operation, numbers[stream, operation], size, times, verbose)
        )
        numbers[stream, operation] += 1
    lines: list[Line] = []
    for stream, every in operations.items():
        head = _head(job, record, stream, version)
        for first in range(0, len(every), DUMPED):
            batch = every[first : first + DUMPED]
            if version < "v4.3":
                lines += [{**head, **each} for each in batch]
            else:
                stats = {"coll_records": len(batch), "coll_dropped_total": 0}
                lines += [{**head, "dump_stats": stats}, *batch]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _us(record: RankRecord, time: int) -> int:
    return (record.clock.utc_epoch() + time) // 1000


def _head(job: Job, record: RankRecord, stream: int, version: str) -> Line:
    who = record.identity
    name = job.group_of(GROUPS[stream], who.rank)
    assert name is not None
    members = list(job.groups()[name])
    return {
        "header": {
            "id": f"0x{crc32(name.encode()):x}",
            "rank": members.index(who.rank),
            "n_ranks": len(members),
            "nnodes": 1,
        },
        "metadata": {
            "inspector_output_format_version": version,
            "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": 0,
            "hostname": who.host,
            "pid": who.pid,
        },
    }


def _operation(name: str, number: int, size: int, times: list[int], verbose: bool) -> Line:
    call, start, end = times
    traced = {
        "coll_timing_source": "kernel_gpu",
        "event_trace_ts": {
            "coll_start_ts": call,
            "coll_stop_ts": call + 5,
            "kernel_events": [
                {
                    "channel_id": channel,
                    "kernel_start_ts": start + channel,
                    "kernel_stop_ts": end - channel,
                    "kernel_record_ts": end - channel,
                }
                for channel in range(2)
            ],
        },
    }
    return {
        "coll_perf": {
            "coll": name,
            "coll_sn": number,
            "coll_msg_size_bytes": size,
            "coll_exec_time_us": end - start,
            **(traced if verbose else {}),
        }
    }
