"""Rules that name no rank: slow groups, roles with more work, and excess on changing ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from rankscope.compare.verdict.outliers import LEAST_EXCESS, lower_median, summed
from rankscope.compare.verdict.phrases import ms
from rankscope.compare.verdict.preconditions import inconclusive
from rankscope.compare.verdict.roles_and_hosts import heavy_role, whole_hosts
from rankscope.compare.verdict.stragglers import largest_phase
from rankscope.compare.verdict.temporal import interval
from rankscope.compare.warnings import listed
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict

if TYPE_CHECKING:
    from rankscope.compare.verdict.inputs import VerdictInputs

ROTATING_COST = 0.02
"""Share of the time that sudden excess of changing ranks must cost."""

ROTATING_RANKS = 3
"""Ranks that it must be on."""


def slow_group(inputs: VerdictInputs) -> Verdict | None:
    """Many ranks that are slow in nearly every iteration: a slow host, or work given to them."""
    slow = inputs.candidates.group
    if not slow:
        return None
    theirs = inputs.judged.filter(pl.col("rank").is_in(slow))
    excess = round(summed(theirs["excess_ns"]) / theirs.height)
    typical = int(inputs.judged.select(lower_median(pl.col("length_ns"))).item())
    cause, share = largest_phase(theirs)
    hosts = whole_hosts(slow, inputs.hosts)
    where = f", all ranks of {', '.join(hosts)}," if hosts else ""
    return inconclusive(
        f"{len(slow)} of {len(inputs.ranks)} ranks ({listed(slow)}){where} need {ms(excess)} "
        f"more {inputs.metric} than the median rank, {excess / typical:.0%} of the median "
        f"iteration{'' if cause is None else f', {share:.0%} of it in {cause}'}: their host may be "
        "slow, or they may have more work by design",
        "if they have more work by design, no rank is slow: say so with --roles; if not, compare "
        "one of them with one of the others: rankscope pick-reports --metric work",
        hosts,
    )


def role_with_more_work(inputs: VerdictInputs) -> Verdict | None:
    """A role that needs more than the others in most iterations."""
    heavy = heavy_role(inputs.wide, inputs.metric)
    if heavy is None:
        return None
    role, apart = heavy
    hit = apart.filter(pl.col("excess_ns") > LEAST_EXCESS * pl.col("length_ns"))
    excess = round(summed(hit["excess_ns"]) / hit.height)
    typical = int(apart.select(lower_median(pl.col("length_ns"))).item())
    cause, share = largest_phase(hit)
    return Verdict(
        kind=VerdictKind.STRUCTURAL,
        roles=(role,),
        cause=cause,
        cause_share=None if cause is None else share,
        excess_ns=excess,
        excess=excess / typical if typical else None,
        iterations=tuple(hit["iteration"].sort().to_list()),
        iterations_share=hit.height / len(inputs.numbers),
        next="balance the work of the roles: layers per stage, embedding and loss",
        interval=interval(hit["excess_ns"] / typical) if typical else None,
    )


def rotating(inputs: VerdictInputs) -> Verdict | None:
    """Sudden excess that costs something, on changing ranks."""
    flagged = sudden(inputs)
    ranks = flagged["rank"].n_unique()
    if sudden_cost(inputs) < ROTATING_COST or ranks < ROTATING_RANKS:
        return None
    iterations = flagged["iteration"].unique().sort().to_list()
    causes = flagged["cause"].drop_nulls().value_counts(sort=True)
    cause = None if causes.is_empty() else causes["cause"][0]
    return Verdict(
        kind=VerdictKind.ROTATING,
        cause=cause,
        cause_share=None if cause is None else causes["count"][0] / flagged.height,
        excess_ns=round(summed(flagged["excess_ns"]) / flagged.height),
        iterations=tuple(iterations),
        iterations_share=len(iterations) / len(inputs.numbers),
        next="compare the input and the hosts of the ranks: sequence lengths, batch contents, "
        "storage, other load",
    )


def sudden(inputs: VerdictInputs) -> pl.DataFrame:
    """Flagged rows whose excess is not that of the rank in the iterations around."""
    return inputs.flagged.filter(pl.col("sudden_ns") > LEAST_EXCESS * pl.col("length_ns"))


def sudden_cost(inputs: VerdictInputs) -> float:
    """What the sudden excess costs, as a share of the time."""
    return summed(sudden(inputs)["excess_ns"]) / inputs.total_ns if inputs.total_ns else 0.0


def balanced(inputs: VerdictInputs) -> Verdict:
    """No other rule has found anything."""
    del inputs
    return Verdict(
        kind=VerdictKind.BALANCED,
        next="look for time that all ranks lose in the same way: rankscope imbalance --by phase",
    )
