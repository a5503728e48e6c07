"""Who is hit by a plant, when, and by how much."""

import math
import random
from functools import lru_cache

from tests.forge.job import Job, Lengths, Plant


@lru_cache(maxsize=4096)
def _rotated(ranks: tuple[int, ...], iteration: int, seed: int) -> int:
    """The rank drawn for an iteration: random, so that no rank's turn comes at a fixed period."""
    return random.Random(f"{seed}/rotating/{iteration}").choice(ranks)


def hits(plant: Plant, rank: int, iteration: int, seed: int) -> bool:
    """Whether a plant changes a rank's iteration."""
    if plant.kind == "balanced" or rank not in plant.ranks:
        return False
    if plant.kind == "transient":
        return iteration in plant.iterations
    if plant.kind in ("periodic", "rotating") and iteration % plant.every != plant.offset:
        return False
    if plant.kind == "rotating":
        return _rotated(plant.ranks, iteration, seed) == rank
    return True


def planted(job: Job, rank: int, iteration: int, where: str, on_host: bool) -> tuple[int, float]:
    """Extra ns and factor that the job's plants put on one phase of one rank's iteration."""
    extra, factor = 0, 1.0
    for plant in job.plants:
        here = plant.where == where and plant.on_host == on_host
        if here and hits(plant, rank, iteration, job.seed):
            extra += plant.extra_ns
            factor *= plant.factor
    return extra, factor


def kernel_factor(job: Job, rank: int, iteration: int, name: str) -> float:
    """How much slower the job's plants make one kernel of a rank's iteration."""
    factor = 1.0
    for plant in job.plants:
        here = plant.where == "kernel" and plant.kernel == name
        if here and hits(plant, rank, iteration, job.seed):
            factor *= plant.factor
    return factor


@lru_cache(maxsize=1 << 16)
def tokens(lengths: Lengths, rank: int, iteration: int, seed: int) -> int:
    """Length of a rank's batch: drawn for itself, so that nothing else changes it."""
    rng = random.Random(f"{seed}/length/{rank}/{iteration}")
    return max(1, round(lengths.mean * math.exp(rng.gauss(0.0, lengths.sigma))))


def some_iterations(seed: int, iterations: int) -> tuple[int, ...]:
    """A tenth of a job's iterations, drawn after its warm-up: those of a transient plant."""
    later = range(min(3, iterations), iterations)
    count = max(1, len(later) // 10) if later else 0
    return tuple(sorted(random.Random(f"{seed}/hits").sample(later, count)))


def hit_list(job: Job, plant: Plant) -> list[tuple[int, int]]:
    """Every (rank, iteration) that a plant hits, in order of iteration."""
    return [
        (rank, i)
        for i in range(job.iterations)
        for rank in range(job.ranks)
        if hits(plant, rank, i, job.seed)
    ]
