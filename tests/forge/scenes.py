"""Named jobs, each built to catch one way of reading a trace wrongly.

A scene is a function `(job, **parameters) -> Job` that changes a plain job; `SCENES` names all.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from tests.forge.job import (
    MILLISECOND,
    Clock,
    Contention,
    Export,
    Job,
    Lengths,
    Markers,
    Network,
    Noise,
    Plant,
    PlantKind,
    Where,
    Work,
    pipeline_groups,
    tensor_groups,
)
from tests.forge.plants import some_iterations


def plain(job: Job) -> Job:
    """A DDP job in which nothing is wrong: whatever is flagged here is a false alarm."""
    return job


def autograd(job: Job, *, extra_ms: float = 6.0) -> Job:
    """Backward is launched by another thread: matching launches to ranges by thread loses it.

    The last rank's backward is `extra_ms` longer in every fifth iteration.
    """
    return replace(job, plants=_every(5, "backward", job.ranks - 1, extra_ms))


def buckets(job: Job, *, extra_ms: float = 5.0, rank: int = 1) -> Job:
    """Five overlapping all-reduces of 0.5 to 3 ms queue up: kernel starts are not arrivals.

    One rank's forward takes `extra_ms` more in every fifth iteration; its `work` must exceed the
    others' by just that. Lateness read off the starts of queued kernels shows next to nothing.
    """
    network = Network(transfer_ns=(MILLISECOND // 2, 3 * MILLISECOND))
    return replace(job, network=network, plants=_every(5, "forward", rank, extra_ms))


def dali(job: Job, *, extra_ms: float = 0.0) -> Job:
    """A loader's thread runs kernels over the iterations' borders: they belong to no phase.

    With `extra_ms`, rank 0 loads longer in every fifth iteration.
    """
    plants = _every(5, "load", 0, extra_ms) if extra_ms else ()
    return replace(job, background_loader=True, plants=plants)


def copy_in_forward(job: Job, *, own_stream: bool = False) -> Job:
    """The batch is copied inside `forward`: a copy is not loading because it is a copy."""
    return replace(job, copy_at="forward", copy_stream=own_stream)


def trailing_all_gather(job: Job) -> Job:
    """ZeRO: gradients are reduce-scattered, and an all-gather trails the optimizer.

    The all-gather is no gradient reduction, and runs after the iteration's last own work.
    """
    return replace(job, gradient_op="reduce_scatter", trailing_all_gather=True)


def no_sync(job: Job, *, every: int = 4) -> Job:
    """Accumulation over iterations: only every fourth reduces, the others have no reduction."""
    return replace(job, reduce_every=every)


def micro_batches(job: Job, *, count: int = 3) -> Job:
    """Accumulation inside an iteration: several forwards and backwards, one reduction."""
    return replace(job, micro_batches=count)


def load_between(job: Job) -> Job:
    """`for batch in loader:` fetches between the iteration ranges, and no range names it.

    Rank 2 loads 12 ms longer in every seventh iteration.
    """
    plants = _every(7, "load", 2 % job.ranks, 12.0)
    return replace(job, load_at="between", plants=plants, markers=Markers(load=None))


def load_inside(job: Job) -> Job:
    """The fetch opens the iteration range, unnamed; rank 2 is slow at it as in `load_between`."""
    return replace(load_between(job), load_at="inside")


def loss_all_reduce(job: Job) -> Job:
    """A small all-reduce of the loss follows the optimizer: the last one, yet not of gradients."""
    return replace(job, loss_all_reduce=True, item_copy=True)


def buffers(job: Job, *, extra_ms: float = 12.0, rank: int = 2, where: Where = "load") -> Job:
    """DDP with BatchNorm: rank 0 sends buffers ahead of each forward, from rank to rank.

    Ranks before the late one leave the broadcasts at once, those after it wait for it.
    """
    return replace(job, broadcasts=2, plants=_every(5, where, rank, extra_ms))


def free_running(job: Job, *, queue: int = 1_000) -> Job:
    """The host never waits for the device and runs ahead of it: loading hides, launches are old."""
    return replace(job, sync_every_step=False, host=replace(job.host, queue_limit=queue))


def shuffled(job: Job) -> Job:
    """The rows of every event table come in random order, names as registered strings."""
    return replace(planted(job), export=Export(shuffle_rows=True, registered_names=True))


def offsets(
    job: Job,
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
    job = planted(job, kind="transient", where="backward")
    rng = random.Random(f"{job.seed}/clocks")
    machines = (job.ranks + job.ranks_per_host - 1) // job.ranks_per_host
    clocks = [
        Clock(
            round(rng.uniform(-offset_s, offset_s) * 1e9),
            round(rng.uniform(-drift_ppm, drift_ppm), 3),
        )
        for _ in range(machines)
    ]
    each = tuple(clocks[rank // job.ranks_per_host] for rank in range(job.ranks))
    job = replace(job, clocks=each, network=Network(skew_ns=round(skew_us * 1_000)))
    return job if tp == 1 else replace(job, communicators=tensor_groups(job.ranks, tp))


def planted(
    job: Job,
    *,
    kind: PlantKind = "persistent",
    where: Where = "forward",
    rank: int = -1,
    extra_ms: float = 8.0,
    factor: float = 1.25,
    every: int = 5,
    on_host: bool = False,
    gpu: bool = True,
    kernel: str = "sgemm:nt",
) -> Job:
    """One plant of any kind in any place; the ground truth of the verdict.

    Args:
        kind: See `Plant`; `structural` hits the upper half of the ranks.
        where: See `Plant`; `device`, `kernel` and `data` use `factor`, the phases `extra_ms`.
        rank: Who is hit, counted from the end if negative.
        factor: How much slower a hit device is.
        every: Period of a `periodic` plant.
        on_host: Spend the extra time before the launches instead of in the kernels.
        gpu: False plants the same into a job without CUDA.
        kernel: The slower one, where that is a kernel.
    """
    hit: tuple[int, ...] = (rank % job.ranks,)
    if kind == "structural":
        hit = tuple(range(job.ranks // 2, job.ranks))
    elif kind == "rotating":
        hit = tuple(range(job.ranks))
    plant = _plant(job, kind, where, hit, extra_ms, factor, every)
    plants = () if kind == "balanced" else (replace(plant, on_host=on_host, kernel=kernel),)
    return replace(job, plants=plants, gpu=gpu, buckets=job.buckets if gpu else 1)


def host_only(job: Job, *, where: Where = "backward", extra_ms: float = 15.0) -> Job:
    """Gloo: no CUDA, the all-reduce blocks inside `backward`, so all backwards look long.

    Rank 1 is `extra_ms` late every seventh iteration. Sums per range name show it as the fastest.
    """
    plants = _every(7, where, 1 % job.ranks, extra_ms, 3)
    return replace(job, gpu=False, buckets=1, plants=plants)


def mpi_like(job: Job, *, extra_ms: float = 15.0) -> Job:
    """MPI: `all_reduce` around `MPI_Allreduce` in a domain of its own, one call seen twice."""
    return replace(host_only(job, where="load", extra_ms=extra_ms), mpi=True)


def tensor_parallel(job: Job, *, tp: int = 2, extra_ms: float = 8.0) -> Job:
    """Tensor parallel groups inside data parallel ones: a slow rank's partner is its victim.

    Rank 1's forward takes `extra_ms` more in every fifth iteration. All-reduces of activations
    are no gradient reductions.
    """
    groups, roles = tensor_groups(job.ranks, tp), f"tp={tp},dp={job.ranks // tp}"
    plants = _every(5, "forward", 1, extra_ms)
    return replace(job, plants=plants, communicators=groups, roles=roles)


def slow_link(job: Job, *, tp: int = 4, factor: float = 3.0) -> Job:
    """The tensor-parallel group of the first host transfers slowly: none of its ranks is late."""
    transfer = (MILLISECOND, MILLISECOND * 6 // 5)
    network = Network(small_transfer_ns=transfer, slow=("tp0",), factor=factor)
    return replace(tensor_parallel(job, tp=tp), plants=(), network=network)


def no_launch_record(job: Job, *, share: float = 0.2) -> Job:
    """A share of the kernels has no API call in the report: their phase cannot be known."""
    return replace(job, export=Export(unrecorded_share=share))


def cuda_graph(job: Job) -> Job:
    """One graph launch replays forward, backward and their all-reduces: no phases to be had."""
    return replace(job, graph=True, markers=Markers(forward=None, backward=None))


def slow_host(job: Job, *, node: int = 1, extra_ms: float = 8.0) -> Job:
    """All ranks of one machine load longer, always: the host is to blame, not one of its ranks."""
    there = range(node * job.ranks_per_host, (node + 1) * job.ranks_per_host)
    hit = tuple(rank for rank in there if rank < job.ranks)
    return replace(job, plants=(_plant(job, "persistent", "load", hit, extra_ms),))


def late_capture(job: Job, *, late: int = 2, numbered: bool = False) -> Job:
    """The last rank's capture starts `late` iterations after the others'.

    With `numbered=False` the iteration ranges carry no number, so that pairing by ordinal compares
    different steps. A periodic plant on rank 0 shows which pairing is right.
    """
    job = planted(job, kind="periodic", where="forward", rank=0, every=7)
    markers = Markers() if numbered else Markers(iteration="train_step")
    capture = (0,) * (job.ranks - 1) + (late,)
    return replace(job, markers=markers, export=Export(capture_from=capture))


def short_steps(job: Job) -> Job:
    """Steps so short that launching is the bottleneck: the device starves inside the phases."""
    work = Work(MILLISECOND // 5, 20_000, 1 << 20, 60_000, 120_000, 20_000)
    return replace(job, work=work, network=Network(transfer_ns=(20_000, 60_000)))


def pipeline(
    job: Job,
    *,
    pp: int = 0,
    micro_batches: int = 4,
    slow: Literal["worker", "stage", "nobody"] = "worker",
    kind: PlantKind = "persistent",
    where: Where = "forward",
    rank: int = -1,
    extra_ms: float = 8.0,
    factor: float = 1.25,
    every: int = 5,
) -> Job:
    """A pipeline, data-parallel over its replicas: who waits for a slow worker is its victim.

    GPipe: each stage runs all micro-batches forward, then all backward, sending to and receiving
    from its neighbours by NCCL kernels that run until both sides are there; its last backward
    reduces the gradients over the ranks of the same stage. Rank = replica * pp + stage.

    Args:
        pp: Number of stages; 0 means 4, or as many as leave two replicas.
        micro_batches: How many a batch is cut into.
        slow: `worker`: one rank is slow, and all others wait for it in chains. `stage`: the last
            stage has more to do, by design: its role is slow, none of its ranks. `nobody`: all
            wait in the pipeline's bubble, for nobody's fault.
        kind: See `Plant`; of a slow worker.
        where: See `Plant`; `device`, `kernel` and `data` use `factor`, the phases `extra_ms`.
        rank: The slow worker; below 0 means one in the middle of the last replica.
        extra_ms: What a hit costs the slow worker, all micro-batches together.
        factor: How much slower a hit device is, or how much more the last stage has to do.
        every: Period of a `periodic` plant.
    """
    stages = pp or max(1, min(4, job.ranks // 2))
    plants: tuple[Plant, ...] = ()
    if slow == "stage":
        last = tuple(range(stages - 1, job.ranks, stages))
        plants = (Plant("structural", "data", last, factor=factor),)
    elif slow == "worker":
        who = rank if rank >= 0 else job.ranks - stages + stages // 2
        plants = (_plant(job, kind, where, (who,), extra_ms, factor, every),)
    return replace(
        job,
        communicators=pipeline_groups(job.ranks, stages),
        work=Work(forward_kernels=2, backward_kernels=3, optimizer_kernels=2),
        plants=plants,
        buckets=2,
        micro_batches=micro_batches,
        stages=stages,
        roles=f"pp={stages},dp={job.ranks // stages}",
    )


def sequence_lengths(job: Job, *, sigma: float = 0.3) -> Job:
    """Batches of random length: another rank is slow each time, and nobody is to blame.

    The kernels' grids are as long as the batch: other work, not the same work done slower.
    """
    return replace(job, lengths=Lengths(sigma=sigma))


def contention(job: Job, *, factor: float = 1.3, extra_ms: float = 8.0, only: int = -1) -> Job:
    """Kernels run slower beside a collective: whoever waits longest computes slowest beside it.

    Rank 1's forward takes `extra_ms` more in every fifth iteration; everybody else then waits for
    it with the first bucket's kernel running beside the rest of backward. With `only`, one rank
    alone suffers (its memory is slower), and no rank is planted.
    """
    return replace(
        job,
        network=Network(transfer_ns=(MILLISECOND, 3 * MILLISECOND)),
        plants=() if only >= 0 else _every(5, "forward", 1 % job.ranks, extra_ms),
        contention=Contention(factor, (only,) if only >= 0 else ()),
    )


def garbage(job: Job, *, rank: int = 2, where: Where = "forward", extra_ms: float = 12.0) -> Job:
    """Python collects garbage on one rank now and then: the host pauses and its device starves.

    The pause has a range `gc.collect` of its own inside the phase.
    """
    plant = _plant(job, "transient", where, (rank % job.ranks,), extra_ms)
    return replace(job, plants=(replace(plant, on_host=True, named="gc.collect"),))


def _plant(
    job: Job,
    kind: PlantKind,
    where: Where,
    hit: tuple[int, ...],
    extra_ms: float,
    factor: float = 1.0,
    every: int = 1,
) -> Plant:
    """A plant; what multiplies has a factor, and a phase takes longer."""
    multiplied = where in ("device", "kernel", "data")
    return Plant(
        kind,
        where,
        hit,
        extra_ns=0 if multiplied else round(extra_ms * MILLISECOND),
        factor=factor if multiplied else 1.0,
        iterations=some_iterations(job.seed, job.iterations) if kind == "transient" else (),
        every=every if kind == "periodic" else 1,
    )


def _every(
    every: int, where: Where, rank: int, extra_ms: float, offset: int = 2
) -> tuple[Plant, ...]:
    extra = round(extra_ms * MILLISECOND)
    return (Plant("periodic", where, (rank,), extra_ns=extra, every=every, offset=offset % every),)


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
        buffers,
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
        pipeline,
        sequence_lengths,
        contention,
        garbage,
    )
}

USUAL = Job()
SIZES = {"no_sync": (8, 32), "short_steps": (8, 60), "pipeline": (16, 30)}
"""Ranks and iterations of scenes that have others than a plain job."""

EXACT = ("buckets",)
"""Scenes without noise."""

Parameter = str | int | float | bool


def scene(
    name: str,
    ranks: int | None = None,
    iterations: int | None = None,
    seed: int = 0,
    schema: Literal["2022.4", "2023.4"] = "2023.4",
    noise: float | None = None,
    walk: float = 0.0,
    **parameters: Parameter,
) -> Job:
    """The job of a scene by name; what is left out is the scene's own.

    Args:
        noise: Relative spread of all durations.
        walk: Bound of each rank's slow random walk.

    Raises:
        KeyError: No scene has that name.
    """
    size = SIZES.get(name, (USUAL.ranks, USUAL.iterations))
    sigma = 0.0 if name in EXACT else USUAL.noise.sigma
    plain_job = Job(
        name,
        size[0] if ranks is None else ranks,
        size[1] if iterations is None else iterations,
        seed,
        noise=Noise(sigma=sigma if noise is None else noise, walk=walk),
    )
    job = SCENES[name](plain_job, **parameters)
    return replace(job, export=replace(job.export, schema=schema))
