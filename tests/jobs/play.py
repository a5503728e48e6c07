"""Plays a job, and says what a plant costs."""

from __future__ import annotations

import math
from functools import cache

from tests.jobs.draws import generator
from tests.jobs.engine import Engine
from tests.jobs.job import MS, Job
from tests.jobs.script import Script
from tests.jobs.state import Played

BULK = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "broadcast": 1.0}
"""How often a ring moves a message, as a multiple of (n - 1) / n; an all-to-all once."""

DRAWN = 4_096


class Wires:
    """What transfers of a job take; the draws depend on communicator, sender and ordinal."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._links = [plant for plant in job.plants if plant.what == "link"]
        self._across = {
            name: len({job.host_of(rank) for rank in ranks}) > 1
            for name, ranks in job.groups.items()
        }
        self._drawn = cache(self._draw)

    def transfer(
        self, comm: str, operation: str, nbytes: int, iteration: int, ordinal: int
    ) -> tuple[int, dict[int, int]]:
        """What a collective takes once all have come, and how long after it each is through."""
        job, members = self.job, self.job.groups[comm]
        count = len(members)
        network = job.network
        speed = network.between_hosts if self._across[comm] else network.within_host
        moved = BULK.get(operation, 1.0) * (count - 1) / count * nbytes
        hops = math.ceil(math.log2(max(2, count)))
        noise = self._drawn(comm)[ordinal % DRAWN]
        lasts = (network.latency_ns * hops / 2 + moved / speed) * math.exp(
            job.noise.transfer * noise
        )
        lasts *= self._slow(comm, members, iteration)
        skews = generator(job.seed, "skew", comm, ordinal).integers(
            0, network.skew_ns + 1, count, endpoint=False
        )
        return round(lasts), dict(zip(members, skews.tolist(), strict=True))

    def message(self, comm: str, sender: int, receiver: int, nbytes: int, ordinal: int) -> int:
        """What a message takes once both ends have come."""
        job, network = self.job, self.job.network
        across = job.host_of(sender) != job.host_of(receiver)
        speed = network.between_hosts if across else network.within_host
        noise = self._drawn(f"{comm}/{sender}/{receiver}")[ordinal % DRAWN]
        lasts = (network.latency_ns / 2 + nbytes / speed) * math.exp(job.noise.transfer * noise)
        return round(lasts * self._slow(comm, (sender, receiver), None))

    def _slow(self, comm: str, members: tuple[int, ...], iteration: int | None) -> float:
        factor = 1.0
        for plant in self._links:
            hit = plant.iterations is None or iteration in plant.iterations
            if hit and comm.startswith(plant.comm) and not set(members).isdisjoint(plant.ranks):
                factor *= plant.factor
        return factor

    def _draw(self, what: str) -> list[float]:
        drawn: list[float] = generator(self.job.seed, "wire", what).standard_normal(DRAWN).tolist()
        return drawn


def play(job: Job, *, record: bool = True) -> Played:
    """Play all ranks of a job.

    Args:
        job: what to play.
        record: keep the rows of reports; without them only the times of iterations are told.
    """
    wires = Wires(job)
    spread = generator(job.seed, "start").integers(0, MS, job.ranks).tolist()
    engine = Engine(
        [Script(job, rank).program() for rank in range(job.ranks)],
        job.groups,
        wires.transfer,
        wires.message,
        starts=[5 * MS + each for each in spread],
        contention=job.contention,
        costs=job.costs,
        iterations=job.iterations,
        record=record,
    )
    return engine.play()


def lengths(ends: list[int]) -> list[int]:
    """How long each iteration of the whole job took; the first from the origin."""
    return [end - before for before, end in zip([0, *ends], ends, strict=False)]
