"""The jobs by which verdicts are measured: what is planted in each, and what must be said of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from rankscope.model.kinds import VerdictKind
from tests.forge import Job, scene

WALK = 0.05
NOISE = 0.03
ITERATION_MS = 46.0
COMPUTE_MS = 33.0
LEAST_EFFECT = 0.10
"""Of `ITERATION_MS`, which is as long as an iteration with a tenth more in it."""

STRAGGLERS = (VerdictKind.PERSISTENT, VerdictKind.TRANSIENT, VerdictKind.PERIODIC)
PHASES = ("load", "forward", "backward", "optimizer")
NO_STRAGGLER = {VerdictKind.BALANCED: 10, VerdictKind.ROTATING: 5, VerdictKind.STRUCTURAL: 5}
"""Runs of the classes that name no rank, per seed of a planted kind."""

SPREAD = {8: 0.6, 64: 0.3, 256: 0.1}
"""How those runs are spread over numbers of ranks."""


@dataclass(frozen=True, slots=True)
class Case:
    """One job: what is planted, in what, on how many ranks, with which random numbers.

    `kind` is the verdict's class, or `pipeline`: a persistent slow worker in one. `where` is a
    phase, `device`, or how a kind without culprits comes about.
    """

    kind: str
    where: str
    ranks: int
    seed: int
    iterations: int

    @property
    def key(self) -> str:
        """What names the case among all."""
        return "-".join(str(value) for value in asdict(self).values())

    @property
    def effect(self) -> float:
        """What a hit costs, as a share of the iteration: a tenth and more."""
        return LEAST_EFFECT + 0.01 * (self.seed % 20)

    @property
    def culprits(self) -> tuple[int, ...]:
        """Whom a verdict must name."""
        if self.kind not in (*STRAGGLERS, "pipeline"):
            return ()
        return (random.Random(f"{self.key}/culprit").randrange(self.ranks),)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that a verdict may give."""
        if self.kind == VerdictKind.BALANCED:
            # Played again without noise and walk, these jobs take 2 to 7 % less time, more the more
            # ranks there are: above 5 % the same jitter is told as rotating.
            return (VerdictKind.BALANCED, VerdictKind.ROTATING)
        if self.where == "upper half":  # without roles nobody can tell whose design it is
            return (VerdictKind.STRUCTURAL, VerdictKind.INCONCLUSIVE)
        return (VerdictKind.PERSISTENT,) if self.kind == "pipeline" else (self.kind,)

    @property
    def causes(self) -> tuple[str, ...]:
        """Phases that a verdict may name; none where there is nothing to name."""
        if self.where in PHASES:
            return (self.where,)
        if self.where in ("sequence lengths", "last stage"):
            return ("forward", "backward")
        # A slow device is slow in all it does, and backward is most of that.
        return ("backward",) if self.where == "device" else ()

    def job(self) -> Job:
        """The job to forge."""
        size = (self.ranks, self.iterations, self.seed)
        noise = {"noise": NOISE, "walk": WALK}
        extra_ms = self.effect * ITERATION_MS
        slower = 1 + extra_ms / COMPUTE_MS
        rank = self.culprits[0] if self.culprits else 0
        match self.kind, self.where:
            case VerdictKind.BALANCED, _:
                return scene("plain", *size, **noise)
            case VerdictKind.ROTATING, "sequence lengths":
                return scene("sequence_lengths", *size, **noise)
            case VerdictKind.STRUCTURAL, "last stage":
                return scene("pipeline", *size, slow="stage", factor=1 + 2.5 * self.effect, **noise)
            case VerdictKind.STRUCTURAL, _:
                return scene("planted", *size, kind="structural", extra_ms=extra_ms, **noise)
            case "pipeline", where:
                # Most of a pipeline's iteration is work of one micro-batch after another.
                pipe = {"rank": rank, "extra_ms": 2 * extra_ms, "factor": 1 + 2 * (slower - 1)}
                return scene("pipeline", *size, slow="worker", where=where, **pipe, **noise)
        plant = {"kind": self.kind, "where": self.where, "extra_ms": extra_ms, "factor": slower}
        return scene("planted", *size, rank=rank, **plant, **noise)


def cases(sizes: list[int], seeds: int, iterations: int, *, roles: bool) -> Iterator[Case]:
    """Every case of a run, small jobs first.

    Args:
        sizes: Numbers of ranks.
        seeds: Runs of each planted kind and size.
        iterations: Length of the jobs.
        roles: Roles can be given: structural jobs are pipelines with a long last stage, else
            half of the ranks do more and nobody may say so of one of them.
    """
    shares = {ranks: SPREAD.get(ranks, 0.1) for ranks in sizes}
    whole = sum(shares.values())
    stage = "last stage" if roles else "upper half"
    for ranks in sorted(sizes):
        empty = Case("", "", ranks, 0, iterations)
        for seed in range(seeds):
            for kind in STRAGGLERS:
                for where in (*PHASES, "device"):
                    yield replace(empty, kind=kind, where=where, seed=seed)
            for where in ("forward", "device") if roles else ():
                yield replace(empty, kind="pipeline", where=where, seed=seed)
        for kind, runs in NO_STRAGGLER.items():
            for seed in range(max(1, round(runs * seeds * shares[ranks] / whole))):
                where = {
                    VerdictKind.BALANCED: "nothing",
                    VerdictKind.STRUCTURAL: stage,
                    VerdictKind.ROTATING: (*PHASES, *["sequence lengths"] * 4)[seed % 8],
                }[kind]
                yield replace(empty, kind=kind, where=where, seed=seed)
