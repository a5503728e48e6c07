"""Scenes on data-parallel jobs: devices, hosts, loading, lengths."""

from __future__ import annotations

from dataclasses import replace

from tests.jobs.draws import generator
from tests.jobs.job import MS, Noise, Plant
from tests.jobs.scene import (
    BALANCED,
    COMPUTING,
    INCONCLUSIVE,
    PERIODIC,
    PERSISTENT,
    ROTATING,
    STRUCTURAL,
    TRANSIENT,
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


@scene()
def slow_gpu(ranks: int, seed: int) -> Scene:
    """One device is 15 to 20 % slower in everything, beside collectives that slow all devices.

    Everybody waits for it at the first bucket. Persistent; the passes.
    """
    job = ddp("slow_gpu", ranks, seed)
    job = replace(job, contention=number(job, "contention", 1.1, 1.2))
    slow = pick(job)
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.15, 1.2)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene()
def varying_lengths(ranks: int, seed: int) -> Scene:
    """Sequences differ in length on every rank and iteration; who is last rotates.

    Nobody is at fault, and evening out the lengths would save a lot.
    """
    job = ddp("varying_lengths", ranks, seed)
    amounts = table(lognormal(job, "lengths", number(job, "sigma", 0.15, 0.3)))
    job = plant(job, Plant("tokens", amounts=amounts))
    return Scene(job, Answer(frozenset({ROTATING}), phases=COMPUTING, even=even(job)))


@scene()
def slow_host(ranks: int, seed: int) -> Scene:
    """Launches of small kernels: all hosts are just ahead of their devices but one, whose Python is
    two to three times as slow, so its device starves while buckets are on their way.
    """
    count = {128: 3, 32: 6}.get(ranks, 12)
    job = ddp(
        "slow_host",
        ranks,
        seed,
        layers=count,
        forward_ns=7_200_000,
        backward_ns=13_200_000,
        python_ns=840_000 // count,
        load="inline",
        sync_every=1,
    )
    slow = pick(job)
    job = plant(job, Plant("host", slow, factor=number(job, "factor", 2.0, 3.0)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene()
def two_slow_gpus(ranks: int, seed: int) -> Scene:
    """Two devices are slow alike: healing one of them saves next to nothing."""
    job = ddp("two_slow_gpus", ranks, seed)
    slow, factor = pick(job, 2), number(job, "factor", 1.14, 1.22)
    job = plant(job, *(Plant("device", (rank,), factor=factor) for rank in slow))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene()
def storage_spell(ranks: int, seed: int) -> Scene:
    """The storage of one machine stalls over 18 consecutive iterations of 60: each of its ranks
    loads 5 to 12 ms longer in these.
    """
    job = ddp("storage_spell", ranks, seed, 60)
    host = job.host_of(pick(job)[0])
    hit = job.on_host(host)
    begin = int(number(job, "begin", 8, 35))
    drawn = generator(seed, "storage", ranks)
    amounts = {
        (rank, iteration): float(drawn.uniform(5, 12)) * MS
        for rank in hit
        for iteration in range(begin, begin + 18)
    }
    job = plant(job, Plant("load", amounts=amounts))
    culprit = Culprit(hit, frozenset({PERSISTENT, TRANSIENT}), frozenset({"load"}), host)
    return Scene(job, Answer(culprits=(culprit,)))


@scene()
def power_cap(ranks: int, seed: int) -> Scene:
    """A power cap goes on and off on one device: slow in spells, half of the time."""
    job = ddp("power_cap", ranks, seed, 60)
    slow = pick(job)
    drawn = generator(seed, "spells", ranks)
    hit, at, on = set(), int(drawn.integers(2, 8)), True
    while at < job.iterations:
        lasts = int(drawn.integers(6, 14))
        hit |= set(range(at, at + lasts)) if on else set()
        at, on = at + lasts, not on
    factor = number(job, "factor", 1.12, 1.2)
    job = plant(job, Plant("device", slow, factor=factor, iterations=frozenset(hit)))
    return one(job, slow, {PERSISTENT, TRANSIENT}, COMPUTING)


@scene()
def lone_events_of_a_host(ranks: int, seed: int) -> Scene:
    """Thirty-two times one rank of one machine stands still for 8 to 15 ms, each time another."""
    job = ddp("lone_events_of_a_host", ranks, seed, 60, sync_every=1)
    host = job.host_of(pick(job)[0])
    members = job.on_host(host)
    drawn = generator(seed, "events", ranks)
    when = drawn.choice(range(2, job.iterations), 32, replace=False).tolist()
    amounts = {
        (members[int(drawn.integers(len(members)))], iteration): float(drawn.uniform(8, 15)) * MS
        for iteration in when
    }
    job = plant(job, Plant("stall", phase="forward", amounts=amounts))
    hit = tuple(sorted({rank for rank, _ in amounts}))
    culprit = Culprit(hit, frozenset({TRANSIENT, PERSISTENT}), frozenset({"forward"}), host)
    return Scene(job, Answer(culprits=(culprit,), spared=members))


@scene()
def heavy_tailed_loading(ranks: int, seed: int) -> Scene:
    """Loading has a heavy tail on every rank alike: whoever drew the worst is not at fault."""
    job = ddp("heavy_tailed_loading", ranks, seed)
    drawn = generator(seed, "tails", ranks)
    extra = (drawn.pareto(1.8, (ranks, job.iterations)) * 0.9 * MS).clip(0, 40 * MS)
    job = plant(job, Plant("load", amounts=table(extra)))
    return Scene(job, Answer(frozenset({ROTATING}), phases=frozenset({"load"}), even=even(job)))


@scene()
def alternating_steps(ranks: int, seed: int) -> Scene:
    """Two kinds of iterations in turn (generator and discriminator, or `no_sync`), and one device
    that is slow in both alike.
    """
    kinds = {"kinds": (1.0, 1.7)} if seed % 2 else {"reduce_every": 2}
    job = ddp("alternating_steps", ranks, seed, **kinds, clip=False)
    slow = pick(job)
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.12, 1.2)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene()
def two_culprits(ranks: int, seed: int) -> Scene:
    """A slow device, and another rank that stands still for long now and then."""
    job = ddp("two_culprits", ranks, seed, 60, sync_every=1)
    slow, stalled = generator(seed, "two", ranks).permutation(ranks)[:2].tolist()
    drawn = generator(seed, "stalls", ranks)
    when = drawn.choice(range(3, job.iterations), 12, replace=False).tolist()
    amounts = {(stalled, iteration): float(drawn.uniform(12, 20)) * MS for iteration in when}
    job = plant(
        job,
        Plant("device", (slow,), factor=number(job, "factor", 1.12, 1.18)),
        Plant("stall", phase="forward", amounts=amounts),
    )
    culprits = (
        Culprit((slow,), frozenset({PERSISTENT}), COMPUTING),
        Culprit((stalled,), frozenset({TRANSIENT}), frozenset({"forward"})),
    )
    return Scene(job, Answer(culprits=culprits))


@scene()
def fsdp(ranks: int, seed: int) -> Scene:
    """Sharded parameters, gathered a layer ahead; one device is slow."""
    job = ddp("fsdp", ranks, seed, sharded=True)
    slow = pick(job)
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.12, 1.2)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene()
def accumulation(ranks: int, seed: int) -> Scene:
    """Four micro-batches an iteration, of which the last reduces; one device is slow."""
    job = ddp("accumulation", ranks, seed, accumulate=3, layers=3)
    slow = pick(job)
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.1, 1.18)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene()
def evaluation(ranks: int, seed: int) -> Scene:
    """All ranks evaluate every tenth iteration, before the step. Nobody is slow."""
    job = ddp("evaluation", ranks, seed, evaluate_every=10)
    return Scene(job, Answer(frozenset({BALANCED})))


@scene()
def checkpoint(ranks: int, seed: int) -> Scene:
    """Rank 0 writes a checkpoint every 8th iteration, and the others wait in the next step."""
    job = ddp("checkpoint", ranks, seed, 60, checkpoint_every=8)
    when = frozenset(range(7, 60, 8))
    stall = Plant("stall", (0,), extra_ns=round(number(job, "ns", 25, 60) * MS), iterations=when)
    job = plant(job, replace(stall, phase="checkpoint"))
    return one(job, (0,), {PERIODIC}, {"other", "load"})


@scene()
def lone_stalls(ranks: int, seed: int) -> Scene:
    """One rank's host stands still for 10 to 20 ms in 7 of 40 iterations, at no fixed distance."""
    job = ddp("lone_stalls", ranks, seed, sync_every=1)
    slow = pick(job)
    drawn = generator(seed, "lone", ranks)
    when = drawn.choice(range(3, job.iterations), 7, replace=False).tolist()
    amounts = {(slow[0], iteration): float(drawn.uniform(10, 20)) * MS for iteration in when}
    phase = ("forward", "backward")[seed % 2]
    job = plant(job, Plant("stall", phase=phase, amounts=amounts))
    return one(job, slow, {TRANSIENT}, {phase})


@scene()
def hidden_stalls(ranks: int, seed: int) -> Scene:
    """One rank's host stands still in the optimizer in every third iteration, while its device has
    a queue full of backward kernels: nobody waits for it.
    """
    job = ddp("hidden_stalls", ranks, seed, clip=False, sync_every=1)
    slow, when = pick(job), frozenset(range(2, 40, 3))
    extra = round(0.4 * job.model.backward_ns)
    stall = Plant("stall", slow, extra_ns=extra, iterations=when, phase="optimizer")
    return Scene(plant(job, stall), Answer(frozenset({BALANCED})))


@scene()
def run_ahead(ranks: int, seed: int) -> Scene:
    """Nothing synchronises, so hosts run ahead until a launch queue is full, and their ranges tell
    nothing of when the device did it. One device is slow.
    """
    job = ddp("run_ahead", ranks, seed, 60, sync_every=0, clip=False, load_ns=300_000)
    slow = pick(job)
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.12, 1.2)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene()
def slow_workers(ranks: int, seed: int) -> Scene:
    """The loader's workers of one rank make a batch in more time than a step takes, so that from
    some point on its stock is empty and each step waits for data.
    """
    job = ddp("slow_workers", ranks, seed, load="workers", load_ns=12 * MS, sync_every=1)
    slow = pick(job)
    job = plant(job, Plant("produce", slow, extra_ns=round(number(job, "ns", 36, 42) * MS)))
    return one(job, slow, {PERSISTENT}, {"load"})


@scene(8, 32, 128)
def shadowed(ranks: int, seed: int) -> Scene:
    """Two slow devices, one far slower than the other: healing the lesser alone saves nothing."""
    job = ddp("shadowed", ranks, seed)
    slow, lesser = generator(seed, "shadow", ranks).permutation(ranks)[:2].tolist()
    job = plant(job, Plant("device", (slow,), factor=1.22), Plant("device", (lesser,), factor=1.06))
    return one(job, (slow,), {PERSISTENT}, COMPUTING, spared=(lesser,))


@scene(32, 128)
def slow_machine(ranks: int, seed: int) -> Scene:
    """All devices of one machine are throttled: naming the machine is enough."""
    job = ddp("slow_machine", ranks, seed)
    host = job.host_of(pick(job)[0])
    hit = job.on_host(host)
    job = plant(job, Plant("device", hit, factor=number(job, "factor", 1.12, 1.2)))
    culprit = Culprit(hit, frozenset({PERSISTENT}), COMPUTING, host)
    return Scene(job, Answer(culprits=(culprit,)))


@scene(8, 32)
def straggler_among_half(ranks: int, seed: int) -> Scene:
    """A device is slow, and half of the ranks have no report: what healing saves is not known."""
    job = ddp("straggler_among_half", ranks, seed)
    slow = pick(job)
    kept = tuple(rank for rank in range(ranks) if rank % 2 == slow[0] % 2)
    job = replace(job, report=replace(job.report, ranks=kept))
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.15, 1.2)))
    classes = frozenset({PERSISTENT, INCONCLUSIVE})
    return Scene(job, Answer(culprits=(Culprit(slow, classes, COMPUTING, must=False),)))


@scene()
def jitter(ranks: int, seed: int) -> Scene:
    """Nothing but noise, of another shape for each seed."""
    job = ddp("jitter", ranks, seed)
    shapes = (
        Noise(step=0.01),
        Noise(step=0.006, tail=True),
        Noise(pause_share=0.04, pause_ns=1_500_000),
        Noise(walk=0.015),
        Noise(kernel=0.05, host=0.3, transfer=0.15),
    )
    still = replace(job, noise=Noise(*[0.0] * 5))
    return Scene(replace(job, noise=shapes[seed % 5]), Answer(frozenset({BALANCED}), even=still))


@scene()
def more_work(ranks: int, seed: int) -> Scene:
    """Some ranks are given 31 % more tokens: no fault of theirs."""
    job = ddp("more_work", ranks, seed)
    given = pick(job, max(1, ranks // 8))
    job = plant(job, Plant("tokens", given, factor=1.31))
    answer = Answer(frozenset({STRUCTURAL}), phases=COMPUTING, more_work=given)
    return Scene(job, answer)


@scene()
def three_percent(ranks: int, seed: int) -> Scene:
    """A device that is 3 % slower in quiet surroundings."""
    job = ddp("three_percent", ranks, seed)
    slow = pick(job)
    job = replace(job, noise=Noise(kernel=0.01, step=0.002, static=0.0005))
    job = plant(job, Plant("device", slow, factor=number(job, "factor", 1.03, 1.035)))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene()
def every_seventh(ranks: int, seed: int) -> Scene:
    """Every seventh batch of one rank takes 8 to 15 ms longer to load."""
    job = ddp("every_seventh", ranks, seed, 60)
    slow = pick(job)
    when = frozenset(range(seed % 7, 60, 7))
    extra = round(number(job, "ns", 8, 15) * MS)
    job = plant(job, Plant("load", slow, extra_ns=extra, iterations=when))
    return one(job, slow, {PERIODIC}, {"load"})


@scene()
def slow_since(ranks: int, seed: int) -> Scene:
    """A device gets slow in the middle of the run, and stays so."""
    job = ddp("slow_since", ranks, seed)
    slow, since = pick(job), int(number(job, "since", 12, 28))
    factor = number(job, "factor", 1.12, 1.25)
    job = plant(job, Plant("device", slow, factor=factor, iterations=frozenset(range(since, 40))))
    return one(job, slow, {PERSISTENT}, COMPUTING)


@scene()
def garbage_collection(ranks: int, seed: int) -> Scene:
    """In each iteration some rank's Python collects garbage for 5 to 10 ms: now this, now that."""
    job = ddp("garbage_collection", ranks, seed, sync_every=1)
    drawn = generator(seed, "gc", ranks)
    amounts = {
        (int(drawn.integers(ranks)), iteration): float(drawn.uniform(5, 10)) * MS
        for iteration in range(job.iterations)
    }
    job = plant(job, Plant("stall", phase="forward", amounts=amounts))
    return Scene(job, Answer(frozenset({ROTATING}), phases=frozenset({"forward"}), even=even(job)))
