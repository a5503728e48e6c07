"""The stragglers of a run, and the rules about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from rankscope.compare.causes import registry
from rankscope.compare.causes.detector import Blame
from rankscope.compare.verdict.candidates import MAJORITY, steady
from rankscope.compare.verdict.outliers import lower_median, summed
from rankscope.compare.verdict.phrases import ms, who
from rankscope.compare.verdict.preconditions import inconclusive
from rankscope.compare.verdict.roles_and_hosts import whole_hosts
from rankscope.compare.verdict.temporal import Pattern, interval
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding, Verdict

if TYPE_CHECKING:
    from rankscope.compare.verdict.inputs import VerdictInputs


@dataclass(frozen=True, slots=True)
class Stragglers:
    """The ranks that are slow at the same kind of times and in the same phase as the worst."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]  # whose ranks they all are
    pattern: Pattern  # of the worst
    iterations: list[int]  # of all their patterns
    rows: pl.DataFrame  # their rows of `flags` in the iterations of their patterns
    excess_ns: int  # mean of `rows`
    typical_ns: int  # their role's median iteration
    cause: str | None  # the phase with most of the excess
    cause_share: float
    findings: tuple[Finding, ...]


def stragglers_of(inputs: VerdictInputs) -> Stragglers | None:
    """The worst candidate with those that are slow in the same way; None without candidates."""
    candidates = inputs.candidates
    if not candidates.ranks:
        return None
    patterns = candidates.patterns
    causes = {rank: cause_of(inputs, rank) for rank in candidates.ranks}
    worst = candidates.ranks[0]
    ranks = tuple(
        sorted(
            rank
            for rank in candidates.ranks
            if patterns[rank].kind == patterns[worst].kind and causes[rank][0] == causes[worst][0]
        )
    )
    rows = pl.concat([inputs.rows_of(rank, patterns[rank].iterations) for rank in ranks])
    theirs = inputs.judged.filter(pl.col("role").is_in(rows["role"].unique().implode()))
    cause, share = causes[worst]
    context = registry.context_of(
        inputs.tables,
        dict(inputs.wide.select("rank", "role").unique().iter_rows()),
        rows,
        cause,
    )
    return Stragglers(
        ranks=ranks,
        hosts=whole_hosts(ranks, inputs.hosts),
        pattern=patterns[worst],
        iterations=sorted({number for rank in ranks for number in patterns[rank].iterations}),
        rows=rows,
        excess_ns=round(summed(rows["excess_ns"]) / rows.height),
        typical_ns=int(theirs.select(lower_median(pl.col("length_ns"))).item()),
        cause=cause,
        cause_share=share,
        findings=registry.findings(context),
    )


def cause_of(inputs: VerdictInputs, rank: int) -> tuple[str | None, float]:
    """The phase that explains most of a candidate's excess, and its share of it."""
    return largest_phase(inputs.rows_of(rank, inputs.candidates.patterns[rank].iterations))


def largest_phase(rows: pl.DataFrame) -> tuple[str | None, float]:
    """The phase with most of the excess, and its share of it.

    Args:
        rows: excess_ns and `<phase>_excess`.
    """
    sums = {
        name.removesuffix("_excess"): summed(rows[name].drop_nulls())
        for name in rows.columns
        if name.endswith("_excess")
    }
    if not {name for name, excess in sums.items() if excess} - {"other"}:
        return None, 0.0  # where no phase is known all time is `other`, and that causes nothing
    cause = max(sums, key=lambda name: sums[name])
    return cause, min(1.0, sums[cause] / max(summed(rows["excess_ns"]), 1))


def contention(inputs: VerdictInputs) -> Verdict | None:
    """Stragglers whose kernels are slow mainly beside collectives: no proof against them."""
    found = inputs.stragglers
    if found is None:
        return None
    blames = [(each, registry.detector_of(each.suspect).blame) for each in found.findings]
    contended = sum(each.share for each, blame in blames if blame is Blame.CONTENTION)
    if contended <= MAJORITY * sum(each.share for each in found.findings):
        return None
    verb = "needs" if len(found.hosts or found.ranks) == 1 else "need"
    return inconclusive(
        f"{who(found.ranks, inputs.hosts, found.hosts)} {verb} {ms(found.excess_ns)} more "
        f"{inputs.metric} than the median rank, but mainly in kernels that are slower only while "
        f"collectives run ({found.findings[0].name}): they compete for the device",
        registry.detector_of(CauseKind.CONTENTION).remedy,
    )


def stragglers(inputs: VerdictInputs) -> Verdict | None:
    """One rank or a few that are slow: always, in every k-th iteration, or now and then."""
    found = inputs.stragglers
    if found is None:
        return None
    given = found.findings and all(
        registry.detector_of(each.suspect).blame is Blame.WORK for each in found.findings
    )
    # Where iterations vary much, the rank that was given most work is not to blame.
    if given and not steady(inputs.judged):
        return None
    gain = inputs.replayed(found.ranks, found.iterations)
    if gain is None:
        gain = inputs.gain_over_rest(found.ranks, found.iterations)
    typical, total = found.typical_ns, inputs.total_ns
    return Verdict(
        kind=found.pattern.kind,
        ranks=found.ranks,
        hosts=found.hosts,
        cause=found.cause,
        cause_share=None if found.cause is None else found.cause_share,
        excess_ns=found.excess_ns,
        excess=found.excess_ns / typical if typical else None,
        iterations=tuple(found.iterations),
        iterations_share=len(found.iterations) / len(inputs.numbers),
        period=found.pattern.period,
        gain_ns=gain,
        gain=gain / total if gain is not None and total else None,
        next=f"open {'its report' if len(found.ranks) == 1 else 'their reports'} beside a normal "
        "one: rankscope pick-reports",
        since=found.pattern.since,
        interval=interval(found.rows["excess_ns"] / typical) if typical else None,
        findings=found.findings,
    )
