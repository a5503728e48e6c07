"""Small data-parallel jobs as traces of PyTorch's profiler: what a test says of them is true.

A step of a rank: 2 ms of loading, then kernels of forward (5 ms), backward (10 ms, launched by
autograd's thread) and optimizer (2 ms). After each of three parts of forward and backward all ranks
meet in a collective of the tensor-parallel kind, and after backward in that of the gradients. The
slow rank needs 4 ms more in backward, or pauses before the optimizer of every third step.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EPOCH_NS = 1_700_000_000_000_000_000
GRADIENTS = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LOAD_US, OPTIMIZER_US = 2000.0, 2000.0
PARTS = {"forward": 5000.0, "backward": 10_000.0}
EXTRA_US = 4000.0

Event = dict[str, Any]
Edit = Callable[[int, dict[str, Any]], None]


@dataclass(frozen=True)
class Job:
    """What can be told of a job."""

    ranks: int = 4
    steps: int = 12
    slow: int = 2
    slow_in: str = "backward"  # or load, forward, other
    between: str | None = GRADIENTS  # kernel of the collectives between layers; None: none
    operator: str | None = "nccl:all_reduce"  # around their launches; None: none
    stated: str | None = "allreduce"  # what the trace says that they are; None: nothing
    operation: str = "allreduce"  # what it says of the gradients' collective
    gradients: str = GRADIENTS
    first: int = 0  # number of the first step


def write(
    folder: Path,
    job: Job,
    edit: Edit = lambda _rank, _trace: None,
    name: str = "rank{}.pt.trace.json",
) -> Path:
    """The traces in a folder; `edit` may change each before it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, events in enumerate(_events(job)):
        trace: dict[str, Any] = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": job.ranks},
            "baseTimeNanoseconds": EPOCH_NS,
            "traceEvents": events,
        }
        edit(rank, trace)
        (folder / name.format(rank)).write_text(json.dumps(trace))
    return folder


def without(*starts: str) -> Edit:
    """An edit that leaves out the events whose names begin so."""

    def edit(_rank: int, trace: dict[str, Any]) -> None:
        events = trace["traceEvents"]
        trace["traceEvents"] = [each for each in events if not each["name"].startswith(starts)]

    return edit


def kernels(trace: dict[str, Any]) -> list[Event]:
    """The events of kernels."""
    return [each for each in trace["traceEvents"] if each["cat"] == "kernel"]


class _Rank:
    """One rank while its events are made."""

    def __init__(self, rank: int) -> None:
        self.rank, self.number = rank, 0
        self.host, self.device = 5e6, 5e6
        self.events: list[Event] = []

    def event(
        self, kind: str, name: str, begin: float, end: float, thread: int, **args: Any
    ) -> None:
        """Add an event of the host's."""
        where = {"pid": 100 + self.rank, "tid": thread}
        times = {"ts": round(begin, 3), "dur": round(end - begin, 3)}
        self.events.append({"ph": "X", "cat": kind, "name": name, **where, **times, "args": args})

    def kernel(
        self, name: str, end: float, thread: int, around: str | None, stream: int = 7, **args: Any
    ) -> None:
        """Launch a kernel that runs from when the device is free until `end`."""
        self.number += 1
        if around is not None:
            self.event("cpu_op", around, self.host - 2, self.host + 6, thread)
        link = {"correlation": self.number}
        self.event("cuda_runtime", "cudaLaunchKernel", self.host, self.host + 4, thread, **link)
        self.event(
            "kernel", name, self.device, end, stream, device=0, stream=stream, **link, **args
        )
        self.events[-1]["pid"] = 0
        self.host, self.device = self.host + 10, end + 1


def _events(job: Job) -> list[list[Event]]:
    draw = random.Random(1)
    every = [_Rank(rank) for rank in range(job.ranks)]
    calls = {"0": 0, "1": 0}

    def meet(name: str, group: str, around: str | None, stated: str | None, took: float) -> None:
        until = max(each.device for each in every) + took
        calls[group] += 1
        for each in every:
            facts = {} if stated is None else _facts(job, group, calls[group], stated)
            stream = 20 if group == "0" else 7
            each.kernel(name, until + draw.uniform(0, 2), 2, around, stream, **facts)

    for step in range(job.first, job.first + job.steps):
        for each in every:
            late = EXTRA_US if each.rank == job.slow and job.slow_in == "load" else 0
            each.host += LOAD_US + late + draw.uniform(0, 20)
        opened = [each.host for each in every]
        for each in every:
            each.device = each.host + 60
            each.host += 40
        for part, length in PARTS.items():
            begun = [each.host for each in every]
            for _ in range(3):
                for each in every:
                    extra = EXTRA_US if each.rank == job.slow and part == job.slow_in else 0
                    need = (length + extra) / 3 * draw.uniform(0.99, 1.01)
                    backward = part == "backward"
                    around = "autograd::engine::evaluate_function: MmBackward0"
                    each.kernel(
                        f"gemm_{part}",
                        each.device + need,
                        2 if backward else 1,
                        around if backward else "aten::linear",
                    )
                if job.between is not None:
                    meet(job.between, "1", job.operator, job.stated, 60)
            if part == "forward":
                for each, begin in zip(every, begun, strict=True):
                    name = "DistributedDataParallel.forward"
                    each.event("user_annotation", name, begin - 5, each.host - 3, 1)
        meet(job.gradients, "0", "nccl:all_reduce", job.operation, 400)
        for each, begin in zip(every, opened, strict=True):
            if each.rank == job.slow and job.slow_in == "other" and step % 3 == 0:
                each.host = each.device + EXTRA_US
                each.device = each.host
            launched = each.host
            each.kernel("multi_tensor_apply_kernel", each.device + OPTIMIZER_US, 1, "aten::add_")
            each.event("user_annotation", "Optimizer.step#SGD.step", launched - 5, each.host, 1)
            end = each.device + 5
            each.event("cuda_runtime", "cudaStreamSynchronize", each.host + 5, end, 1)
            each.event("user_annotation", f"ProfilerStep#{step}", begin, end + 5, 1)
            each.host = end + 10
    return [each.events for each in every]


def _facts(job: Job, group: str, number: int, stated: str) -> dict[str, Any]:
    members = json.dumps([*range(job.ranks)])
    return {
        "Collective name": stated,
        "In msg nelems": 1 << 20,
        "dtype": "Float",
        "Process Group Name": group,
        "Process Group Ranks": members,
        "Seq": number,
    }
