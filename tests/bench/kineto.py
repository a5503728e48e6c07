"""`python -m tests.bench.kineto [MB ...]`: ways to read a large PyTorch profiler trace.

Each way runs in a process of its own on a made-up trace: seconds of CPU, seconds, peak memory.
Those marked (loads) only load the document; the others also take the columns out that rankscope
needs. pip install orjson pysimdjson ijson for all of them; absent ones are left out.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rankscope.sources.kineto import reader
from rankscope.sources.kineto.json_stream import OPENING, _last_borders
from rankscope.sources.kineto.limits import LIMITS

FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur")
ARGUMENTS = ("correlation", "External id", "device", "context", "stream", "bytes", "grid")
NAMES = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>)",
    "volta_sgemm_64x64_tn",
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 32, true, 1>(float, float, float)",
)
HEAD = """{
  "schemaVersion": 1,
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
  "baseTimeNanoseconds": 1711964646000000000,
  "traceEvents": [
"""
OPERATION = """  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::add_", "pid": 910249, "tid": 910249,
    "ts": {ts}, "dur": 9.012,
    "args": {{
      "External id": {n}, "Record function id": {n}, "Sequence number": {n}, "Ev Idx": {n}
    }}
  }},
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 910249, "tid": 910249,
    "ts": {ts}, "dur": 4.123,
    "args": {{
      "External id": {n}, "cbid": 211, "correlation": {n}
    }}
  }},
  {{
    "ph": "s", "id": {n}, "pid": 910249, "tid": 910249, "ts": {ts},
    "cat": "ac2g", "name": "ac2g"
  }},
  {{
    "ph": "f", "id": {n}, "pid": 0, "tid": 7, "ts": {ts},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},
  {{
    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7,
    "ts": {ts}, "dur": 1.5,
    "args": {{
      "External id": {n}, "queued": 0, "device": 0, "context": 1,
      "stream": 7, "correlation": {n},
      "registers per thread": 126, "shared memory": 8704, "blocks per SM": 3.764706,
      "warps per SM": 7.529412,
      "grid": [16, 8, 2], "block": [64, 1, 1],
      "est. achieved occupancy %": 24
    }}
  }},
"""
END = '  {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 4459676522690}\n]}\n'


def make(path: Path, megabytes: int) -> None:
    """Write a trace of about that size: operators, launches, flows and kernels."""
    with path.open("w") as file:
        file.write(HEAD)
        n = 0
        while file.tell() < megabytes * 10**6:
            block = range(n, n + 2000)
            file.writelines(
                OPERATION.format(
                    n=i, ts=f"{4458676522690 + 5 * i}.{i % 1000:03d}", name=NAMES[i % 3]
                )
                for i in block
            )
            n = block.stop
        file.write(END)


def with_json(path: Path) -> None:
    with path.open() as file:
        json.load(file)


def with_orjson(path: Path) -> None:
    import orjson

    orjson.loads(path.read_bytes())


def with_simdjson(path: Path) -> None:
    import simdjson

    _columns(simdjson.Parser().load(str(path))["traceEvents"])


def with_ijson(path: Path) -> None:
    import ijson

    with path.open("rb") as file:
        _columns(ijson.items(file, "traceEvents.item", use_float=True))


def with_orjson_in_batches(path: Path) -> None:
    import orjson

    for batch in _batches(path):
        _columns(orjson.loads(batch))


def with_polars_in_batches(path: Path) -> None:
    """Floats have no room for nanoseconds: times are not exact."""
    import polars as pl

    types: dict[str, Any] = {**dict.fromkeys(FIELDS, pl.String), "ts": pl.Float64}
    args = {**dict.fromkeys(ARGUMENTS, pl.Int64), "grid": pl.List(pl.Int64)}
    types |= {"dur": pl.Float64, "args": pl.Struct(args)}
    for batch in _batches(path):
        pl.read_json(batch, schema=types)


def with_rankscope(path: Path) -> None:
    reader.read(path)


WAYS: dict[str, tuple[str | None, Callable[[Path], None]]] = {
    "json.load (loads)": (None, with_json),
    "orjson.loads (loads)": ("orjson", with_orjson),
    "simdjson": ("simdjson", with_simdjson),
    "ijson": ("ijson", with_ijson),
    "orjson in batches": ("orjson", with_orjson_in_batches),
    "polars in batches": (None, with_polars_in_batches),
    "rankscope (msgspec in batches)": (None, with_rankscope),
}


def _columns(events: Iterable[Any]) -> None:
    """Lists of what is needed of events, which are mappings."""
    columns: list[list[Any]] = [[] for _ in FIELDS + ARGUMENTS]
    for event in events:
        args = event.get("args") or {}
        for column, field in zip(columns, FIELDS, strict=False):
            column.append(event.get(field))
        for column, field in zip(columns[len(FIELDS) :], ARGUMENTS, strict=True):
            column.append(args.get(field))


def _batches(path: Path) -> Iterable[bytes]:
    """JSON lists of events, cut like the reader cuts them; the few after the last border not."""
    with path.open("rb") as file:
        data = file.read(LIMITS.chunk_bytes)
        found = OPENING.search(data)
        assert found
        data = data[found.end() :]
        while more := file.read(LIMITS.chunk_bytes):
            data += more
            border = _last_borders(data)[0]
            yield b"[" + data[:border] + b"]"
            data = data[border + 1 :]


def main(arguments: list[str]) -> None:
    """Measure all ways, or run one."""
    if arguments[:1] == ["--one"]:
        began, cpu = time.perf_counter(), time.process_time()
        WAYS[arguments[1]][1](Path(arguments[2]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        spent = time.process_time() - cpu
        print(f"{spent:8.1f} {time.perf_counter() - began:8.1f} {peak:10.0f}  {arguments[1]}")
        return
    for megabytes in map(int, arguments or ["200", "1000"]):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace_rank_0.json"
            make(path, megabytes)
            print(f"{path.stat().st_size / 1e6:.0f} MB\n   CPU s  elapsed    peak MB")
            for name, (needs, _) in WAYS.items():
                if needs is None or find_spec(needs):
                    command = [sys.executable, "-m", "tests.bench.kineto", "--one", name, str(path)]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    failed = f"failed ({done.returncode})  {name}"
                    print(failed if done.returncode else done.stdout.rstrip(), flush=True)


if __name__ == "__main__":
    os.nice(5)
    main(sys.argv[1:])
