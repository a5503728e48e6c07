"""Scenes on jobs of several communicators: pipelines, tensor parallelism, experts, slow links."""

from __future__ import annotations

from dataclasses import replace

from tests.jobs import megatron, models
from tests.jobs.draws import generator
from tests.jobs.job import MS, Job, Plant, Report
from tests.jobs.megatron import Layout, Transformer
from tests.jobs.scene import (
    COMMUNICATION,
    COMPUTING,
    INCONCLUSIVE,
    PERSISTENT,
    ROTATING,
    STRUCTURAL,
    Answer,
    Culprit,
    Scene,
    ddp,
    even,
    lognormal,
    number,
    one,
    pick,
    plant,
    scene,
    table,
)


def transformer(name: str, layout: Layout, seed: int, iterations: int = 40, **model: object) -> Job:
    """A healthy job of several kinds of parallelism."""
    ranks = layout.tensor * layout.data * layout.stages
    drawn = generator(seed, name, ranks, "job")
    size = float(drawn.uniform(0.8, 1.25))
    usual: dict[str, object] = {
        "layers": 2 if ranks > 8 else 3,
        "forward_ns": round(2.5 * MS * size),
        "backward_ns": round(5 * MS * size),
        "micro_batches": 4 if ranks > 8 else 6,
    }
    return Job(
        name=name,
        ranks=ranks,
        iterations=iterations,
        seed=seed,
        step=megatron.step,
        model=Transformer(layout, **(usual | model)),
        groups=layout.groups(),
        report=Report(payload=seed % 2 == 1, schema="2022.4" if seed % 5 == 4 else "2023.4"),
        contention=float(drawn.uniform(1.03, 1.12)),
        ranks_per_host={4: 2, 8: 4}.get(ranks, 8),
        roles=layout.roles,
    )


def pipeline(ranks: int) -> Layout:
    """A pipeline of two or four stages, without tensor parallelism."""
    stages = 2 if ranks <= 8 else 4
    return Layout(1, ranks // stages, stages)


def tensor(ranks: int) -> Layout:
    """Tensor parallelism over two or four neighbours."""
    width = 2 if ranks == 4 else 4
    return Layout(width, ranks // width, 1)


def _heavy(layout: Layout, factor: float) -> tuple[float, ...]:
    return (1.0,) * (layout.stages - 1) + (factor,)


@scene()
def heavy_last_stage(ranks: int, seed: int) -> Scene:
    """The last pipeline stage has half as many layers again; a stage fills machines, and nobody
    says which ranks are of which stage. Its ranks do what they are told to.
    """
    layout = pipeline(ranks)
    job = transformer("heavy_last_stage", layout, seed, weights=_heavy(layout, 1.5))
    heavy = tuple(range(ranks - layout.data, ranks))
    light = replace(job, model=replace(job.model, weights=()))
    answer = Answer(frozenset({STRUCTURAL}), more_work=heavy, even=light)
    return Scene(job, answer)


@scene()
def half_without_report(ranks: int, seed: int) -> Scene:
    """Half of the replicas have no report, and the first stage is heavier: who waits for whom
    cannot be known.
    """
    layout = pipeline(ranks)
    weights = (1.5,) + (1.0,) * (layout.stages - 1)
    job = transformer("half_without_report", layout, seed, weights=weights)
    kept = tuple(rank for rank in range(ranks) if layout.place(rank)[1] % 2 == 0)
    job = replace(job, report=replace(job.report, ranks=kept))
    return Scene(job, Answer(frozenset({STRUCTURAL, INCONCLUSIVE})))


@scene()
def slow_in_a_stage(ranks: int, seed: int) -> Scene:
    """One device of one stage is slow; its replica is late at the reduction, its pipeline before
    that.
    """
    layout = pipeline(ranks)
    job = transformer("slow_in_a_stage", layout, seed)
    slow = pick(job)
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.18, 1.3)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene()
def two_communicators(ranks: int, seed: int) -> Scene:
    """Tensor-parallel all-reduces in line, data-parallel ones beside: one device is slow, and ends
    of collectives scatter over 1.5 us.
    """
    layout = tensor(ranks)
    job = transformer("two_communicators", layout, seed, micro_batches=2, overlapped=True)
    slow = pick(job)
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.12, 1.2)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene(8, 32, 128)
def tensor_parallel(ranks: int, seed: int) -> Scene:
    """Tensor parallelism over four, without overlap of the gradient reduction; a slow device."""
    job = transformer("tensor_parallel", tensor(ranks), seed, micro_batches=2)
    slow = pick(job)
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.12, 1.25)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene(8, 32, 128)
def three_dimensions(ranks: int, seed: int) -> Scene:
    """Tensor, data and pipeline parallelism at once: a slow device delays its tensor group, then
    its pipeline, then its replicas.
    """
    width, stages = (2, 2) if ranks == 8 else (4, 2)
    layout = Layout(width, ranks // width // stages, stages)
    job = transformer("three_dimensions", layout, seed, layers=2, micro_batches=4)
    slow = pick(job)
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.15, 1.3)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene(4, 8, 32)
def imbalanced_experts(ranks: int, seed: int) -> Scene:
    """Routing gives experts more tokens here and fewer there, anew in each iteration."""
    job = _experts("imbalanced_experts", ranks, seed)
    amounts = lognormal(job, "tokens", number(job, "sigma", 0.3, 0.5))
    amounts /= amounts.mean(axis=0)
    job = plant(job, Plant("tokens", amounts=table(amounts)))
    return Scene(job, Answer(frozenset({ROTATING}), phases=COMPUTING, even=even(job)))


@scene(4, 8, 32)
def hot_expert(ranks: int, seed: int) -> Scene:
    """One expert is asked more often than the others, in all iterations."""
    job = _experts("hot_expert", ranks, seed)
    hot = pick(job)
    job = plant(job, Plant("tokens", hot, factor=number(job, "factor", 1.4, 1.8)))
    return Scene(job, Answer(frozenset({STRUCTURAL}), phases=COMPUTING, more_work=hot))


def _experts(name: str, ranks: int, seed: int) -> Job:
    job = ddp(name, ranks, seed, experts=True, layers=4)
    everybody = tuple(range(ranks))
    return replace(job, step=models.step, groups={"dp": everybody, "ep": everybody})


@scene(8, 32, 128)
def slow_link_of_a_host(ranks: int, seed: int) -> Scene:
    """Inside one machine the links are slow: the tensor-parallel groups there move their data four
    to six times as long as those of other machines.
    """
    width = 2 if ranks == 8 else 4
    layout = Layout(width, ranks // width, 1)
    job = transformer(
        "slow_link_of_a_host", layout, seed, micro_batches=2, activation_bytes=25_165_824
    )
    host = job.host_of(pick(job)[0])
    hit = job.on_host(host)
    link = Plant("link", hit, factor=number(job, "factor", 4.0, 6.0), comm="tp")
    job = plant(job, link)
    culprit = Culprit(hit, frozenset({COMMUNICATION}), frozenset(), host, must=False)
    return Scene(job, Answer(culprits=(culprit,), even=job.healed()))


@scene(8, 32, 128)
def slow_communicator(ranks: int, seed: int) -> Scene:
    """One of the data-parallel communicators moves its data four times as long as its sisters: a
    network card on its way is slow, but which one cannot be known.
    """
    layout = tensor(ranks)
    job = transformer(
        "slow_communicator", layout, seed, micro_batches=2, gradient_bytes=250_000_000
    )
    index = int(generator(seed, "comm", ranks).integers(layout.tensor))
    comm = f"dp0.{index}"
    link = Plant("link", job.groups[comm], factor=number(job, "factor", 3.5, 5.0), comm=comm)
    job = plant(job, link)
    return Scene(job, Answer(frozenset({COMMUNICATION}), even=job.healed()))


@scene()
def congested_spell(ranks: int, seed: int) -> Scene:
    """The network is congested during a third of the run: all transfers take four times as long."""
    job = ddp("congested_spell", ranks, seed, 60, gradient_bytes=250_000_000)
    begin = int(number(job, "begin", 10, 35))
    hit = frozenset(range(begin, begin + 20))
    link = Plant("link", tuple(range(ranks)), factor=number(job, "factor", 4, 5), iterations=hit)
    job = plant(job, link)
    return Scene(job, Answer(frozenset({COMMUNICATION}), even=job.healed()))


@scene()
def slack(ranks: int, seed: int) -> Scene:
    """The last stage is heavy, and a rank of the first is 8 % slow, which nobody waits for: it is
    slow, but healing it saves nothing.
    """
    layout = pipeline(ranks)
    job = transformer("slack", layout, seed, weights=_heavy(layout, 1.7))
    slow = (int(generator(seed, "slack", ranks).integers(layout.data)),)
    job = plant(job, Plant("device", slow, factor=1.08))
    heavy = tuple(range(ranks - layout.data, ranks))
    return Scene(job, Answer(frozenset({STRUCTURAL}), more_work=heavy))
