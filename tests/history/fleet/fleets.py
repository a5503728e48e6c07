"""Simulated fleets: what the verdicts of many jobs say, with a culprit or without one.

Written from the definitions of the method: a job runs on a random part of the fleet; its verdict
names whoever costs at least 1 % of its time, nearly always; and now and then somebody whom software
made slow, who is anybody.
"""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from rankscope.history.fleet.collect import Collected
from rankscope.history.fleet.evidence import EVIDENCE, RUNS

HOURS = 3_600 * 10**9
EPOCH_NS = 1_795_249_000_000_000_000


@dataclass(frozen=True)
class Plan:
    """What a fleet is and does.

    Attributes:
        culprit: card | host | later | moved | slot | rank | none.
        cost: Share of a job's time that the culprit costs.
        noise: Share of the jobs in which software makes somebody slow.
        seen: Share of the jobs with the culprit whose verdict names it.
    """

    culprit: str = "none"
    seed: int = 0
    hosts: int = 50
    gpus: int = 8
    jobs: int = 30
    least_hosts: int = 4
    most_hosts: int = 25
    cost: float = 0.04
    noise: float = 0.35
    seen: float = 0.95
    iterations: int = 100
    known_gpus: bool = True


@dataclass
class Truth:
    """Who is slow: the suspects that a right answer has, and in how many jobs they took part."""

    suspects: set[tuple[str, str]] = field(default_factory=set)
    jobs: int = 0


def fleet(plan: Plan) -> tuple[Collected, Truth]:
    """The evidence of a fleet's jobs, and the truth."""
    rng = np.random.default_rng([plan.seed, len(plan.culprit), ord(plan.culprit[0])])
    place = np.arange(plan.hosts * plan.gpus).reshape(plan.hosts, plan.gpus)  # slot → card
    bad_host, bad_slot = int(rng.integers(plan.hosts)), int(rng.integers(plan.gpus))
    bad_card = int(place[bad_host, bad_slot])
    truth = Truth()
    runs, rows = [], []
    for job in range(plan.jobs):
        if plan.culprit in ("moved", "slot") and job == plan.jobs // 2:
            other = (bad_host + 1 + int(rng.integers(plan.hosts - 1))) % plan.hosts
            place[bad_host, bad_slot], place[other, bad_slot] = (
                place[other, bad_slot],
                place[bad_host, bad_slot],
            )
        size = int(rng.integers(plan.least_hosts, min(plan.most_hosts, plan.hosts) + 1))
        hosts = rng.permutation(plan.hosts)[:size]
        stages = 4 if size % 4 == 0 and rng.random() < 0.3 else 1
        frame = _ranks(plan, hosts, place, stages)
        accused = np.zeros((plan.iterations, size * plan.gpus), dtype=bool)
        cost = np.zeros(size * plan.gpus)
        hit = _hit(plan, frame, job, bad_host, bad_slot, bad_card)
        if len(hit):
            truth.jobs += 1
            if rng.random() < plan.seen:
                _accuse(rng, accused, cost, hit, plan.cost, rng.uniform(0.3, 1))
        if rng.random() < plan.noise:
            for _ in range(1 + int(rng.random() < 0.2)):
                anybody = rng.integers(size * plan.gpus)
                who = np.array([anybody])
                if rng.random() < 0.15:
                    who = anybody // plan.gpus * plan.gpus + np.arange(plan.gpus)
                _accuse(rng, accused, cost, who, rng.uniform(0.01, 0.06), rng.uniform(0.02, 1))
        length = rng.uniform(60e9, 600e9)
        key = f"run{job:03}"
        runs.append(
            (key, f"runs/{key}.duckdb", EPOCH_NS + job * HOURS, size * plan.gpus,
             size * plan.gpus, plan.iterations,
             "persistent" if accused.any() else "balanced", round(cost.sum() * length), None)
        )  # fmt: skip
        rows.append(
            frame.with_columns(
                run=pl.lit(key),
                iterations=pl.lit(plan.iterations),
                guilty=pl.Series(accused.sum(axis=0)),
                cost_ns=pl.Series((cost * length * size * plan.gpus).astype(np.int64)),
                cause=pl.lit(None, pl.String),
            )
        )
    card = ("gpu", _uuid(bad_card)) if plan.known_gpus else ("host", f"n{bad_host:02}")
    truth.suspects = {
        "card": {card},
        "later": {card},
        "moved": {card},
        "host": {("host", f"n{bad_host:02}")},
        "slot": {("host", f"n{bad_host:02}")},
    }.get(plan.culprit, set())
    evidence = pl.concat(rows).select(EVIDENCE.names()).cast(EVIDENCE)
    return Collected(pl.DataFrame(runs, RUNS, orient="row"), evidence), truth


def _uuid(card: int) -> str:
    return f"GPU-{card:04}"


def _ranks(plan: Plan, hosts: np.ndarray, place: np.ndarray, stages: int) -> pl.DataFrame:
    """rank, host, gpu, gpu_name, slot, adapters, role."""
    count = len(hosts) * plan.gpus
    host = np.repeat(hosts, plan.gpus)
    slot = np.tile(np.arange(plan.gpus), len(hosts))
    return pl.DataFrame(
        {
            "rank": np.arange(count),
            "host": [f"n{each:02}" for each in host],
            "gpu": [_uuid(each) if plan.known_gpus else None for each in place[host, slot]],
            "gpu_name": ["H100"] * count,
            "slot": [f"{each:02x}:00" if plan.known_gpus else None for each in slot],
            "adapters": [f"0x{each:016x}" for each in host],
            "role": [f"stage {each}" for each in np.arange(count) * stages // count],
        },
        schema_overrides={"gpu": pl.String, "slot": pl.String},
    )


def _hit(
    plan: Plan, frame: pl.DataFrame, job: int, bad_host: int, bad_slot: int, bad_card: int
) -> np.ndarray:
    """The ranks that the culprit makes slow in a job."""
    host, slot = f"n{bad_host:02}", f"{bad_slot:02x}:00"
    card = np.array([each == _uuid(bad_card) for each in frame["gpu"]])
    here = (frame["host"] == host).to_numpy()
    in_slot = np.arange(frame.height) % plan.gpus == bad_slot
    assert slot
    where = {
        "card": card if plan.known_gpus else here & in_slot,
        "moved": card,
        "later": card & (job >= plan.jobs * 0.4),
        "host": here,
        "slot": here & in_slot,
        "rank": (frame["rank"] == 0).to_numpy(),
    }.get(plan.culprit, np.zeros(frame.height, dtype=bool))
    return np.flatnonzero(where)


def _accuse(
    rng: np.random.Generator,
    accused: np.ndarray,
    cost: np.ndarray,
    who: np.ndarray,
    share: float,
    how_often: float,
) -> None:
    when = rng.random(len(accused)) < how_often
    when[rng.integers(len(when))] = True
    accused[np.ix_(when, who)] = True
    cost[who] += share / len(who)
