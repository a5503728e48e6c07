"""One training step of a rank: what its threads do, call by call.

`gpu_step` is a PyTorch-like step on a GPU, `host_step` one without CUDA, whose all-reduces block.
"""

import random
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


def gpu_step(host: RankHost, iteration: int) -> Wait:
    """Load, forward, backward with bucketed reductions, optimizer; then wait for the device."""
    job, markers = host.job, host.job.markers
    host.begin(iteration)
    if job.load_at == "between":
        yield from _load(host)
    first = host.t
    host.push(markers.iteration and markers.iteration.format(i=iteration))
    if job.load_at != "between":
        yield from _load(host)
    if job.graph:
        yield from _graph(host)
    else:
        reducing = job.reduces(iteration)
        last = job.micro_batches - 1
        if job.stages > 1:  # GPipe: every micro-batch forward, then every one backward
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
    host.pop()
    host.span = (first, host.t)
    # The loop around the step: fetching where nothing names the loading, else only Python.
    host.enter("other" if job.load_at == "range" else "load")
    host.t += job.host.python_ns
    if job.background_loader:
        _background(host, first)


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


def _phase(host: RankHost, phase: str, base_ns: int, count: int) -> list[tuple[str, int, float]]:
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
    host.enter("forward")
    host.push(job.markers.forward)
    host.stall("forward")
    _exchange(host, host.before, PREVIOUS_STAGE, receive=True)
    if job.copy_at == "forward":
        yield from _copy(host)
    count = job.work.forward_kernels
    base = job.work.forward_ns // job.micro_batches
    for i, (name, ns, grid) in enumerate(_phase(host, "forward", base, count), start=1):
        yield from host.launch("kernel", name, COMPUTE, ns, scale=grid)
        if host.tensor and i in (count // 2, count):
            _tensor_parallel(host, host.tensor)
    _exchange(host, host.after, NEXT_STAGE, receive=False)
    host.pop()
    host.enter("other")
    host.t += job.host.python_ns


def _tensor_parallel(host: RankHost, group: str) -> None:
    """Sum activations over a tensor-parallel group; the next kernel needs the result."""
    host.edge(COMPUTE, TENSOR_PARALLEL)
    host.collect(group, "all_reduce", "activation", TENSOR_PARALLEL, ACTIVATION_BYTES)
    host.edge(TENSOR_PARALLEL, COMPUTE)


def _backward(host: RankHost, reducing: bool) -> Wait:
    job = host.job
    data = host.data
    host.enter("backward")
    host.push(job.markers.backward)
    host.stall("backward")
    if job.autograd_thread:  # the main thread sleeps in backward() while another one launches
        host.t += job.host.thread_handoff_ns
        host.tid = host.identity.autograd_tid
    _exchange(host, host.after, NEXT_STAGE, receive=True)
    count, buckets = job.work.backward_kernels, job.buckets
    ready = [(b + 1) * count // buckets for b in range(buckets)]
    base = job.work.backward_ns // job.micro_batches
    for i, (name, ns, grid) in enumerate(_phase(host, "backward", base, count), start=1):
        yield from host.launch("kernel", name, COMPUTE, ns, scale=grid)
        if host.tensor and i in (count // 2, count):
            _tensor_parallel(host, host.tensor)
        for _ in range(ready.count(i) if reducing and data else 0):
            host.edge(COMPUTE, DATA_PARALLEL)
            nbytes = job.network.gradient_bytes // buckets
            host.collect(data or "", job.gradient_op, "gradient", DATA_PARALLEL, nbytes)
    _exchange(host, host.before, PREVIOUS_STAGE, receive=False)
    if reducing:
        host.edge(DATA_PARALLEL, COMPUTE)
    if job.autograd_thread:
        host.t += job.host.thread_handoff_ns
        host.tid = host.identity.main_tid
    host.pop()
    host.enter("other")
    host.t += job.host.python_ns


def _graph(host: RankHost) -> Wait:
    """Replay forward, backward and reductions: one call, so one launch time for all of it."""
    job = host.job
    host.push(job.markers.graph)
    for phase in ("forward", "backward"):
        host.stall(phase)
    start = host.t
    correlation = host.call(GRAPH_LAUNCH, 3 * job.host.launch_ns)
    graph = (start, host.t, correlation)
    data, count = host.data, job.work.backward_kernels
    ready = [(b + 1) * count // job.buckets for b in range(job.buckets)]
    forward = _phase(host, "forward", job.work.forward_ns, job.work.forward_kernels)
    for name, ns, grid in forward:
        op = host.node("kernel", name, COMPUTE, ns, graph)
        op.scale = grid
        op.phase = "forward"
        host.replay(op)
    backward = _phase(host, "backward", job.work.backward_ns, count)
    for i, (name, ns, grid) in enumerate(backward, start=1):
        op = host.node("kernel", name, COMPUTE, ns, graph)
        op.scale = grid
        op.phase = "backward"
        host.replay(op)
        for _ in range(ready.count(i) if data else 0):
            host.link(COMPUTE, DATA_PARALLEL)
            op = host.node("collective", "nccl:AllReduce", DATA_PARALLEL, 0, graph)
            op.phase = "backward"
            nbytes = job.network.gradient_bytes // job.buckets
            host.join(op, data or "", "all_reduce", "gradient", nbytes)
            host.replay(op)
    host.link(DATA_PARALLEL, COMPUTE)
    host.pop()
    host.t += job.host.python_ns
    yield from ()


def _optimizer(host: RankHost) -> Wait:
    job = host.job
    host.enter("optimizer")
    host.push(job.markers.optimizer)
    host.stall("optimizer")
    kernels = _phase(host, "optimizer", job.work.optimizer_ns, job.work.optimizer_kernels)
    for name, ns, grid in kernels:
        yield from host.launch("kernel", name, COMPUTE, ns, scale=grid)
    data = host.data
    if job.trailing_all_gather and data:
        host.edge(COMPUTE, DATA_PARALLEL)
        nbytes = job.network.gradient_bytes
        host.collect(data, "all_gather", "parameters", DATA_PARALLEL, nbytes)
        host.edge(DATA_PARALLEL, COMPUTE)
    host.pop()
    host.enter("other")
    host.t += job.host.python_ns


def _finish(host: RankHost) -> Wait:
    """Log the loss and wait for the device, as far as the job does either."""
    job = host.job
    data = host.data
    if job.loss_all_reduce and data:
        host.edge(COMPUTE, DATA_PARALLEL)
        host.collect(data, "all_reduce", "loss", DATA_PARALLEL, 4)
        host.edge(DATA_PARALLEL, COMPUTE)
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


def host_step(host: RankHost, iteration: int) -> Wait:
    """The step of a job without CUDA: every phase is host work, every all-reduce blocks."""
    job, markers, work = host.job, host.job.markers, host.job.work
    host.begin(iteration)
    if job.load_at == "between":
        yield from _load(host)
    first = host.t
    host.push(markers.iteration and markers.iteration.format(i=iteration))
    if job.load_at != "between":
        yield from _load(host)
    _host_phase(host, "forward", markers.forward, work.forward_ns)
    host.enter("backward")
    host.push(markers.backward)
    host.stall("backward")
    host.t += host.amount("backward", work.backward_ns)
    if job.mpi:  # the call follows backward, in an annotation of its own
        host.pop()
        host.enter("other")
        host.t += job.host.python_ns
    if job.reduces(iteration):
        yield from _blocking_reductions(host)
    if not job.mpi:  # the hook runs inside backward
        host.pop()
    host.enter("other")
    host.t += job.host.python_ns
    _host_phase(host, "optimizer", markers.optimizer, work.optimizer_ns)
    host.pop()
    host.span = (first, host.t)
    host.enter("other" if job.load_at == "range" else "load")
    host.t += job.host.python_ns


def _host_phase(host: RankHost, phase: str, marker: str | None, base_ns: int) -> None:
    host.enter(phase)
    host.push(marker)
    host.stall(phase)
    host.t += host.amount(phase, base_ns)
    host.pop()
    host.enter("other")
    host.t += host.job.host.python_ns


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
