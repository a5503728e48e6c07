"""What a scene is: a job, and what must be said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tests.jobs.draws import generator
from tests.jobs.job import MS, Job, Noise, Plant, Report
from tests.jobs.models import Model, step

PERSISTENT, TRANSIENT, PERIODIC = "persistent", "transient", "periodic"
ROTATING, STRUCTURAL, BALANCED = "rotating", "structural", "balanced"
COMMUNICATION, INCONCLUSIVE = "communication", "inconclusive"

COMPUTING = frozenset({"forward", "backward"})


@dataclass(frozen=True, slots=True)
class Culprit:
    """Somebody who must be named, if healing them saves anything.

    Attributes:
        ranks: All of them.
        classes: How they may be classed.
        phases: Phases that may be named as the cause.
        host: The machine, where it is the culprit: then naming it is enough.
        must: Naming nobody is wrong.
    """

    ranks: tuple[int, ...]
    classes: frozenset[str]
    phases: frozenset[str]
    host: str | None = None
    must: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What is right to say of a job.

    Attributes:
        classes: Right classes where nobody is to be named.
        culprits: Who is to be named.
        spared: Ranks that may be named besides, as it is a matter of taste.
        phases: Phases that may be named where nobody is; empty allows any.
        more_work: Ranks that have more to do, to be listed in `more_work_ranks`.
        even: The job with what varies set to its median over ranks in each iteration: what healing
            everything would give. None where that cannot be said.
    """

    classes: frozenset[str] = frozenset()
    culprits: tuple[Culprit, ...] = ()
    spared: tuple[int, ...] = ()
    phases: frozenset[str] = frozenset()
    more_work: tuple[int, ...] = ()
    even: Job | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """A job with its right answer."""

    job: Job
    answer: Answer


@dataclass(frozen=True, slots=True)
class Entry:
    """A scene of the list.

    Attributes:
        make: Ranks and seed → the scene.
        sizes: Numbers of ranks that make sense.
    """

    name: str
    make: Callable[[int, int], Scene]
    sizes: tuple[int, ...]


SCENES: dict[str, Entry] = {}

Maker = Callable[[int, int], Scene]


def scene(*sizes: int) -> Callable[[Maker], Maker]:
    """Put a scene on the list, for some numbers of ranks; by default 4, 8, 32 and 128."""

    def listed(make: Maker) -> Maker:
        name = make.__name__
        SCENES[name] = Entry(name, make, sizes or (4, 8, 32, 128))
        return make

    return listed


def per_host(ranks: int) -> int:
    """GPUs of a machine: there are always two machines and more."""
    return 2 if ranks <= 8 else 8


def layers(ranks: int) -> int:
    """Layers that keep large jobs quick to play."""
    return {128: 4, 32: 6}.get(ranks, 8)


def ddp(name: str, ranks: int, seed: int, iterations: int = 40, **model: object) -> Job:
    """A healthy data-parallel job; length, contention and reports differ from seed to seed."""
    drawn = generator(seed, name, ranks, "job")
    size = float(drawn.uniform(0.8, 1.25))
    usual: dict[str, object] = {
        "layers": layers(ranks),
        "forward_ns": round(9 * MS * size),
        "backward_ns": round(18 * MS * size),
        "clip": bool(drawn.random() < 0.4),
        "sync_every": int(drawn.choice([1, 1, 1, 4])),
        "load": str(drawn.choice(["inline", "between"])),
    }
    return Job(
        name=name,
        ranks=ranks,
        iterations=iterations,
        seed=seed,
        step=step,
        model=Model(**(usual | model)),
        groups={"dp": tuple(range(ranks))},
        noise=Noise(),
        report=Report(payload=seed % 2 == 1, schema="2022.4" if seed % 5 == 4 else "2023.4"),
        contention=float(drawn.uniform(1.04, 1.15)),
        ranks_per_host=per_host(ranks),
    )


def plant(job: Job, *plants: Plant) -> Job:
    """A job with something planted."""
    return replace(job, plants=(*job.plants, *plants))


def pick(job: Job, count: int = 1) -> tuple[int, ...]:
    """Some ranks, drawn by the job's name and seed."""
    drawn = generator(job.seed, job.name, job.ranks, "culprits")
    return tuple(sorted(drawn.choice(job.ranks, count, replace=False).tolist()))


def number(job: Job, what: str, low: float, high: float) -> float:
    """A number between two, drawn by the job's name and seed."""
    return float(generator(job.seed, job.name, job.ranks, what).uniform(low, high))


def one(
    job: Job,
    ranks: tuple[int, ...],
    classes: set[str],
    phases: set[str] | frozenset[str],
    **answer: object,
) -> Scene:
    """A scene with one culprit, of one rank or several."""
    culprit = Culprit(ranks, frozenset(classes), frozenset(phases))
    return Scene(job, Answer(culprits=(culprit,), **answer))


def even(job: Job) -> Job:
    """A job whose plants with amounts give every rank the lower median of the iteration's."""
    levelled = []
    for each in job.plants:
        if each.amounts is None:
            continue
        neutral = 1.0 if each.what in ("tokens", "device", "host") else 0.0
        amounts: dict[tuple[int, int], float] = {}
        for iteration in {key[1] for key in each.amounts}:
            found = sorted(
                each.amounts.get((rank, iteration), neutral) for rank in range(job.ranks)
            )
            middle = found[(job.ranks - 1) // 2]
            if middle != neutral:
                amounts |= {(rank, iteration): middle for rank in range(job.ranks)}
        levelled.append(replace(each, amounts=amounts))
    return replace(job, plants=tuple(levelled))


def lognormal(job: Job, what: str, sigma: float) -> np.ndarray:
    """A factor per rank and iteration, with median 1."""
    drawn = generator(job.seed, job.name, job.ranks, what)
    return np.exp(sigma * drawn.standard_normal((job.ranks, job.iterations)))


def table(values: np.ndarray) -> dict[tuple[int, int], float]:
    """Rows of ranks and columns of iterations, as a plant's amounts; zeros are left out."""
    return {
        (rank, iteration): float(value)
        for (rank, iteration), value in np.ndenumerate(values)
        if value != 0.0
    }
