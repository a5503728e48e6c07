"""Named jobs in which what one rank does reaches the others by more than an all-reduce's wait:
pipelines, uneven batches, contention, pauses. They stand in `scenes.SCENES` with the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tests.forge.job import (
    MILLISECOND,
    Contention,
    Job,
    Lengths,
    Network,
    Noise,
    Plant,
    PlantKind,
    Where,
    Work,
    pipeline_groups,
)
from tests.forge.plants import some_iterations


def pipeline(
    ranks: int = 16,
    iterations: int = 30,
    seed: int = 0,
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
    noise: float = 0.03,
    walk: float = 0.0,
) -> Job:
    """A pipeline, data-parallel over its replicas: who waits for a slow worker is its victim.

    GPipe: each stage runs all micro-batches forward, then all backward, sending to and receiving
    from its neighbours by NCCL kernels that run until both sides are there; its last backward
    reduces the gradients over the ranks of the same stage. Rank = replica * pp + stage.

    Args:
        ranks: Number of ranks.
        iterations: Number of iterations.
        seed: Seed of everything random.
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
        noise: Relative spread of all durations.
        walk: Bound of each rank's slow random walk.
    """
    stages = pp or max(1, min(4, ranks // 2))
    plants: tuple[Plant, ...] = ()
    if slow == "stage":
        last = tuple(range(stages - 1, ranks, stages))
        plants = (Plant("structural", "data", last, factor=factor),)
    elif slow == "worker":
        multiplied = where in ("device", "kernel", "data")
        plants = (
            Plant(
                kind,
                where,
                (rank if rank >= 0 else ranks - stages + stages // 2,),
                extra_ns=0 if multiplied else round(extra_ms * MILLISECOND),
                factor=factor if multiplied else 1.0,
                iterations=some_iterations(seed, iterations) if kind == "transient" else (),
                every=every if kind == "periodic" else 1,
            ),
        )
    return Job(
        "pipeline",
        ranks,
        iterations,
        seed,
        communicators=pipeline_groups(ranks, stages),
        work=Work(forward_kernels=2, backward_kernels=3, optimizer_kernels=2),
        noise=Noise(sigma=noise, walk=walk),
        plants=plants,
        buckets=2,
        micro_batches=micro_batches,
        stages=stages,
        roles=f"pp={stages},dp={ranks // stages}",
    )


def sequence_lengths(
    ranks: int = 8,
    iterations: int = 30,
    seed: int = 0,
    *,
    sigma: float = 0.3,
    noise: float = 0.03,
    walk: float = 0.0,
) -> Job:
    """Batches of random length: another rank is slow each time, and nobody is to blame.

    The kernels' grids are as long as the batch: other work, not the same work done slower.
    """
    job = Job("sequence_lengths", ranks, iterations, seed, lengths=Lengths(sigma=sigma))
    return replace(job, noise=Noise(sigma=noise, walk=walk))


def contention(
    ranks: int = 8,
    iterations: int = 30,
    seed: int = 0,
    *,
    factor: float = 1.3,
    extra_ms: float = 8.0,
    only: int = -1,
    noise: float = 0.03,
    walk: float = 0.0,
) -> Job:
    """Kernels run slower beside a collective: whoever waits longest computes slowest beside it.

    Rank 1's forward takes `extra_ms` more in every fifth iteration; everybody else then waits for
    it with the first bucket's kernel running beside the rest of backward. With `only`, one rank
    alone suffers (its memory is slower), and no rank is planted.
    """
    extra = round(extra_ms * MILLISECOND)
    plants = (Plant("periodic", "forward", (1 % ranks,), extra_ns=extra, every=5, offset=2),)
    suffering = Contention(factor, (only,) if only >= 0 else ())
    return Job(
        "contention",
        ranks,
        iterations,
        seed,
        network=Network(transfer_ns=(MILLISECOND, 3 * MILLISECOND)),
        noise=Noise(sigma=noise, walk=walk),
        plants=() if only >= 0 else plants,
        contention=suffering,
    )


def garbage(
    ranks: int = 8,
    iterations: int = 30,
    seed: int = 0,
    *,
    rank: int = 2,
    where: Where = "forward",
    extra_ms: float = 12.0,
    noise: float = 0.03,
    walk: float = 0.0,
) -> Job:
    """Python collects garbage on one rank now and then: the host pauses and its device starves.

    The pause has a range `gc.collect` of its own inside the phase.
    """
    plant = Plant(
        "transient",
        where,
        (rank % ranks,),
        extra_ns=round(extra_ms * MILLISECOND),
        iterations=some_iterations(seed, iterations),
        on_host=True,
        named="gc.collect",
    )
    job = Job("garbage", ranks, iterations, seed, plants=(plant,))
    return replace(job, noise=Noise(sigma=noise, walk=walk))
