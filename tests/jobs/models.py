"""Training steps on data-parallel ranks: DDP, FSDP and mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tests.jobs.draws import generator
from tests.jobs.job import MS, US
from tests.jobs.script import AUTOGRAD, COMPUTE, COPIES, MAIN, Script


@dataclass(frozen=True, slots=True)
class Model:
    """A model and the loop around it; durations of a whole pass, without noise.

    Attributes:
        load: `inline`: the host makes the batch; `workers`: it takes one of a loader's; `between`:
            it makes it before the iteration's range opens.
        buckets: Gradient buckets of DDP.
        accumulate: Micro-batches of an iteration; the last one reduces.
        reduce_every: Iterations between reductions; the others run under `no_sync`.
        kinds: Steps of several kinds in turn, by what there is to do in each.
        clip: Gradients are clipped, so the host reads their norm.
        sync_every: Iterations between readings of the loss; 0 never synchronises.
        python_ns: Python between two launches.
        evaluate_every: Iterations between evaluations, before the step.
        checkpoint_every: Iterations between checkpoints of rank 0; see `checkpoint_ns`.
        sharded: FSDP.
        experts: Mixture of experts over communicators `ep`.
    """

    layers: int = 8
    forward_ns: int = 9 * MS
    backward_ns: int = 18 * MS
    optimizer_ns: int = 2 * MS
    load: str = "inline"
    load_ns: int = 1_500 * US
    gradient_bytes: int = 300_000_000
    buckets: int = 4
    accumulate: int = 1
    reduce_every: int = 1
    kinds: tuple[float, ...] = (1.0,)
    clip: bool = False
    sync_every: int = 1
    python_ns: int = 4_000
    evaluate_every: int = 0
    checkpoint_every: int = 0
    checkpoint_ns: int = 0
    sharded: bool = False
    experts: bool = False


FORWARD = (
    ("norm_fwd", 0.05),
    ("gemm_fwd", 0.35),
    ("flash_fwd", 0.2),
    ("gemm_fwd", 0.3),
    ("gelu", 0.1),
)
BACKWARD = (
    ("gelu", 0.05),
    ("gemm_dgrad", 0.25),
    ("gemm_wgrad", 0.25),
    ("flash_bwd", 0.25),
    ("gemm_wgrad", 0.15),
    ("norm_bwd", 0.05),
)


@lru_cache(maxsize=256)
def shares(seed: int, layers: int) -> tuple[float, ...]:
    """What each layer has of a pass: launches of one name differ in size, alike on all ranks."""
    drawn = generator(seed, "layers").uniform(0.4, 1.6, layers)
    return tuple((drawn / drawn.sum()).tolist())


def step(script: Script, iteration: int) -> None:
    """One iteration, from its loading to the reading of its loss."""
    model = script.model
    if model.evaluate_every and iteration and iteration % model.evaluate_every == 0:
        _evaluate(script)
    if model.load == "between":
        _load(script)
    script.push(f"step {iteration}")
    script.work(40 * US)
    if model.load != "between":
        _load(script)
    size = model.kinds[iteration % len(model.kinds)]
    reducing = (iteration + 1) % model.reduce_every == 0
    for micro in range(model.accumulate):
        forward(script, size / model.accumulate)
        backward(script, size / model.accumulate, reducing and micro == model.accumulate - 1)
    if reducing:
        optimizer(script)
    finish(script, iteration)


def _load(script: Script) -> None:
    model = script.model
    script.push("load")
    if model.load == "workers":
        script.fetch(model.load_ns)
    else:
        script.load(model.load_ns)
    script.stall("load")
    script.copy("HtoD", 33_554_432, 280 * US, COPIES)
    script.edge(COPIES, COMPUTE)
    script.pop()


def _evaluate(script: Script) -> None:
    script.push("validation")
    for _ in range(3):
        for layer in shares(script.job.seed, script.model.layers):
            for name, part in FORWARD:
                script.kernel(name, script.model.forward_ns * layer * part)
    script.item()
    script.pop()


def forward(script: Script, size: float = 1.0) -> None:
    """The forward pass."""
    model = script.model
    script.push("forward")
    script.stall("forward")
    layers = shares(script.job.seed, model.layers)
    data = script.comm("dp")
    for nth, layer in enumerate(layers):
        if model.sharded and data is not None:
            _gather(script, data, nth, model.layers)
        if model.experts:
            _experts(script, size * model.forward_ns * layer, ("gemm_fwd", "gelu"), FORWARD[:3])
            continue
        for name, part in FORWARD:
            script.kernel(
                name, size * model.forward_ns * layer * part, python=model.python_ns, scaled=True
            )
        if model.sharded:
            script.note(f"layer {nth}", COMPUTE)
    script.kernel("loss", 60 * US)
    script.pop()


def _gather(script: Script, comm: str, nth: int, layers: int) -> None:
    """All-gather the parameters of a layer and, ahead of its turn, those of the next.

    Two gathers are under way at most: the host waits until the layer before the last is through.
    """
    stream = script.stream_of(comm)
    nbytes = script.model.gradient_bytes // layers
    if nth == 0:
        script.collective(comm, "all_gather", nbytes)
        script.note("gathered 0", stream)
    if nth + 1 < layers:
        if nth >= 2:
            script.until(f"layer {nth - 2}")
        script.collective(comm, "all_gather", nbytes)
        script.note(f"gathered {nth + 1}", stream)
    script.after(f"gathered {nth}", COMPUTE)


def _experts(
    script: Script, ns: float, names: tuple[str, str], attention: tuple[tuple[str, float], ...]
) -> None:
    """A layer with routed experts: attention, dispatch, experts, combine."""
    comm = script.comm("ep")
    assert comm is not None
    for name, part in attention:
        script.kernel(name, ns * part * 0.8)
    script.kernel("topk", 25 * US)
    script.joined(comm, "all_to_all", 16_777_216)
    script.kernel("permute", 30 * US, scaled=True)
    script.kernel(names[0], ns * 0.45, scaled=True)
    script.kernel(names[1], ns * 0.05, scaled=True)
    script.joined(comm, "all_to_all", 16_777_216)


def backward(script: Script, size: float, reducing: bool) -> None:
    """The backward pass: launched by autograd's thread while the main thread waits."""
    model = script.model
    script.push("backward")
    script.stall("backward")
    script.thread(AUTOGRAD)
    layers = shares(script.job.seed, model.layers)
    data = script.comm("dp")
    left = 0.0
    for nth, layer in enumerate(reversed(layers)):
        if model.sharded and data is not None:
            _gather(script, data, nth, model.layers)
        if model.experts:
            names = ("gemm_wgrad", "gemm_dgrad")
            _experts(script, size * model.backward_ns * layer, names, BACKWARD[1:4])
        else:
            for name, part in BACKWARD:
                script.kernel(
                    name,
                    size * model.backward_ns * layer * part,
                    python=model.python_ns,
                    scaled=True,
                )
        left += model.buckets / model.layers
        if data is None or not reducing:
            continue
        if model.sharded:
            script.note(f"layer {nth}", COMPUTE)
            script.after(f"layer {nth}", script.stream_of(data))
            script.collective(data, "reduce_scatter", model.gradient_bytes // model.layers)
        elif left >= 0.999 or nth == model.layers - 1:
            left -= 1.0
            script.edge(COMPUTE, script.stream_of(data))
            script.collective(data, "all_reduce", model.gradient_bytes // model.buckets)
    script.thread(MAIN)
    if data is not None and reducing:
        script.edge(script.stream_of(data), COMPUTE)
    script.pop()


def optimizer(script: Script) -> None:
    """Clipping and the update."""
    model = script.model
    script.push("optimizer")
    script.stall("optimizer")
    if model.clip:
        script.kernel("reduce", 150 * US)
        if model.sharded:
            comm = script.comm("dp")
            assert comm is not None
            script.joined(comm, "all_reduce", 4)
        script.item()
    for _ in range(4):
        script.kernel("adam", model.optimizer_ns / 4)
    script.pop()


def finish(script: Script, iteration: int) -> None:
    """The end of an iteration: checkpoint, loss, log."""
    model = script.model
    if model.checkpoint_every and iteration % model.checkpoint_every == model.checkpoint_every - 1:
        script.sync()
        script.push("checkpoint")
        script.stall("checkpoint")
        script.work(100 * US)
        script.pop()
    if model.sync_every and (iteration + 1) % model.sync_every == 0:
        script.item()
    script.work(30 * US)
    script.pop()
