"""Training steps of tensor, pipeline and data parallelism, as Megatron schedules them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.jobs.job import MS, US
from tests.jobs.models import BACKWARD, FORWARD, shares
from tests.jobs.script import AUTOGRAD, COMPUTE, COPIES, MAIN, Script


@dataclass(frozen=True, slots=True)
class Layout:
    """How ranks are laid out: tensor-parallel neighbours, then replicas, then stages."""

    tensor: int = 1
    data: int = 1
    stages: int = 1

    def place(self, rank: int) -> tuple[int, int, int]:
        """A rank's tensor index, replica and stage."""
        rest, tensor = divmod(rank, self.tensor)
        stage, data = divmod(rest, self.data)
        return tensor, data, stage

    def rank(self, tensor: int, data: int, stage: int) -> int:
        """The rank of a place."""
        return (stage * self.data + data) * self.tensor + tensor

    def groups(self) -> dict[str, tuple[int, ...]]:
        """Communicators: `tp`, `dp`, `pp`, and `mp` of all that hold parts of one replica."""
        tensors, datas, stages = range(self.tensor), range(self.data), range(self.stages)
        groups: dict[str, tuple[int, ...]] = {}
        for data in datas:
            if self.stages * self.tensor > 1:
                groups[f"mp{data}"] = tuple(self.rank(t, data, s) for s in stages for t in tensors)
            for stage in stages if self.tensor > 1 else ():
                groups[f"tp{stage}.{data}"] = tuple(self.rank(t, data, stage) for t in tensors)
            for tensor in tensors if self.stages > 1 else ():
                groups[f"pp{data}.{tensor}"] = tuple(self.rank(tensor, data, s) for s in stages)
        if self.data > 1:
            for stage in stages:
                for tensor in tensors:
                    name = f"dp{stage}.{tensor}"
                    groups[name] = tuple(self.rank(tensor, d, stage) for d in datas)
        return groups

    @property
    def roles(self) -> str:
        """As the option `--roles` takes it."""
        return f"tp={self.tensor},dp={self.data},pp={self.stages}"


@dataclass(frozen=True, slots=True)
class Transformer:
    """A model in stages; durations are those of one micro-batch in one stage, without noise.

    Attributes:
        weights: What each stage has to do, relative to the others; empty means alike.
        micro_batches: Of an iteration.
        activation_bytes: What neighbours hand on.
        overlapped: The gradient reduction runs beside the last backward pass, in buckets.
        norm: An all-reduce of the gradient norm over all parts of a replica.
    """

    layout: Layout
    weights: tuple[float, ...] = ()
    layers: int = 3
    forward_ns: int = 2_500 * US
    backward_ns: int = 5_000 * US
    optimizer_ns: int = 2 * MS
    load_ns: int = 800 * US
    micro_batches: int = 6
    activation_bytes: int = 12_582_912
    gradient_bytes: int = 200_000_000
    overlapped: bool = False
    norm: bool = True
    python_ns: int = 4_000


def step(script: Script, iteration: int) -> None:
    """One iteration: 1F1B over the stages, reduction, norm, update."""
    script.push(f"iteration {iteration}")
    _load(script)
    if script.model.layout.stages > 1:
        _one_forward_one_backward(script)
    else:
        count = script.model.micro_batches
        for micro in range(count):
            _forward(script)
            _backward(script, micro == count - 1)
    _reduce(script)
    _optimizer(script)
    script.work(40 * US)
    script.pop()


def _load(script: Script) -> None:
    script.push("load")
    script.load(script.model.load_ns)
    script.copy("HtoD", 4_194_304, 60 * US, COPIES)
    script.edge(COPIES, COMPUTE)
    script.pop()


def _weight(script: Script) -> float:
    model = script.model
    stage = model.layout.place(script.rank)[2]
    return model.weights[stage] if model.weights else 1.0


def _layers(script: Script) -> int:
    """Layers of the rank's stage: a heavier one has more of them."""
    return max(1, round(script.model.layers * _weight(script)))


def _forward(script: Script) -> None:
    model, comm = script.model, script.comm("tp")
    script.push("forward")
    script.stall("forward")
    count = _layers(script)
    each = model.forward_ns * _weight(script)
    for layer in shares(script.job.seed, count):
        for nth, (name, part) in enumerate(FORWARD):
            script.kernel(name, each * layer * part, python=model.python_ns, scaled=True)
            if comm is not None and nth in (2, 4):
                script.joined(comm, "all_reduce", model.activation_bytes)
    script.pop()


def _backward(script: Script, last: bool) -> None:
    model, tensor, data = script.model, script.comm("tp"), script.comm("dp")
    script.push("backward")
    script.stall("backward")
    script.thread(AUTOGRAD)
    count = _layers(script)
    each = model.backward_ns * _weight(script)
    for layer in shares(script.job.seed, count):
        for nth, (name, part) in enumerate(BACKWARD):
            script.kernel(name, each * layer * part, python=model.python_ns, scaled=True)
            if tensor is not None and nth in (2, 5):
                script.joined(tensor, "all_reduce", model.activation_bytes)
        if last and model.overlapped and data is not None:
            script.edge(COMPUTE, script.stream_of(data))
            script.collective(data, "all_reduce", model.gradient_bytes // count)
    script.thread(MAIN)
    script.pop()


def _one_forward_one_backward(script: Script) -> None:
    model = script.model
    layout = model.layout
    tensor, data, stage = layout.place(script.rank)
    comm = script.comm("pp")
    assert comm is not None
    nbytes = model.activation_bytes
    before = layout.rank(tensor, data, stage - 1) if stage else None
    after = layout.rank(tensor, data, stage + 1) if stage < layout.stages - 1 else None
    stream = script.stream_of(comm)

    def exchange(peer: int | None, *directions: str) -> None:
        if peer is None:
            return
        script.edge(COMPUTE, stream)
        script.exchange(comm, [(direction, peer, nbytes) for direction in directions])
        script.edge(stream, COMPUTE)

    count = model.micro_batches
    warm = min(layout.stages - stage - 1, count)
    for _ in range(warm):
        exchange(before, "recv")
        _forward(script)
        exchange(after, "send")
    steady = count - warm
    if steady:
        exchange(before, "recv")
    for micro in range(steady):
        _forward(script)
        exchange(after, "send", "recv")
        _backward(script, not warm and micro == steady - 1)
        if micro == steady - 1:
            exchange(before, "send")
        else:
            exchange(before, "send", "recv")
    for micro in range(warm):
        exchange(after, "recv")
        _backward(script, micro == warm - 1)
        exchange(before, "send")


def _reduce(script: Script) -> None:
    model, data = script.model, script.comm("dp")
    if data is None:
        return
    if model.overlapped:
        script.edge(script.stream_of(data), COMPUTE)
    else:
        script.joined(data, "all_reduce", model.gradient_bytes)


def _optimizer(script: Script) -> None:
    model, parts = script.model, script.comm("mp")
    script.push("optimizer")
    script.stall("optimizer")
    script.kernel("reduce", 120 * US)
    if model.norm and parts is not None:
        script.joined(parts, "all_reduce", 4)
    script.item()
    for _ in range(4):
        script.kernel("adam", model.optimizer_ns * _weight(script) / 4)
    script.pop()
