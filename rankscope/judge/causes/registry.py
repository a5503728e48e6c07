"""All causes that can be found, and what they find in a run."""

from collections.abc import Collection, Iterable
from functools import cache
from random import Random

import polars as pl
from msgspec.structs import replace

from rankscope.judge.causes import (
    allocator,
    blocked,
    copies,
    cuda_call,
    device,
    garbage_collection,
    idle,
    kernels,
    on_cpu,
    preempted,
    profiler,
    ranges,
    unexplained,
)
from rankscope.judge.causes.context import CauseContext, Tables
from rankscope.judge.causes.counters import TABLE as COUNTERS_TABLE
from rankscope.judge.causes.counters import by_rank
from rankscope.judge.causes.detector import Detector, Precedence
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding
from rankscope.model.tables import PER_RANK
from rankscope.store.tables import RunTables
from rankscope.util.grouping import grouped
from rankscope.util.numbers import sampled

DETECTORS: tuple[Detector, ...] = (
    garbage_collection.DETECTOR,
    device.DETECTOR,
    kernels.MORE,
    kernels.CONTENTION,
    idle.STARVED,
    idle.LOADER,
    copies.DETECTOR,
    ranges.DETECTOR,
    blocked.DETECTOR,
    preempted.DETECTOR,
    on_cpu.DETECTOR,
    allocator.DETECTOR,
    cuda_call.DETECTOR,
    profiler.DETECTOR,
    unexplained.DETECTOR,
)
"""One per cause. The order does not matter: findings are sorted."""

MOST_CLAUSES = 3
"""Most clauses of a sentence. Findings of one cause share a clause if their work adds up."""

ADDED_UP = {"kernel": "kernels", "kernels": "kernels", "copy": "copies", "set": "copies"}
"""`Finding.activity` of work that adds up → what several are called. A range may contain others."""

MOST_PEERS = 64
"""Other ranks of a role that slow ones are compared with: their median errs by a sixth of the
spread between ranks."""

PEERS_OF_EACH = 8
"""The same for each slow rank, where many are slow: the middle then stays among the peers."""

MOSTLY_EXPLAINED = 0.7
"""Findings that explain this share of the phase's excess leave nothing to be called unexplained."""


def tables_of(run: RunTables, ranks: Collection[int] | None = None) -> Tables:
    """The tables of a stored run that have rows per rank and iteration.

    Counters are those of the devices that the rank uses, wherever they were recorded.

    Args:
        run: the tables.
        ranks: whose rows are read; None: of all.
    """

    @cache  # the rules of a verdict ask for the same iterations
    def table(name: str, iterations: tuple[int, ...]) -> pl.DataFrame | None:
        if name not in PER_RANK:
            return None
        if name == COUNTERS_TABLE:
            return by_rank(run.read(name, iterations=iterations), run.ranks)
        return run.read(name, ranks=ranks, iterations=iterations)

    return lambda name, iterations: table(name, (*iterations,))


def compared_with(roles: dict[int, str], ranks: Collection[int]) -> dict[int, str]:
    """Some ranks and the others of their roles, of which a sample is enough: rank → role.

    A sample is so large that these ranks hardly move its median.
    """
    compared = {rank: roles[rank] for rank in ranks}
    for role in sorted({*compared.values()}):
        own = sum(each == role for each in compared.values())
        peers = [rank for rank in sorted(roles) if roles[rank] == role and rank not in compared]
        most = min(len(peers), max(MOST_PEERS, PEERS_OF_EACH * own))
        compared |= dict.fromkeys(Random(0).sample(peers, most), role)
    return compared


def context_of(
    tables: Tables, roles: dict[int, str], flagged: pl.DataFrame, phase: str | None
) -> CauseContext:
    """The input of the detectors; of many flagged iterations, an even sample.

    Args:
        tables: of the run.
        roles: rank → role.
        flagged: rank, iteration, excess_ns, `<phase>_excess` of the slow ranks.
        phase: the phase with most of the excess; None looks at all phases.
    """
    sample = sampled(flagged["iteration"].unique().sort().to_list())
    return CauseContext(
        read=lambda name: tables(name, sample),
        roles=roles,
        flagged=flagged.filter(pl.col("iteration").is_in(sample)),
        phase=phase,
    )


def findings(context: CauseContext) -> tuple[Finding, ...]:
    """The findings that explain most of the slow ranks' excess, the largest first.

    Each activity's time is compared with the role's median in the same iteration. See
    METHOD.md#verdict.
    """
    if context.total_ns <= 0:
        return ()
    candidates = [
        (detector.precedence, -each.excess_ns, each.name, each)
        for detector in DETECTORS
        if not _missing(detector, context)
        for each in detector.findings(context)
    ]
    causal = [row for row in candidates if row[0] < Precedence.REST]
    explained_ns = context.total_ns * sum(each.share for *_, each in causal)
    if len(causal) < len(candidates) and explained_ns >= MOSTLY_EXPLAINED * context.phase_ns:
        candidates = causal
    ordered = [each for *_, each in sorted(candidates, key=lambda row: row[:3])]
    shown = [*dict.fromkeys(map(_clause, ordered))][:MOST_CLAUSES]
    return tuple(each for each in ordered if _clause(each) in shown)


def _missing(detector: Detector, context: CauseContext) -> bool:
    lacks = any(context.table(name) is None for name in detector.tables)
    return lacks and all(context.table(name) is None for name in detector.alternatives)


def detector_of(cause: CauseKind) -> Detector:
    """The detector of a cause."""
    for detector in DETECTORS:
        if detector.kind == cause:
            return detector
    raise LookupError(f"no detector for the cause {cause!r}: add it to DETECTORS in {__name__}")


def findings_sentence(reported: Iterable[Finding]) -> str:
    """Findings in words, a clause each; those of one cause share it if their work adds up.

    `3 kernels take 6.0 ms or 40 % longer for the same work: the device is slow`.
    """
    merged = map(_merged, grouped((_clause(each), each) for each in reported).values())
    return "; ".join(detector_of(each.kind).sentence(each) for each in merged)


def _clause(finding: Finding) -> tuple[str, ...]:
    """The key that findings of one clause share."""
    work = ADDED_UP.get(finding.activity) or f"{finding.activity} {finding.name}"
    return finding.kind, finding.detail, work, str(finding.ranks)


def _merged(findings: list[Finding]) -> Finding:
    """The findings of one clause as one finding."""
    first, *more = findings
    if not more:
        return first
    count = sum(each.count for each in findings)
    usual = [each.usual_ns for each in findings if each.usual_ns is not None]
    called = ADDED_UP[first.activity]
    return replace(
        first,
        name=f"{count} {called}",
        excess_ns=sum(each.excess_ns for each in findings),
        share=min(1.0, sum(each.share for each in findings)),
        activity=called,
        usual_ns=sum(usual) if len(usual) == len(findings) else None,
        count=count,
    )
