"""One rank's process: its threads' clock, the phase it is in, the streams it launches onto."""

import math
import random
from collections import Counter, deque
from collections.abc import Generator

from tests.forge.engine import Engine, Op
from tests.forge.job import Job
from tests.forge.plants import hits, planted, tokens
from tests.forge.record import Call, Identity, Range

COMPUTE, COPY, DATA_PARALLEL, TENSOR_PARALLEL, BACKGROUND = 7, 20, 24, 28, 33
PREVIOUS_STAGE, NEXT_STAGE = 36, 40

Wait = Generator[Op, None, None]
"""A host program: it yields an operation to sleep until that operation's times are known."""

LAUNCH = "cudaLaunchKernel_v7000"
LAUNCH_NCCL = "cuLaunchKernelEx"
COPY_ASYNC = "cudaMemcpyAsync_v3020"
RECORD = "cudaEventRecordWithFlags_v11010"
WAIT_EVENT = "cudaStreamWaitEvent_v3020"
SYNCHRONIZE = "cudaStreamSynchronize_v3020"
GRAPH_LAUNCH = "cudaGraphLaunch_v10000"

NCCL_KERNELS = {
    "all_reduce": "nccl:AllReduce",
    "reduce_scatter": "nccl:ReduceScatter",
    "all_gather": "nccl:AllGather",
    "send_recv": "nccl:SendRecv",
    "rooted": "nccl:Broadcast",
}


class RankHost:
    """A rank's host side; `t` is the time of whichever of its training threads is running."""

    def __init__(self, job: Job, identity: Identity, engine: Engine, start: int) -> None:
        self.job = job
        self.identity = identity
        self.engine = engine
        self.rank = identity.rank
        self.t = start
        self.tid = identity.main_tid
        self.iteration = 0
        self.phase = "other"
        self.segments: list[tuple[str, int, int]] = []
        self.ranges: list[Range] = []
        self.calls: list[Call] = []
        self.ops: list[Op] = []
        self.background: list[Op] = []
        self.background_t = start
        self.span = (start, start)
        self._since = start
        self._stack: list[tuple[int, str | None, int]] = []
        self._tails: dict[int, Op] = {}
        self._edges: dict[int, list[Op]] = {}
        self._queued: deque[Op] = deque()
        self._ordinals: Counter[tuple[str, str]] = Counter()
        self._correlation = 1_000 + 13 * identity.rank
        self._rng = random.Random(f"{job.seed}/rank/{identity.rank}")
        self._jitter = random.Random(f"{job.seed}/jitter/{identity.rank}")
        self._gone = random.Random(f"{job.seed}/unrecorded/{identity.rank}")
        self._groups = job.groups()
        self.data = job.group_of("dp", self.rank)
        self.tensor = job.group_of("tp", self.rank)
        self.before, self.after = job.neighbours(self.rank)
        self._contends = job.contends(self.rank)
        self._rivals: tuple[Op, ...] = ()
        self._walk = 0.0
        self._nodes = 0
        self._factors: dict[str, float] = {}

    def begin(self, iteration: int) -> None:
        """Draw the iteration's noise; always the same number of draws, so that runs with and
        without a plant differ by the plant alone."""
        noise = self.job.noise
        self.iteration = iteration
        self._ordinals.clear()
        self._nodes = 0
        # Whatever was over when the step began cannot run beside what is launched in it.
        self._rivals = tuple(op for op in self._rivals if not 0 <= op.end <= self.t)
        if noise.walk:
            step = self._walk + self._rng.gauss(0.0, noise.walk / 4)
            self._walk = min(max(step, -noise.walk), noise.walk)
        for phase in ("load", "forward", "backward", "optimizer"):
            drawn = self._rng.gauss(0.0, noise.sigma) if noise.sigma else 0.0
            self._factors[phase] = math.exp(drawn) * (1.0 + self._walk)

    def amount(self, phase: str, base_ns: int) -> int:
        """What a phase needs in this iteration: base, noise and whatever is planted, ns."""
        extra, factor = planted(self.job, self.rank, self.iteration, phase, on_host=False)
        if phase != "load":
            slow, slower = planted(self.job, self.rank, self.iteration, "device", on_host=False)
            extra = self._per_pass(phase, extra + slow)
            factor *= slower * self.length(phase)
        return round(base_ns * self._factors[phase] * factor) + extra

    def length(self, phase: str) -> float:
        """How much there is to do in this iteration, relative to what the job's work says."""
        if phase not in ("forward", "backward"):
            return 1.0
        factor = planted(self.job, self.rank, self.iteration, "data", on_host=False)[1]
        lengths = self.job.lengths
        if lengths is not None:
            drawn = tokens(lengths, self.rank, self.iteration, self.job.seed)
            factor *= drawn / lengths.mean
        return factor

    def stall(self, phase: str) -> None:
        """Spend what is planted on the host before a phase's launches."""
        for plant in self.job.plants:
            here = plant.where == phase and plant.on_host
            if here and hits(plant, self.rank, self.iteration, self.job.seed):
                self.push(plant.named)
                self.t += self._per_pass(phase, plant.extra_ns)
                self.pop()

    def _per_pass(self, phase: str, ns: int) -> int:
        """The part of an iteration's time for one pass through a phase: one micro-batch's."""
        return ns // self.job.micro_batches if phase in ("forward", "backward") else ns

    def enter(self, phase: str) -> None:
        """What the main thread does from here on is meant for another phase."""
        if self.t > self._since:
            self.segments.append((self.phase, self._since, self.t))
        self.phase, self._since = phase, self.t

    def settled(self) -> int:
        """Up to when `segments` tell what the main thread did."""
        return self._since

    def push(self, name: str | None, domain: int = 0) -> None:
        """Open a range (None opens none, at no cost)."""
        self._stack.append((self.t, name, domain))
        if name is not None:
            self.t += self.job.host.marker_ns

    def pop(self) -> None:
        """Close the innermost range."""
        start, name, domain = self._stack.pop()
        if name is not None:
            self.ranges.append((start, self.t, name, self.identity.main_tid, domain))

    def call(self, name: str, ns: int) -> int:
        """Spend time in an API call of the running thread; gives its correlation id."""
        start = self.t
        if self.job.noise.sigma:
            ns = round(ns * (0.8 + 0.5 * self._jitter.random()))
        self.t += ns
        self._correlation += 1
        self.calls.append((start, self.t, name, self.tid, self._correlation))
        return self._correlation

    def edge(self, source: int, target: int) -> None:
        """Let what is enqueued on `target` from now on wait for what is on `source` now."""
        self.call(RECORD, self.job.host.event_call_ns)
        self.call(WAIT_EVENT, self.job.host.event_call_ns)
        if source in self._tails:
            self._edges.setdefault(target, []).append(self._tails[source])

    def link(self, source: int, target: int) -> None:
        """The same as `edge` without API calls: a dependency inside a graph."""
        if source in self._tails:
            self._edges.setdefault(target, []).append(self._tails[source])

    def launch(
        self,
        kind: str,
        name: str,
        stream: int,
        duration: int,
        nbytes: int = 0,
        scale: float = 1.0,
    ) -> Wait:
        """Launch a kernel or copy from the running thread, waiting for room in the queue."""
        start = self.t
        while len(self._queued) >= self.job.host.queue_limit:
            oldest = self._queued.popleft()
            yield oldest
            self.t = max(self.t, oldest.start)
        recorded = True
        if self.job.export.unrecorded_share and kind == "kernel":
            recorded = self._gone.random() >= self.job.export.unrecorded_share
        api = COPY_ASYNC if kind == "copy" else LAUNCH
        correlation = self.call(api, self.job.host.launch_ns)
        # A full queue holds the caller inside the call, so the call starts before the wait.
        call = (start, *self.calls.pop()[1:])
        if recorded:
            self.calls.append(call)
        op = self._op(kind, name, stream, (start, self.t, correlation))
        op.duration, op.nbytes, op.recorded, op.scale = duration, nbytes, recorded, scale
        self._enqueue(op, self.ops)
        self.t += self.job.host.python_ns

    def collect(self, comm: str, op: str, purpose: str, stream: int, nbytes: int) -> None:
        """Launch a collective from the running thread."""
        start = self.t
        correlation = self.call(LAUNCH_NCCL, self.job.host.launch_ns)
        joined = self._op("collective", NCCL_KERNELS[op], stream, (start, self.t, correlation))
        self.join(joined, comm, op, purpose, nbytes)
        self._enqueue(joined, self.ops)
        self.t += self.job.host.python_ns

    def join(self, op: Op, comm: str, name: str, purpose: str, nbytes: int) -> None:
        """Make an operation a member of the next instance of a collective."""
        network = self.job.network
        small = purpose in ("loss", "activation", "buffers")
        ordinal = self._ordinals[comm, name]
        self._ordinals[comm, name] += 1
        op.collective = self.engine.collective(
            comm,
            name,
            purpose=purpose,
            iteration=self.iteration,
            ordinal=ordinal,
            nbytes=nbytes,
            members=self._groups[comm],
            transfer=network.small_transfer_ns if small else network.transfer_ns,
            factor=network.factor if comm in network.slow else 1.0,
            skew=network.skew_ns,
        )
        op.nbytes = nbytes

    def blocking(self, comm: str, nbytes: int, called: int) -> Wait:
        """A gradient all-reduce that holds the main thread, from its call until it is through."""
        op = self._op("collective", "all_reduce", -1, (called, called, 0))
        op.earliest = called
        self.join(op, comm, "all_reduce", "gradient", nbytes)
        self.ops.append(op)
        self.engine.submit(op)
        yield op
        self.t = op.end

    def node(self, kind: str, name: str, stream: int, ns: int, graph: tuple[int, int, int]) -> Op:
        """Make one operation of a graph, to be enqueued; `graph` is its launch call's start, end
        and correlation id."""
        op = self._op(kind, name, stream, graph)
        op.duration = ns
        self._nodes += 1
        op.graph_node = 4_294_967_296 + self._nodes
        return op

    def replay(self, op: Op) -> None:
        """Enqueue an operation of a graph."""
        self._enqueue(op, self.ops)

    def synchronize(self) -> Wait:
        """Wait on the host until the compute stream is empty."""
        start = self.t
        for op in (self._tails.get(COMPUTE), *self._edges.get(COMPUTE, ())):
            if op is not None:
                yield op
                self.t = max(self.t, op.end)
        self.t += self.job.host.sync_return_ns
        self._correlation += 1
        self.calls.append((start, self.t, SYNCHRONIZE, self.tid, self._correlation))
        self._queued.clear()

    def behind(self, kind: str, name: str, at: int, ns: int, nbytes: int = 0) -> int:
        """Launch from the loader's thread at a time; gives the time the call returns."""
        self._correlation += 1
        end = at + self.job.host.launch_ns
        api = COPY_ASYNC if kind == "copy" else LAUNCH
        self.calls.append((at, end, api, self.identity.loader_tid, self._correlation))
        op = self._op(kind, name, BACKGROUND, (at, end, self._correlation))
        op.duration, op.nbytes, op.background = ns, nbytes, True
        self._enqueue(op, self.background)
        return end

    def _op(self, kind: str, name: str, stream: int, call: tuple[int, int, int]) -> Op:
        return Op(self.rank, self.iteration, self.phase, kind, name, stream, *call)

    def _enqueue(self, op: Op, into: list[Op]) -> None:
        host = self.job.host
        op.earliest = op.api_end + host.launch_latency_ns
        tail = self._tails.get(op.stream)
        if tail is not None:
            op.after(tail, host.stream_gap_ns)
        for source in self._edges.pop(op.stream, ()):
            op.after(source, host.event_gap_ns)
        self._tails[op.stream] = op
        if self._contends and op.collective is not None:
            self._rivals += (op,)
        elif self._rivals and op.stream == COMPUTE:
            assert self.job.contention is not None
            op.beside(self._rivals, self.job.contention.factor)
        into.append(op)
        if not op.background:
            self._queued.append(op)
        self.engine.submit(op)
