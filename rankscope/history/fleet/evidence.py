"""Evidence of one run for and against its hardware. See METHOD.md#fleet."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
from msgspec import Struct

from rankscope.model.columns import (
    INTEGER,
    OF_AMOUNTS,
    OF_RANKS,
    OF_SIZES,
    OF_SUMS,
    OF_UTC,
    TEXT,
    Column,
    Table,
    nullable,
)
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Also, Verdict

NO_GUILT = frozenset((VerdictKind.BALANCED, VerdictKind.ROTATING, VerdictKind.STRUCTURAL))
"""Classes of verdicts that are no accusation of the ranks they name."""

OF_RUN = Column(TEXT, "The same for every copy of the database")

TABLES = {
    "runs": Table(
        "A row per run",
        {
            "run": OF_RUN,
            "db": nullable(TEXT, "Its database"),
            "start_ns": nullable(INTEGER, "UTC of its start", OF_UTC),
            "ranks": Column(INTEGER, "Ranks with a report", OF_SIZES),
            "world_size": nullable(INTEGER, "Ranks of the whole job", OF_SIZES),
            "iterations": Column(
                INTEGER, "Iterations in which the ranks were compared", OF_AMOUNTS
            ),
            "verdict": nullable(TEXT, "Class of its verdict"),
            "gain_ns": nullable(INTEGER, "What the named ranks cost", OF_SUMS),
            "software": nullable(TEXT, "Versions of driver, CUDA and NCCL"),
        },
        key=("run",),
    ),
    "evidence": Table(
        "A row per run and rank: exposure, guilt, cost",
        {
            "run": OF_RUN,
            "rank": Column(INTEGER, "Rank of the job", OF_RANKS),
            "host": nullable(TEXT, "Host it ran on"),
            "gpu": nullable(TEXT, "UUID of its GPU"),
            "gpu_name": nullable(TEXT, "Model of that GPU"),
            "slot": nullable(TEXT, "Slot of that GPU in its host"),
            "adapters": nullable(TEXT, "GUIDs of its host's network adapters"),
            "role": nullable(TEXT, "Role that it was compared in"),
            "iterations": Column(
                INTEGER, "Iterations in which it was compared with its role", OF_AMOUNTS
            ),
            "guilty": Column(
                INTEGER, "Iterations in which the verdict holds against it", OF_AMOUNTS
            ),
            "cost_ns": Column(INTEGER, "Time that it cost all ranks together", OF_SUMS),
            "cause": nullable(TEXT, "Phase of the accusation that costs most"),
        },
        key=("run", "rank"),
        ordered=(("guilty", "iterations"),),
    ),
}
"""The tables of a ledger."""

RUNS, EVIDENCE = (each.schema for each in TABLES.values())
"""A row per run, and per run and rank."""


class RunEvidence(Struct, frozen=True):
    """RUNS, of one row, and EVIDENCE of a run."""

    run: pl.DataFrame
    ranks: pl.DataFrame


class _Accusation(Struct, frozen=True):
    """Ranks that are slow together, and what it costs."""

    ranks: tuple[int, ...]
    iterations: tuple[int, ...]
    gain_ns: int
    cause: str | None


def evidence(
    db: str,
    reports: pl.DataFrame,
    ranks: pl.DataFrame,
    verdict: Verdict,
    roles: Mapping[int, str],
    iterations: int,
    blind_ranks: Iterable[int] = (),
) -> RunEvidence:
    """Evidence of a run for and against its hardware.

    Args:
        db: the database of the run.
        reports, ranks: the tables of these names.
        verdict: that of all selected iterations.
        roles: rank → role.
        iterations: number of compared iterations.
        blind_ranks: ranks whose work is unknown.
    """
    key = run_key(reports, ranks)
    table = _identified(ranks.sort("rank"))
    role_of = {rank: roles.get(rank, "") for rank in table["rank"]}
    judged = verdict.kind is not VerdictKind.INCONCLUSIVE
    seeing = role_of.keys() - {*blind_ranks}
    in_role = Counter(role_of[rank] for rank in seeing)
    accusations = _accusations(verdict) if judged else []
    rows = []
    for rank, role in role_of.items():
        compared = iterations if judged and rank in seeing and in_role[role] > 1 else 0
        against = [each for each in accusations if rank in each.ranks]
        guilty = {number for each in against for number in each.iterations}
        cost = sum(each.gain_ns / len(each.ranks) for each in against) * len(role_of)
        cause = max(against, key=lambda each: each.gain_ns).cause if against else None
        rows.append((role, compared, min(len(guilty), compared), round(cost), cause))
    schema = {name: EVIDENCE[name] for name in ("role", "iterations", "guilty", "cost_ns", "cause")}
    of_ranks = pl.DataFrame(rows, schema=schema, orient="row")
    frame = table.hstack(of_ranks).with_columns(run=pl.lit(key))
    software = reports["software"].drop_nulls().unique().sort()
    row: dict[str, Any] = {
        "run": key,
        "db": db,
        "start_ns": reports["utc_start_ns"].min(),
        "ranks": len(role_of),
        "world_size": ranks["world_size"].max(),
        "iterations": iterations,
        "verdict": verdict.kind.value,
        "gain_ns": verdict.gain_ns,
        "software": "; ".join(software) or None,
    }
    return RunEvidence(pl.DataFrame([row], RUNS), frame.select(EVIDENCE.names()).cast(EVIDENCE))


def run_key(reports: pl.DataFrame, ranks: pl.DataFrame) -> str:
    """A text that is the same for all copies of a run's database, and for no other run.

    It is a hash of facts about the report of the lowest rank, since more reports may come in later.
    """
    lowest = ranks.sort("rank").head(1)
    known = ("kind", "bytes", "host", "utc_start_ns", "duration_ns", "events")
    report = reports.filter(path=lowest["path"][0]).select(known).row(0)
    process = lowest.select("rank", "pid", "gpu_uuid").row(0)
    return hashlib.sha256(repr((report, process)).encode()).hexdigest()[:16]


def _identified(ranks: pl.DataFrame) -> pl.DataFrame:
    """rank, host, gpu, gpu_name, slot, adapters.

    A GPU or a slot that several ranks of a run have is unknown for all of them: the report did not
    say which devices the processes were given.
    """
    shared = pl.len().over("gpu_uuid") > 1
    same_slot = pl.len().over("host", "gpu_bus") > 1
    return ranks.select(
        "rank",
        "host",
        pl.when(~shared).then("gpu_uuid").alias("gpu"),
        "gpu_name",
        pl.when(~shared & ~same_slot).then("gpu_bus").alias("slot"),
        "adapters",
    )


def _accusations(verdict: Verdict) -> list[_Accusation]:
    """The accusations in a verdict; more work by design is no guilt."""
    findings: tuple[Verdict | Also, ...] = (verdict, *verdict.also)
    return [
        _Accusation(each.ranks, each.iterations, each.gain_ns, each.cause)
        for each in findings
        if each.kind not in NO_GUILT and each.ranks and each.gain_ns is not None
    ]
