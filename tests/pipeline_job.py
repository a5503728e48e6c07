"""A pipeline with replicas as traces of PyTorch's profiler, which name who sends to whom.

Rank `replica * stages + stage`. A step is some micro batches down and then up the stages, and an
all-reduce between the replicas of a stage. A send leaves when its buffers have taken the message;
a receive ends when the message has come. Clocks of ranks differ.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.pytorch_job import EPOCH_NS, GRADIENTS, Event

SENT_US, TRANSFER_US = 60.0, 300.0
SEND_RECEIVE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Pipeline:
    """The options of a job; times in µs. `ahead`: of each clock to that of the rank before."""

    stages: int = 3
    replicas: int = 2
    steps: int = 8
    batches: int = 4
    forward: float = 1000.0
    backward: float = 2000.0
    slow: tuple[int, ...] = ()  # need half as much more in forward
    ahead: float = 3000.0
    links: tuple[tuple[int, int], ...] = ()  # sender and receiver whose transfers take ten times
    eager: bool = False  # messages are under way before their receivers come


class _Rank:
    def __init__(self, job: Pipeline, rank: int) -> None:
        self.job, self.rank = job, rank
        self.host = self.compute = self.network = 5e6 + 40.0 * rank
        self.events: list[Event] = []
        self.number = 0

    def event(self, kind: str, name: str, begin: float, end: float, **args: Any) -> None:
        times = {"ts": round(begin, 3), "dur": round(end - begin, 3)}
        where = {"pid": 100 + self.rank, "tid": 1}
        self.events.append({"ph": "X", "cat": kind, "name": name, **where, **times, "args": args})

    def kernel(self, name: str, begin: float, end: float, stream: int, **args: Any) -> None:
        """Launched now; the device ran it from `begin` to `end`."""
        self.number += 1
        link = {"correlation": self.number}
        self.event("cuda_runtime", "cudaLaunchKernel", self.host, self.host + 3, **link)
        self.event("kernel", name, begin, end, device=0, stream=stream, **link, **args)
        self.events[-1]["pid"] = 0
        self.host += 5

    def group(self, *calls: tuple[str, int]) -> None:
        """What `batch_isend_irecv` writes before the launch of its kernel."""
        for kind, peer in calls:
            facts = {"Collective name": kind, "Dst Rank" if kind == "send" else "Src Rank": peer}
            self.event("cpu_op", "record_param_comms", self.host, self.host + 2, **facts)
            self.host += 3
        self.event("user_annotation", "nccl:coalesced", self.host - 1, self.host + 4)

    def work(self, name: str, length: float, around: str) -> None:
        begin = max(self.compute, self.host + 4)
        self.event("user_annotation", around, self.host - 1, self.host + 4)
        self.compute = begin + length
        self.kernel(name, begin, self.compute, 7)


def events_of(job: Pipeline) -> tuple[list[list[Event]], dict[tuple[int, int], list[float]]]:
    """The events of each rank; (sender, receiver) → how long each receive waited for the sender."""
    ranks = [_Rank(job, rank) for rank in range(job.stages * job.replicas)]
    waits: dict[tuple[int, int], list[float]] = {}
    for step in range(job.steps):
        opened = [each.host for each in ranks]
        sent: dict[tuple[int, int], list[float]] = {}
        waiting = [_part(each, sent, waits) for each in ranks]
        while waiting:  # until the messages are there for which the others wait
            waiting = [part for part in waiting if next(part, None) is not None]
        for stage in range(job.stages):
            members = ranks[stage :: job.stages]
            end = max(each.compute for each in members) + 400
            for each in members:
                group = json.dumps([other.rank for other in members])
                facts = {"Collective name": "allreduce", "Process Group Name": str(stage + 1)}
                facts["Process Group Ranks"] = group
                begin, each.host = each.compute + 2, each.host + 5
                each.event("user_annotation", "nccl:all_reduce", each.host - 1, each.host + 4)
                each.kernel(GRADIENTS, begin, end, 20, **facts)
                each.compute = end + 1
                each.work("adam", 300, "Optimizer.step#Adam.step")
        for each, begin in zip(ranks, opened, strict=True):
            each.event("cuda_runtime", "cudaStreamSynchronize", each.host, each.compute + 3)
            each.host = each.compute + 5
            each.event("user_annotation", f"ProfilerStep#{step}", begin, each.host)
            each.host += 2
    return [each.events for each in ranks], waits


def _part(
    each: _Rank,
    sent: dict[tuple[int, int], list[float]],
    waits: dict[tuple[int, int], list[float]],
) -> Iterator[bool]:
    """A step of a rank; yields where it waits for a message that has not been sent."""
    job, rank = each.job, each.rank
    stage = rank % job.stages
    extra = job.forward / 2 if rank in job.slow else 0.0
    up = rank - 1 if stage else None
    down = rank + 1 if stage < job.stages - 1 else None
    for source, target, name, length in (
        (up, down, "forward", job.forward + extra),
        (down, up, "backward", job.backward),
    ):
        for batch in range(job.batches):
            if source is not None:
                while len(sent.get((source, rank), ())) < batch + 1:
                    yield True
                message = sent[source, rank][batch]
                each.group(("recv", source))
                begin = max(each.network, each.host + 2)
                slower = 10 if (source, rank) in job.links else 1
                end = max(begin, message) + TRANSFER_US * slower
                if job.eager:
                    end = max(begin, message + TRANSFER_US * slower) + SENT_US / 3
                waits.setdefault((source, rank), []).append(max(0.0, message - begin))
                each.kernel(SEND_RECEIVE, begin, end, 17)
                each.network, each.compute = end + 1, max(each.compute, end + 2)
            each.work(f"gemm_{name}", length, name)
            if target is not None:
                each.group(("send", target))
                begin = max(each.network, each.compute + 2)
                sent.setdefault((rank, target), []).append(begin)
                each.kernel(SEND_RECEIVE, begin, begin + SENT_US, 17)
                each.network = begin + SENT_US + 1


def step_ends(job: Pipeline) -> list[list[float]]:
    """When each step of each rank ends, µs."""
    ranks, _ = events_of(job)
    steps = ([e for e in events if e["name"].startswith("ProfilerStep")] for events in ranks)
    return [[each["ts"] + each["dur"] for each in of_rank] for of_rank in steps]


def write(folder: Path, job: Pipeline) -> dict[tuple[int, int], list[float]]:
    """The traces in a folder; returns the true waits, as `events_of`."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks, waits = events_of(job)
    for rank, events in enumerate(ranks):
        trace = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": len(ranks)},
            "baseTimeNanoseconds": EPOCH_NS + round(1000 * job.ahead * rank),
            "traceEvents": events,
        }
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(trace))
    return waits
