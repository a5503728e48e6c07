"""Named jobs, each built to catch one way of reading a trace wrongly.

A scene is a function `(ranks, iterations, seed, **parameters) -> Job`; `SCENES` names them all.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from tests.forge.job import (
    MILLISECOND,
    Clock,
    Export,
    Job,
    Markers,
    Network,
    Noise,
    Plant,
    PlantKind,
    Where,
    Work,
    tensor_groups,
)
from tests.forge.parallel_scenes import contention, garbage, pipeline, sequence_lengths
from tests.forge.plants import some_iterations

NO_LOAD = Markers(load=None)


def plain(
    ranks: int = 8,
    iterations: int = 30,
    seed: int = 0,
    *,
    noise: float = 0.03,
    walk: float = 0.0,
) -> Job:
    """A DDP job in which nothing is wrong: whatever is flagged here is a false alarm."""
    return Job("plain", ranks, iterations, seed, noise=Noise(sigma=noise, walk=walk))


def autograd(ranks: int = 8, iterations: int = 30, seed: int = 0, *, extra_ms: float = 6.0) -> Job:
    """Backward is launched by another thread: matching launches to ranges by thread loses it.

    The last rank's backward is `extra_ms` longer in every fifth iteration.
    """
    plant = _every(5, "backward", ranks - 1, extra_ms)
    return Job("autograd", ranks, iterations, seed, plants=(plant,))


def buckets(
    ranks: int = 8,
    iterations: int = 30,
    seed: int = 0,
    *,
    extra_ms: float = 5.0,
    rank: int = 1,
    noise: float = 0.0,
) -> Job:
    """Five overlapping all-reduces of 0.5 to 3 ms queue up: kernel starts are not arrivals.

    One rank's forward takes `extra_ms` more in every fifth iteration; its `work` must exceed the
    others' by just that. Lateness read off the starts of queued kernels shows next to nothing.
    """
    network = Network(transfer_ns=(MILLISECOND // 2, 3 * MILLISECOND))
    job = Job("buckets", ranks, iterations, seed, network=network, noise=Noise(sigma=noise))
    return replace(job, plants=(_every(5, "forward", rank, extra_ms),))


def dali(ranks: int = 8, iterations: int = 30, seed: int = 0, *, extra_ms: float = 0.0) -> Job:
    """A loader's thread runs kernels over the iterations' borders: they belong to no phase.

    With `extra_ms`, rank 0 loads longer in every fifth iteration.
    """
    plants = (_every(5, "load", 0, extra_ms),) if extra_ms else ()
    return Job("dali", ranks, iterations, seed, background_loader=True, plants=plants)


def copy_in_forward(
    ranks: int = 8, iterations: int = 30, seed: int = 0, *, own_stream: bool = False
) -> Job:
    """The batch is copied inside `forward`: a copy is not loading because it is a copy."""
    job = Job("copy_in_forward", ranks, iterations, seed, copy_at="forward")
    return replace(job, copy_stream=own_stream)


def trailing_all_gather(ranks: int = 8, iterations: int = 30, seed: int = 0) -> Job:
    """ZeRO: gradients are reduce-scattered, and an all-gather trails the optimizer.

    The all-gather is no gradient reduction, and runs after the iteration's last own work.
    """
    return Job(
        "trailing_all_gather",
        ranks,
        iterations,
        seed,
        gradient_op="reduce_scatter",
        trailing_all_gather=True,
    )


def no_sync(ranks: int = 8, iterations: int = 32, seed: int = 0, *, every: int = 4) -> Job:
    """Accumulation over iterations: only every fourth reduces, the others have no reduction."""
    return Job("no_sync", ranks, iterations, seed, reduce_every=every)


def micro_batches(ranks: int = 8, iterations: int = 30, seed: int = 0, *, count: int = 3) -> Job:
    """Accumulation inside an iteration: several forwards and backwards, one reduction."""
    return Job("micro_batches", ranks, iterations, seed, micro_batches=count)


def load_between(ranks: int = 8, iterations: int = 30, seed: int = 0) -> Job:
    """`for batch in loader:` fetches between the iteration ranges, and no range names it.

    Rank 2 loads 12 ms longer in every seventh iteration.
    """
    plants = (_every(7, "load", 2 % ranks, 12.0),)
    job = Job("load_between", ranks, iterations, seed, load_at="between", plants=plants)
    return replace(job, markers=NO_LOAD)


def load_inside(ranks: int = 8, iterations: int = 30, seed: int = 0) -> Job:
    """The fetch opens the iteration range, unnamed; rank 2 is slow at it as in `load_between`."""
    job = load_between(ranks, iterations, seed)
    return replace(job, name="load_inside", load_at="inside")


def loss_all_reduce(ranks: int = 8, iterations: int = 30, seed: int = 0) -> Job:
    """A small all-reduce of the loss follows the optimizer: the last one, yet not of gradients."""
    return Job("loss_all_reduce", ranks, iterations, seed, loss_all_reduce=True, item_copy=True)


def free_running(ranks: int = 8, iterations: int = 30, seed: int = 0, *, queue: int = 1_000) -> Job:
    """The host never waits for the device and runs ahead of it: loading hides, launches are old."""
    job = Job("free_running", ranks, iterations, seed, sync_every_step=False)
    return replace(job, host=replace(job.host, queue_limit=queue))


def shuffled(ranks: int = 8, iterations: int = 30, seed: int = 0) -> Job:
    """The rows of every event table come in random order, names as registered strings."""
    export = Export(shuffle_rows=True, registered_names=True)
    job = planted(ranks, iterations, seed, kind="persistent", where="forward")
    return replace(job, name="shuffled", export=export)


def offsets(
    ranks: int = 8,
    iterations: int = 30,
    seed: int = 0,
    *,
    offset_s: float = 5.0,
    drift_ppm: float = 50.0,
    tp: int = 1,
    skew_us: float = 5.0,
) -> Job:
    """Hosts' clocks are seconds off and drift: nothing may be compared before aligning.

    With `tp` above 1 every rank is in a tensor-parallel and a data-parallel group, and no
    communicator spans all of them: clocks must be solved over the graph of all.
    """
    job = planted(ranks, iterations, seed, kind="transient", where="backward")
    rng = random.Random(f"{seed}/clocks")
    machines = (ranks + job.ranks_per_host - 1) // job.ranks_per_host
    clocks = [
        Clock(
            round(rng.uniform(-offset_s, offset_s) * 1e9),
            round(rng.uniform(-drift_ppm, drift_ppm), 3),
        )
        for _ in range(machines)
    ]
    each = tuple(clocks[rank // job.ranks_per_host] for rank in range(ranks))
    network = Network(skew_ns=round(skew_us * 1_000))
    job = replace(job, name="offsets", clocks=each, network=network)
    return job if tp == 1 else replace(job, communicators=tensor_groups(ranks, tp))


def planted(
    ranks: int = 8,
    iterations: int = 30,
    seed: int = 0,
    *,
    kind: PlantKind = "persistent",
    where: Where = "forward",
    rank: int = -1,
    extra_ms: float = 8.0,
    factor: float = 1.25,
    every: int = 5,
    on_host: bool = False,
    gpu: bool = True,
    noise: float = 0.03,
    walk: float = 0.0,
    kernel: str = "sgemm:nt",
) -> Job:
    """One plant of any kind in any place; the ground truth of the verdict.

    Args:
        ranks: Number of ranks.
        iterations: Number of iterations.
        seed: Seed of everything random.
        kind: See `Plant`; `structural` hits the upper half of the ranks.
        where: See `Plant`; `device`, `kernel` and `data` use `factor`, the phases `extra_ms`.
        rank: Who is hit, counted from the end if negative.
        extra_ms: What a hit costs.
        factor: How much slower a hit device is.
        every: Period of a `periodic` plant.
        on_host: Spend the extra time before the launches instead of in the kernels.
        gpu: False plants the same into a job without CUDA.
        noise: Relative spread of all durations.
        walk: Bound of each rank's slow random walk.
        kernel: The slower one, where that is a kernel.
    """
    hit: tuple[int, ...] = (rank % ranks,)
    if kind == "structural":
        hit = tuple(range(ranks // 2, ranks))
    elif kind == "rotating":
        hit = tuple(range(ranks))
    multiplied = where in ("device", "kernel", "data")
    plant = Plant(
        kind,
        where,
        hit,
        extra_ns=0 if multiplied else round(extra_ms * MILLISECOND),
        factor=factor if multiplied else 1.0,
        iterations=some_iterations(seed, iterations) if kind == "transient" else (),
        every=every if kind == "periodic" else 1,
        on_host=on_host,
        kernel=kernel,
    )
    plants = () if kind == "balanced" else (plant,)
    job = Job(f"planted_{kind}_{where}", ranks, iterations, seed, plants=plants, gpu=gpu)
    job = replace(job, noise=Noise(sigma=noise, walk=walk))
    return job if gpu else replace(job, buckets=1)


def host_only(
    ranks: int = 8,
    iterations: int = 30,
    seed: int = 0,
    *,
    where: Where = "backward",
    extra_ms: float = 15.0,
) -> Job:
    """Gloo: no CUDA, the all-reduce blocks inside `backward`, so all backwards look long.

    Rank 1 is `extra_ms` late every seventh iteration. Sums per range name show it as the fastest.
    """
    plants = (_every(7, where, 1 % ranks, extra_ms, 3),)
    return Job("host_only", ranks, iterations, seed, gpu=False, buckets=1, plants=plants)


def mpi_like(ranks: int = 8, iterations: int = 30, seed: int = 0, *, extra_ms: float = 15.0) -> Job:
    """MPI: `all_reduce` around `MPI_Allreduce` in a domain of its own, one call seen twice."""
    job = host_only(ranks, iterations, seed, where="load", extra_ms=extra_ms)
    return replace(job, name="mpi_like", mpi=True)


def tensor_parallel(
    ranks: int = 8, iterations: int = 30, seed: int = 0, *, tp: int = 2, extra_ms: float = 8.0
) -> Job:
    """Tensor parallel groups inside data parallel ones: a slow rank's partner is its victim.

    Rank 1's forward takes `extra_ms` more in every fifth iteration. All-reduces of activations
    are no gradient reductions.
    """
    plants = (_every(5, "forward", 1, extra_ms),)
    job = Job("tensor_parallel", ranks, iterations, seed, plants=plants)
    roles = f"tp={tp},dp={ranks // tp}"
    return replace(job, communicators=tensor_groups(ranks, tp), roles=roles)


def slow_link(
    ranks: int = 8, iterations: int = 30, seed: int = 0, *, tp: int = 4, factor: float = 3.0
) -> Job:
    """The tensor-parallel group of the first host transfers slowly: none of its ranks is late."""
    transfer = (MILLISECOND, MILLISECOND * 6 // 5)
    job = tensor_parallel(ranks, iterations, seed, tp=tp)
    network = Network(small_transfer_ns=transfer, slow=("tp0",), factor=factor)
    return replace(job, name="slow_link", plants=(), network=network)


def no_launch_record(
    ranks: int = 8, iterations: int = 30, seed: int = 0, *, share: float = 0.2
) -> Job:
    """A share of the kernels has no API call in the report: their phase cannot be known."""
    export = Export(unrecorded_share=share)
    return Job("no_launch_record", ranks, iterations, seed, export=export)


def cuda_graph(ranks: int = 8, iterations: int = 30, seed: int = 0) -> Job:
    """One graph launch replays forward, backward and their all-reduces: no phases to be had."""
    markers = Markers(forward=None, backward=None)
    return Job("cuda_graph", ranks, iterations, seed, graph=True, markers=markers)


def slow_host(
    ranks: int = 8, iterations: int = 30, seed: int = 0, *, node: int = 1, extra_ms: float = 8.0
) -> Job:
    """All ranks of one machine load longer, always: the host is to blame, not one of its ranks."""
    job = Job("slow_host", ranks, iterations, seed)
    there = range(node * job.ranks_per_host, (node + 1) * job.ranks_per_host)
    hit = tuple(rank for rank in there if rank < ranks)
    extra = round(extra_ms * MILLISECOND)
    return replace(job, plants=(Plant("persistent", "load", hit, extra_ns=extra),))


def late_capture(
    ranks: int = 8, iterations: int = 30, seed: int = 0, *, late: int = 2, numbered: bool = False
) -> Job:
    """The last rank's capture starts `late` iterations after the others'.

    With `numbered=False` the iteration ranges carry no number, so that pairing by ordinal compares
    different steps. A periodic plant on rank 0 shows which pairing is right.
    """
    job = planted(ranks, iterations, seed, kind="periodic", where="forward", rank=0, every=7)
    markers = Markers() if numbered else Markers(iteration="train_step")
    capture = (0,) * (ranks - 1) + (late,)
    export = Export(capture_from=capture)
    return replace(job, name="late_capture", markers=markers, export=export)


def large(ranks: int = 64, iterations: int = 200, seed: int = 0) -> Job:
    """A big job for timing: every rank's speed wanders, one device is slow throughout."""
    plant = Plant("persistent", "device", (ranks * 2 // 3,), factor=1.12)
    noise = Noise(walk=0.05)
    return Job("large", ranks, iterations, seed, ranks_per_host=8, plants=(plant,), noise=noise)


def short_steps(ranks: int = 8, iterations: int = 60, seed: int = 0) -> Job:
    """Steps so short that launching is the bottleneck: the device starves inside the phases."""
    work = Work(MILLISECOND // 5, 20_000, 1 << 20, 60_000, 120_000, 20_000)
    network = Network(transfer_ns=(20_000, 60_000))
    return Job("short_steps", ranks, iterations, seed, work=work, network=network)


def _every(every: int, where: Where, rank: int, extra_ms: float, offset: int = 2) -> Plant:
    extra = round(extra_ms * MILLISECOND)
    return Plant("periodic", where, (rank,), extra_ns=extra, every=every, offset=offset % every)


SCENES: dict[str, Callable[..., Job]] = {
    make.__name__: make
    for make in (
        plain,
        autograd,
        buckets,
        dali,
        copy_in_forward,
        trailing_all_gather,
        no_sync,
        micro_batches,
        load_between,
        load_inside,
        loss_all_reduce,
        free_running,
        shuffled,
        offsets,
        planted,
        host_only,
        mpi_like,
        tensor_parallel,
        slow_link,
        no_launch_record,
        cuda_graph,
        short_steps,
        slow_host,
        late_capture,
        large,
        pipeline,
        sequence_lengths,
        contention,
        garbage,
    )
}

Parameter = str | int | float | bool


def scene(
    name: str,
    ranks: int | None = None,
    iterations: int | None = None,
    seed: int = 0,
    schema: Literal["2022.4", "2023.4"] = "2023.4",
    **parameters: Parameter,
) -> Job:
    """The job of a scene by name; sizes left out are the scene's own.

    Raises:
        KeyError: No scene has that name.
    """
    sizes = {"ranks": ranks, "iterations": iterations}
    given = {key: value for key, value in sizes.items() if value is not None}
    job = SCENES[name](**given, seed=seed, **parameters)
    return replace(job, export=replace(job.export, schema=schema))
