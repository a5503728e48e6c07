"""One training step of a rank: what its threads do, call by call.

It is a PyTorch-like step on a GPU, or one without CUDA, whose all-reduces block.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate

from tests.forge.host import (
    COMPUTE,
    COPY,
    DATA_PARALLEL,
    GRAPH_LAUNCH,
    NEXT_STAGE,
    PREVIOUS_STAGE,
    TENSOR_PARALLEL,
    RankHost,
    Wait,
)
from tests.forge.plants import kernel_factor

KERNELS = {
    "forward": ("sgemm:nn", "elementwise", "sgemm:nn", "layer_norm", "elementwise"),
    "backward": ("sgemm:nt", "sgemm:tn", "elementwise", "reduce"),
    "optimizer": ("multi_tensor",),
}
ACTIVATION_BYTES = 8_388_608
BUFFER_BYTES = 7_424


@lru_cache(maxsize=256)
def _shares(seed: int, phase: str, count: int) -> tuple[float, ...]:
    """Cumulative shares of a phase's kernels: the same model on every rank and iteration."""
    rng = random.Random(f"{seed}/weights/{phase}/{count}")
    ends = list(accumulate(rng.uniform(0.5, 1.5) for _ in range(count)))
    return tuple(end / ends[-1] for end in ends)


def _split(seed: int, phase: str, count: int, total: int) -> list[int]:
    """Durations of a phase's kernels, adding up to `total` exactly."""
    ends = [round(total * share) for share in _shares(seed, phase, count)]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


@lru_cache(maxsize=256)
def _grids(seed: int, phase: str, count: int) -> tuple[float, ...]:
    """Grids of a phase's kernels relative to those of `names`: longer ones have more blocks."""
    ends = _shares(seed, phase, count)
    return tuple((end - begin) * count for begin, end in zip((0.0, *ends), ends, strict=False))


def step(host: RankHost, iteration: int) -> Wait:
    """Load and train, then what the loop around the step does."""
    job, markers = host.job, host.job.markers
    host.begin(iteration)
    if job.load_at == "between":
        yield from _load(host)
    first = host.t
    host.push(markers.iteration and markers.iteration.format(i=iteration))
    if job.load_at != "between":
        yield from _load(host)
    yield from (_on_gpu if job.gpu else _on_host)(host, job.reduces(iteration))
    host.pop()
    host.span = (first, host.t)
    # The loop around the step: fetching where nothing names the loading, else only Python.
    host.enter("other" if job.load_at == "range" else "load")
    host.t += job.host.python_ns
    if job.background_loader:
        _background(host, first)


def _on_gpu(host: RankHost, reducing: bool) -> Wait:
    """Forward, backward with bucketed reductions, optimizer; then wait for the device."""
    job = host.job
    last = job.micro_batches - 1
    if job.graph:
        _graph(host)
    elif job.stages > 1:  # GPipe: every micro-batch forward, then every one backward
        for _ in range(job.micro_batches):
            yield from _forward(host)
        for micro in range(job.micro_batches):
            yield from _backward(host, reducing and micro == last)
        for pair, stream in ((host.before, PREVIOUS_STAGE), (host.after, NEXT_STAGE)):
            if pair is not None:  # the step is not over before its last sends are
                host.edge(stream, COMPUTE)
    else:
        for micro in range(job.micro_batches):
            yield from _forward(host)
            yield from _backward(host, reducing and micro == last)
    yield from _optimizer(host)
    yield from _finish(host)


@contextmanager
def _phase(host: RankHost, phase: str, marker: str | None) -> Iterator[None]:
    """A phase of the main thread, in its range; what follows is of none."""
    host.enter(phase)
    host.push(marker)
    host.stall(phase)
    yield
    host.pop()
    host.enter("other")
    host.t += host.job.host.python_ns


def _load(host: RankHost) -> Wait:
    job = host.job
    named = job.load_at == "range"
    host.enter("load")
    host.push(job.markers.load if named else None)
    host.stall("load")
    host.t += host.amount("load", job.work.load_ns)
    if job.copy_at == "load":
        yield from _copy(host)
    host.pop()
    # Unnamed loading lasts until the first phase that is named.
    host.enter("other" if named else "load")
    if named:
        host.t += job.host.python_ns


def _copy(host: RankHost) -> Wait:
    job = host.job
    stream = COPY if job.copy_stream else COMPUTE
    yield from host.launch("copy", "HtoD", stream, job.work.copy_ns, job.work.copy_bytes)
    if job.copy_stream:
        host.edge(COPY, COMPUTE)


def _kernels(host: RankHost, phase: str, base_ns: int, count: int) -> list[tuple[str, int, float]]:
    """Names, durations and relative grids of a phase's kernels in this iteration."""
    names, job, length = KERNELS[phase], host.job, host.length(phase)
    parts = _split(job.seed, phase, count, host.amount(phase, base_ns))
    kernels = []
    for i, (ns, grid) in enumerate(zip(parts, _grids(job.seed, phase, count), strict=True)):
        name = names[i % len(names)]
        slower = kernel_factor(job, host.rank, host.iteration, name)
        kernels.append((name, round(ns * slower), grid * length))
    return kernels


def _exchange(host: RankHost, pair: str | None, stream: int, receive: bool) -> None:
    """Send to a neighbouring stage, or receive what the next kernel needs; at the pipeline's ends
    there is nobody."""
    if pair is None:
        return
    host.edge(COMPUTE, stream)
    host.collect(pair, "send_recv", "activation", stream, ACTIVATION_BYTES)
    if receive:
        host.edge(stream, COMPUTE)


def _forward(host: RankHost) -> Wait:
    job = host.job
    count = job.work.forward_kernels
    with _phase(host, "forward", job.markers.forward):
        _exchange(host, host.before, PREVIOUS_STAGE, receive=True)
        for _ in range(job.broadcasts if host.data else 0):
            _reduced(host, host.data or "", "rooted", "buffers", DATA_PARALLEL, BUFFER_BYTES)
        if job.copy_at == "forward":
            yield from _copy(host)
        base = job.work.forward_ns // job.micro_batches
        for i, (name, ns, grid) in enumerate(_kernels(host, "forward", base, count), start=1):
            yield from host.launch("kernel", name, COMPUTE, ns, scale=grid)
            _tensor_parallel(host, i, count)
        _exchange(host, host.after, NEXT_STAGE, receive=False)


def _tensor_parallel(host: RankHost, i: int, count: int) -> None:
    """Sum activations over a tensor-parallel group amid a phase and at its end."""
    if host.tensor and i in (count // 2, count):
        _reduced(host, host.tensor, "all_reduce", "activation", TENSOR_PARALLEL, ACTIVATION_BYTES)


def _reduced(host: RankHost, group: str, op: str, purpose: str, stream: int, nbytes: int) -> None:
    """A collective of what was computed, whose result the next kernel needs."""
    host.edge(COMPUTE, stream)
    host.collect(group, op, purpose, stream, nbytes)
    host.edge(stream, COMPUTE)


def _backward(host: RankHost, reducing: bool) -> Wait:
    job, data = host.job, host.data
    count = job.work.backward_kernels
    with _phase(host, "backward", job.markers.backward):
        host.t += job.host.thread_handoff_ns
        host.tid = host.identity.autograd_tid  # the main thread sleeps in backward() meanwhile
        _exchange(host, host.after, NEXT_STAGE, receive=True)
        ready = _ready(host)
        base = job.work.backward_ns // job.micro_batches
        for i, (name, ns, grid) in enumerate(_kernels(host, "backward", base, count), start=1):
            yield from host.launch("kernel", name, COMPUTE, ns, scale=grid)
            _tensor_parallel(host, i, count)
            for _ in range(ready.count(i) if reducing and data else 0):
                host.edge(COMPUTE, DATA_PARALLEL)
                nbytes = job.network.gradient_bytes // job.buckets
                host.collect(data or "", job.gradient_op, "gradient", DATA_PARALLEL, nbytes)
        _exchange(host, host.before, PREVIOUS_STAGE, receive=False)
        if reducing:
            host.edge(DATA_PARALLEL, COMPUTE)
        host.t += job.host.thread_handoff_ns
        host.tid = host.identity.main_tid


def _ready(host: RankHost) -> list[int]:
    """After how many of backward's kernels each bucket of gradients is ready."""
    count, buckets = host.job.work.backward_kernels, host.job.buckets
    return [(b + 1) * count // buckets for b in range(buckets)]


def _graph(host: RankHost) -> None:
    """Replay forward, backward and reductions: one call, so one launch time for all of it."""
    job, work, data = host.job, host.job.work, host.data
    host.push(job.markers.graph)
    for phase in ("forward", "backward"):
        host.stall(phase)
    start = host.t
    correlation = host.call(GRAPH_LAUNCH, 3 * job.host.launch_ns)
    graph = (start, host.t, correlation)
    ready = _ready(host) if data else []
    for phase, total, count in (
        ("forward", work.forward_ns, work.forward_kernels),
        ("backward", work.backward_ns, work.backward_kernels),
    ):
        for i, (name, ns, grid) in enumerate(_kernels(host, phase, total, count), start=1):
            op = host.node("kernel", name, COMPUTE, ns, graph)
            op.scale, op.phase = grid, phase
            host.replay(op)
            for _ in range(ready.count(i) if phase == "backward" else 0):
                host.link(COMPUTE, DATA_PARALLEL)
                op = host.node("collective", "nccl:AllReduce", DATA_PARALLEL, 0, graph)
                op.phase = phase
                nbytes = job.network.gradient_bytes // job.buckets
                host.join(op, data or "", "all_reduce", "gradient", nbytes)
                host.replay(op)
    host.link(DATA_PARALLEL, COMPUTE)
    host.pop()
    host.t += job.host.python_ns


def _optimizer(host: RankHost) -> Wait:
    job = host.job
    with _phase(host, "optimizer", job.markers.optimizer):
        work = job.work
        kernels = _kernels(host, "optimizer", work.optimizer_ns, work.optimizer_kernels)
        for name, ns, grid in kernels:
            yield from host.launch("kernel", name, COMPUTE, ns, scale=grid)
        if job.trailing_all_gather and host.data:
            nbytes = job.network.gradient_bytes
            _reduced(host, host.data, "all_gather", "parameters", DATA_PARALLEL, nbytes)


def _finish(host: RankHost) -> Wait:
    """Log the loss and wait for the device, as far as the job does either."""
    job = host.job
    if job.loss_all_reduce and host.data:
        _reduced(host, host.data, "all_reduce", "loss", DATA_PARALLEL, 4)
    if job.item_copy:
        yield from host.launch("copy", "DtoH", COMPUTE, 1_600, 4)
    if job.sync_every_step:
        yield from host.synchronize()


def _background(host: RankHost, began: int) -> None:
    """Preprocess a later batch on the loader's thread and stream, over the step's border."""
    nominal = host.job.work.nominal_ns()
    at = begin = max(host.background_t, began + nominal * 6 // 10)
    at = host.behind("copy", "HtoD", at, nominal // 50, host.job.work.copy_bytes)
    for i in range(6):
        name = ("jpeg_decode", "warp_affine", "normalize")[i % 3]
        at = host.behind("kernel", name, at + nominal // 12, nominal // 25)
    name = "[DALI][Executor] RunGPU"
    host.ranges.append((begin, at, name, host.identity.loader_tid, 0))
    host.background_t = at + nominal // 20


def _on_host(host: RankHost, reducing: bool) -> Wait:
    """Without CUDA every phase is host work, every all-reduce blocks."""
    job, markers, work = host.job, host.job.markers, host.job.work
    with _phase(host, "forward", markers.forward):
        host.t += host.amount("forward", work.forward_ns)
    with _phase(host, "backward", markers.backward):
        host.t += host.amount("backward", work.backward_ns)
        if reducing and not job.mpi:  # the hook runs inside backward
            yield from _blocking_reductions(host)
    if job.mpi:  # the call follows backward, in an annotation of its own
        if reducing:
            yield from _blocking_reductions(host)
        host.enter("other")
        host.t += job.host.python_ns
    with _phase(host, "optimizer", markers.optimizer):
        host.t += host.amount("optimizer", work.optimizer_ns)


def _blocking_reductions(host: RankHost) -> Wait:
    job = host.job
    data = host.data
    before = host.phase
    for _ in range(job.buckets if data else 0):
        if not job.mpi:
            host.enter("exposed_communication")
        called = host.t
        host.push(job.markers.all_reduce)
        if job.mpi:  # packing the buffer is the rank's own work, waiting starts with the call
            host.t += 10 * job.host.python_ns
            host.enter("exposed_communication")
            called = host.t
            host.push("MPI_Allreduce", domain=1)
        yield from host.blocking(data or "", job.network.gradient_bytes // job.buckets, called)
        if job.mpi:
            host.pop()
            host.enter(before)
        host.pop()
        host.enter(before)
