"""Reports of many shapes: `python -m tests.bench.shapes SHAPE FOLDER [RANKS]`.

`reports` enlarges forged reports, which all have one shape. These are written from the schema of
nsys alone: each shape differs from the plain one in what the time of a reader may depend on.
"""

import argparse
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.forge.schema import create

Numbers = NDArray[np.int64]

KERNELS, COPIES = 1_020_000, 5_000
"""Of a report, in all its iterations: those of a capture that the reader was found slow on."""

SPACING_NS, DELAY_NS = 6_000, 20_000
"""From one launch to the next, and from a launch to its kernel's start."""

BUCKETS = 4
"""All-reduces of an iteration, during backward, on a stream of their own."""

PID, PACKED = 4000, 1 << 48
"""The process, and what nsys adds to packed ids."""

TABLES = (
    "StringIds", "PROCESSES", "TARGET_INFO_SESSION_START_TIME", "TARGET_INFO_SYSTEM_ENV",
    "META_DATA_EXPORT", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """What a report is like."""

    kernels: int = KERNELS  # launches of all iterations
    iterations: int = 500
    names: int = 10  # of kernels
    streams: int = 2  # that compute
    threads: int = 2  # that launch: the first one backward's kernels only if it is alone
    ranges: int = 41_000  # inside phases, in all iterations
    others: float = 0.005  # calls that launch nothing, for each that does
    unrecorded: float = 0.0  # share of the launches whose kernels have no record
    order: str = "start"  # of the rows; `owner`: stream after stream; `none`
    pooled: bool = True  # texts of ranges are in StringIds


PLAIN = Shape()

SHAPES = {
    "plain": PLAIN,
    "50 iterations": replace(PLAIN, iterations=50),
    "5,000 iterations": replace(PLAIN, iterations=5_000),
    "1,000 names": replace(PLAIN, names=1_000),
    "5,000 iterations, 1,000 names": replace(PLAIN, iterations=5_000, names=1_000),
    "one stream, one thread": replace(PLAIN, streams=1, threads=1),
    "16 streams, 8 threads": replace(PLAIN, streams=16, threads=8),
    "twice as many calls": replace(PLAIN, others=1.0),
    "launches without kernels": replace(PLAIN, unrecorded=0.005),
    "a range for each kernel": replace(PLAIN, ranges=KERNELS),
    "their texts in the rows": replace(PLAIN, ranges=KERNELS, pooled=False),
    "rows by stream": replace(PLAIN, order="owner"),
    "rows in no order": replace(PLAIN, order="none"),
}


@dataclass(slots=True)
class _Table:
    """Rows of a table in the order of the file."""

    name: str
    columns: dict[str, object] = field(default_factory=dict)  # a number or text, or one per row

    def insert(self, file: sqlite3.Connection, shape: Shape, owner: str) -> None:
        """Write the rows; `owner` is the column that comes first where rows are by owner."""
        start = np.asarray(self.columns["start"])
        order = np.argsort(start, kind="stable")
        if shape.order == "owner":
            order = np.lexsort((start, self.columns[owner]))
        elif shape.order == "none":
            order = np.random.default_rng(1).permutation(start.size)
        many = {name: each for name, each in self.columns.items() if isinstance(each, np.ndarray)}
        values = ["?" if name in many else repr(each) for name, each in self.columns.items()]
        names = ", ".join(f'"{name}"' for name in self.columns)
        rows = zip(*(each[order].tolist() for each in many.values()), strict=True)
        file.executemany(f"INSERT INTO {self.name} ({names}) VALUES ({', '.join(values)})", rows)


@dataclass(frozen=True, slots=True)
class _Launches:
    """The launches of kernels, in the order of time."""

    iteration: Numbers
    nth: Numbers  # within the iteration
    start: Numbers
    thread: Numbers
    stream: Numbers
    talks: NDArray[np.bool_]  # whether the kernel is an all-reduce


def shaped_reports(shape: Shape, folder: Path, ranks: int) -> list[Path]:
    """Reports of a job in rank order: one is made, the others are copies with other facts."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"report_rank_{rank}.sqlite" for rank in range(ranks)]
    _write(shape, paths[0])
    for rank, path in enumerate(paths[1:], 1):
        shutil.copy(paths[0], path)
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 1")
            file.execute(f"UPDATE PROCESSES SET name = 'python{rank}'")
    return paths


def _write(shape: Shape, path: Path) -> None:
    path.unlink(missing_ok=True)
    texts: dict[str, int] = {}
    with closing(sqlite3.connect(path)) as file:
        for setting in ("synchronous = OFF", "journal_mode = OFF"):
            file.execute(f"PRAGMA {setting}")
        with file:
            for name in TABLES:
                file.execute(create(name, "2023.4"))
            launches = _launches(shape)
            _ranges(shape, launches, texts).insert(file, shape, "globalTid")
            _calls(shape, launches, texts).insert(file, shape, "globalTid")
            for table in _device_work(shape, launches, texts):
                table.insert(file, shape, "streamId")
            _facts(file)
            rows = ((number, text) for text, number in texts.items())
            file.executemany("INSERT INTO StringIds VALUES (?, ?)", rows)


def _launches(shape: Shape) -> _Launches:
    each = shape.kernels // shape.iterations
    nth = np.tile(np.arange(each), shape.iterations)
    iteration = np.repeat(np.arange(shape.iterations), each)
    start = iteration * _length(shape) + (nth + each // 20) * SPACING_NS
    backward = _is_backward(nth, each)
    thread = np.where(backward & (shape.threads > 1), 1 + nth % max(shape.threads - 1, 1), 0)
    talks = backward & (nth % max(each // 2 // BUCKETS, 1) == 0)
    stream = np.where(talks, 20, 7 + nth % shape.streams)
    return _Launches(iteration, nth, start, thread, stream, talks)


def _length(shape: Shape) -> int:
    """Length of an iteration, ns: a tenth of it is without kernels."""
    return shape.kernels // shape.iterations * SPACING_NS * 11 // 10


def _is_backward(nth: Numbers, each: int) -> NDArray[np.bool_]:
    return np.asarray((nth >= each * 3 // 10) & (nth < each * 8 // 10))


def _ids(texts: dict[str, int], names: Sequence[str]) -> Numbers:
    return np.array([texts.setdefault(name, len(texts) + 1) for name in names])


def _tid(thread: Numbers) -> Numbers:
    return PACKED + (PID << 24) + PID + thread


def _calls(shape: Shape, launches: _Launches, texts: dict[str, int]) -> _Table:
    """A call for each launch, and others between them."""
    launch, record, wait = _ids(
        texts, ("cudaLaunchKernel_v7000", "cudaEventRecord_v3020", "cudaDeviceSynchronize_v3020")
    )
    chosen = np.linspace(0, shape.kernels - 1, round(shape.others * shape.kernels)).astype(np.int64)
    chosen = chosen[chosen < launches.start.size]
    begin = np.arange(shape.iterations) * _length(shape)
    start = np.concatenate((launches.start, launches.start[chosen] + 3_000, begin + 1_000))
    size = (launches.start.size, chosen.size, begin.size)
    zeros = np.zeros(shape.iterations, np.int64)
    return _Table(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        {
            "start": start,
            "end": start + 2_000,
            "eventClass": 0,
            "globalTid": _tid(np.concatenate((launches.thread, launches.thread[chosen], zeros))),
            "correlationId": np.arange(start.size) + 1,
            "nameId": np.repeat([launch, record, wait], size),
            "returnValue": 0,
        },
    )


def _device_work(shape: Shape, launches: _Launches, texts: dict[str, int]) -> list[_Table]:
    """Kernels, a little different in length, and copies that host calls launched."""
    random = np.random.default_rng(0)
    names = [f"kernel_{number}" for number in range(shape.names)]
    short = _ids(texts, [*names, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"])
    full = _ids(texts, [f"void {name}<float, 128>(float*, int)" for name in names])
    full = np.append(full, short[-1])
    place = np.where(launches.talks, shape.names, launches.nth % shape.names)
    length = random.integers(40, 90, place.size) * SPACING_NS * shape.streams // 100
    start = launches.start + DELAY_NS
    there = random.random(place.size) >= shape.unrecorded
    common = {"deviceId": 0, "contextId": 1, "globalPid": PACKED + (PID << 24)}
    kernels = {
        "start": start,
        "end": start + np.where(launches.talks, 20 * SPACING_NS, length),
        "streamId": launches.stream,
        "correlationId": np.arange(place.size) + 1,
        "demangledName": full[place],
        "shortName": short[place],
        "gridX": 64 + launches.nth % 7,
    }
    ones = dict.fromkeys(("gridY", "gridZ", "blockY", "blockZ", "launchType", "cacheConfig"), 1)
    zeros = dict.fromkeys(
        ("staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread", "localMemoryTotal"), 0
    )
    more = {"registersPerThread": 32, "blockX": 256, "gridId": 1, **ones, **zeros}
    recorded = {name: each[there] for name, each in kernels.items()}
    copied = np.arange(COPIES) * (launches.start.size // COPIES)
    begun = launches.start[copied] + DELAY_NS
    copies = {
        "start": begun,
        "end": begun + 500,
        "streamId": np.full(COPIES, 7),
        "correlationId": copied + 1,
        "bytes": 4096,
        "copyKind": 1,
    }
    return [
        _Table("CUPTI_ACTIVITY_KIND_KERNEL", recorded | common | more),
        _Table("CUPTI_ACTIVITY_KIND_MEMCPY", copies | common),
    ]


def _ranges(shape: Shape, launches: _Launches, texts: dict[str, int]) -> _Table:
    """Iterations, their phases, and operators inside phases on the thread that launches."""
    each, length = shape.kernels // shape.iterations, _length(shape)
    begin = np.arange(shape.iterations) * length
    step = SPACING_NS * each
    spans = {
        "data": (0, step // 20 - 2_000),
        "forward": (step // 20 - 1_000, step * 7 // 20 - 1_000),
        "backward": (step * 7 // 20, step * 17 // 20 - 1_000),
        "optimizer": (step * 17 // 20, step * 21 // 20 + 1_000),
    }
    names = [f"iteration {number}" for number in range(shape.iterations)]
    start, end = [begin], [begin + length - 500]
    for phase, (low, high) in spans.items():
        names += [phase] * shape.iterations
        start.append(begin + low)
        end.append(begin + high)
    chosen = np.linspace(0, launches.start.size - 1, shape.ranges).astype(np.int64)
    names += [f"aten::op_{number}" for number in (chosen % 97).tolist()]
    start.append(launches.start[chosen] - 300)
    end.append(launches.start[chosen] + 2_500)
    zeros = np.zeros(len(names) - chosen.size, np.int64)
    text: dict[str, object] = {"text": np.array(names, dtype=object)}
    if shape.pooled:
        text = {"textId": _ids(texts, names)}
    return _Table(
        "NVTX_EVENTS",
        {
            "start": np.concatenate(start),
            "end": np.concatenate(end),
            "eventType": 59,
            "globalTid": _tid(np.concatenate((zeros, launches.thread[chosen]))),
            "domainId": 0,
            **text,
        },
    )


def _facts(file: sqlite3.Connection) -> None:
    """What nsys tells of the process, the machine and the export."""
    began = (1_760_000_000_000_000_000, "2025-10-09T08:53:20", "2025-10-09T08:53:20")
    file.execute("INSERT INTO PROCESSES VALUES (?, ?, 'python')", (PACKED + (PID << 24), PID))
    file.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, ?, ?)", began)
    file.execute(
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, 'Local (CLI)', 'Hostname', 619, 'node0')",
        (PACKED,),
    )
    file.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.7.2')")
    file.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2023.4.4.54')")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.shapes", description=__doc__)
    parser.add_argument("shape", choices=SHAPES, metavar=f"SHAPE ({' | '.join(SHAPES)})")
    parser.add_argument("folder", type=Path)
    parser.add_argument("ranks", type=int, nargs="?", default=1)
    args = parser.parse_args(arguments)
    for path in shaped_reports(SHAPES[args.shape], args.folder, args.ranks):
        print(f"{path}: {path.stat().st_size / 1e6:,.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
