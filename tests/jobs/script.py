"""Writes a rank's program, iteration by iteration, with its noise and what is planted."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.jobs.draws import generator
from tests.jobs.job import Job, Plant
from tests.jobs.names import NCCL
from tests.jobs.program import Code, Instruction

COMPUTE, COPIES, EXTRA = 7, 13, 15
"""Streams; those of communicators have numbers from 20 on."""

MAIN, AUTOGRAD = 0, 1
DRAWS = 2_048

FUNCTIONS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
}
"""Operations → NCCL's functions."""


class Script:
    """One rank's host program under construction.

    Durations that are given are those of an undisturbed rank. The draws of an iteration are used
    in order, so a plant must not change the number of calls.
    """

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank, self.model = job, rank, job.model
        self.iteration = 0
        self.steps: list[Instruction] = []
        self.members = {name: ranks for name, ranks in job.groups.items() if rank in ranks}
        self._streams = {name: 20 + 4 * place for place, name in enumerate(sorted(self.members))}
        self._plants = [plant for plant in job.plants if plant.what != "link"]
        self._speeds = self._speed()
        self._device = self._hosted = self._tokens = 1.0
        self._stalls: list[Plant] = []
        self._z: list[float] = []
        self._next = 0

    def program(self) -> Iterator[list[Instruction]]:
        """The instructions of each iteration in turn."""
        for iteration in range(self.job.iterations):
            self._begin(iteration)
            self.job.step(self, iteration)
            yield self.steps

    def comm(self, kind: str) -> str | None:
        """The rank's communicator whose name begins so."""
        return next((name for name in self.members if name.startswith(kind)), None)

    def stream_of(self, comm: str) -> int:
        """The stream on which a communicator's kernels run."""
        return self._streams[comm]

    # ------------------------------------------------------------------ instructions

    def push(self, name: str) -> None:
        """Open a range on the running thread."""
        self.steps.append((Code.PUSH, name))

    def pop(self, payload: str | None = None) -> None:
        """Close the innermost range."""
        self.steps.append((Code.POP, payload))

    def work(self, ns: float) -> None:
        """Work of the host: Python, mostly."""
        self.steps.append((Code.WORK, self._host(ns)))

    def stall(self, phase: str) -> None:
        """Where stalls of a phase fall."""
        extra = sum(
            plant.extra_of(self.rank, self.iteration)
            for plant in self._stalls
            if plant.phase == phase
        )
        if extra:
            self.steps.append((Code.WORK, extra))

    def load(self, ns: float) -> None:
        """The host loads a batch itself."""
        self.steps.append((Code.WORK, self._host(ns) + self._extra("load")))

    def fetch(self, ns: float, ahead: int = 2) -> None:
        """Take a batch that workers make in advance, in `ns` each."""
        produce = self._host(ns) + self._extra("produce")
        self.steps.append((Code.FETCH, produce, ahead))
        self.work(60_000)
        extra = self._extra("load")
        if extra:
            self.steps.append((Code.WORK, extra))

    def kernel(
        self,
        name: str,
        ns: float,
        *,
        stream: int = COMPUTE,
        python: int = 4_000,
        scaled: bool = False,
        share: float = 1.0,
    ) -> None:
        """Launch a kernel; `scaled` ones have as much to do as the batch is long.

        `share` is a further factor of what there is to do, and of the grid.
        """
        more = (self._tokens if scaled else 1.0) * share
        grid = max(1, round(ns * more / 90))
        noise = 1.0 + self.job.noise.kernel * self._draw()
        lasts = ns * more * max(0.5, noise) * self._device
        self.steps.append((Code.KERNEL, name, lasts, grid, stream, *self._launch(python)))

    def copy(self, kind: str, nbytes: int, ns: float, stream: int = COMPUTE) -> None:
        """Launch a copy: `HtoD` or `DtoH`."""
        lasts = ns * (1.0 + 0.02 * self._draw())
        self.steps.append((Code.COPY, kind, nbytes, lasts, stream, *self._launch(5_000)))

    def edge(self, source: int, target: int) -> None:
        """What is launched onto a stream from here on waits for what another one holds."""
        if source != target:
            self.steps.append((Code.EDGE, source, target))

    def note(self, slot: str, stream: int) -> None:
        """Record an event: what a stream holds by now."""
        self.steps.append((Code.NOTE, slot, stream))

    def after(self, slot: str, stream: int) -> None:
        """What is launched onto a stream from here on waits for a recorded event."""
        self.steps.append((Code.AFTER, slot, stream))

    def until(self, slot: str) -> None:
        """The host waits for a recorded event."""
        self.steps.append((Code.AWAIT, slot))

    def collective(self, comm: str, operation: str, nbytes: int, stream: int | None = None) -> None:
        """Launch a collective onto its communicator's stream, or onto another."""
        where = self._streams[comm] if stream is None else stream
        if operation == "all_to_all":
            self._group(comm, nbytes)
        elif self.job.report.payload:
            self.push(f"nccl{FUNCTIONS[operation]}")
        launch = self._launch(7_000)
        name = NCCL[operation]
        self.steps.append((Code.COLLECTIVE, comm, name, operation, nbytes, where, *launch))
        if self.job.report.payload:
            self.pop(None if operation == "all_to_all" else self._payload(comm, nbytes))

    def exchange(self, comm: str, parts: list[tuple[str, int, int]]) -> None:
        """Launch a group of `("send" | "recv", peer, bytes)` as one kernel."""
        if self.job.report.payload:
            self._mark("ncclGroupStart")
            for direction, _, nbytes in parts:
                name = "ncclSend" if direction == "send" else "ncclRecv"
                self._mark(name, self._payload(comm, nbytes))
            self.push("ncclGroupEnd")
        launch = self._launch(9_000)
        stream = self._streams[comm]
        self.steps.append((Code.EXCHANGE, comm, NCCL["send_recv"], parts, stream, *launch))
        if self.job.report.payload:
            self.pop()

    def joined(self, comm: str, operation: str, nbytes: int) -> None:
        """A collective in line with the compute stream, which waits for it."""
        stream = self._streams[comm]
        self.edge(COMPUTE, stream)
        self.collective(comm, operation, nbytes)
        self.edge(stream, COMPUTE)

    def thread(self, number: int) -> None:
        """What follows runs on another thread, while the one before waits for it."""
        self.steps.append((Code.THREAD, number))

    def sync(self, stream: int | None = COMPUTE) -> None:
        """The host waits for a stream, or for the device."""
        self.steps.append((Code.SYNC, stream))

    def item(self, stream: int = COMPUTE) -> None:
        """Read a number back from the device, which takes a copy and a wait."""
        self.copy("DtoH", 4, 1_800, stream)
        self.sync(stream)

    # ------------------------------------------------------------------ noise and plants

    def _group(self, comm: str, nbytes: int) -> None:
        """NCCL's ranges of an all-to-all, which is a send to and a receive from everybody."""
        if not self.job.report.payload:
            return
        self._mark("ncclGroupStart")
        payload = self._payload(comm, nbytes // len(self.members[comm]))
        for _ in self.members[comm]:
            self._mark("ncclSend", payload)
            self._mark("ncclRecv", payload)
        self.push("ncclGroupEnd")

    def _mark(self, name: str, payload: str | None = None) -> None:
        self.push(name)
        self.pop(payload)

    def _payload(self, comm: str, nbytes: int) -> str:
        number = 0x51CE_0000_0000_0000 + sorted(self.job.groups).index(comm) * 7_919 + 1
        return f'{{"NCCL communicator ID": {number}, "Message size [bytes]": {nbytes}}}'

    def _begin(self, iteration: int) -> None:
        job, rank = self.job, self.rank
        self.iteration = iteration
        self.steps = [(Code.ITERATION, iteration)]
        drawn = generator(job.seed, "step", rank, iteration)
        self._z, self._next = drawn.standard_normal(DRAWS).tolist(), 0
        device = hosted = tokens = 1.0
        self._stalls = []
        for plant in self._plants:
            if not plant.hits(rank, iteration):
                continue
            if plant.what == "device":
                device *= plant.factor_of(rank, iteration)
            elif plant.what == "host":
                hosted *= plant.factor_of(rank, iteration)
            elif plant.what == "tokens":
                tokens *= plant.factor_of(rank, iteration)
            elif plant.what == "stall":
                self._stalls.append(plant)
        self._device = device * self._speeds[iteration]
        self._hosted, self._tokens = hosted, tokens
        noise = job.noise
        if noise.pause_share and drawn.random() < noise.pause_share:
            self.steps.append((Code.WORK, round(drawn.exponential(noise.pause_ns))))

    def _speed(self) -> list[float]:
        """The rank's device in every iteration, relative to a usual one."""
        noise, count = self.job.noise, self.job.iterations
        drawn = generator(self.job.seed, "speed", self.rank)
        usual = 1.0 + noise.static * drawn.standard_normal()
        steps = drawn.standard_t(3, count) if noise.tail else drawn.standard_normal(count)
        walk, level = [], 0.0
        for move in drawn.standard_normal(count):
            level = min(max(level + noise.walk / 4 * move, -noise.walk), noise.walk)
            walk.append(level)
        return [
            usual * (1.0 + moved) * math.exp(noise.step * float(step))
            for step, moved in zip(steps, walk, strict=True)
        ]

    def _draw(self) -> float:
        self._next += 1
        return self._z[self._next % DRAWS]

    def _host(self, ns: float) -> int:
        return round(ns * math.exp(self.job.noise.host * self._draw()) * self._hosted)

    def _launch(self, python: float) -> tuple[int, int]:
        """What Python and the API call take."""
        noise = math.exp(self.job.noise.host * self._draw()) * self._hosted
        return round(python * noise), round(4_200 * noise)

    def _extra(self, what: str) -> int:
        return sum(
            plant.extra_of(self.rank, self.iteration)
            for plant in self._plants
            if plant.what == what and plant.hits(self.rank, self.iteration)
        )
