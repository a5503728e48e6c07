"""The verdict on named ranks: stragglers, or ranks that are given more work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.judge.causes import registry
from rankscope.judge.hosts import whole_hosts
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.judgement import Judgement, ranks_with_more_work
from rankscope.judge.levels import FEW, HALF, SHUFFLES
from rankscope.judge.phrases import also_sentence
from rankscope.judge.preconditions import only_one
from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.model.results import Also, Leading, Verdict
from rankscope.util.robust import Floats, lower_median, summed


def by_design_or_slow(judged: Judgement) -> Verdict | None:
    """A rank that is the only one of its role always needs more, and not for the same kernels."""
    straggler, inputs = judged.straggler, judged.inputs
    if straggler is None or not inputs.run.own_roles or judged.is_by_design:
        return None
    ranks, pattern = straggler.claim.ranks, straggler.claim.pattern
    if pattern.kind is not VerdictKind.PERSISTENT or pattern.since is not None or pattern.spells:
        return None  # roles last
    found = named(judged)
    findings = () if found is None else found.findings
    slower = sum(each.share for each in findings if each.kind is CauseKind.DEVICE_SLOWER)
    if slower >= HALF:
        return None
    gain = judged.gain_of(straggler)
    leading = Leading(ranks, gain, gain / inputs.total_ns, straggler.claim.chance)
    return replace(only_one(ranks, inputs.excess.metric), leading=leading)


def named(judged: Judgement) -> Verdict | None:
    """The ranks whose level or events cost most: stragglers, or ranks that have more to do."""
    found, inputs = judged.straggler, judged.inputs
    if found is None:
        return None
    rows = inputs.rows_of(found.claim)
    typical = typical_ns(inputs, rows)
    excess_ns = round(summed(rows["excess_ns"]) / max(rows.height, 1))
    cause, share = cause_of(inputs, rows)
    pattern = found.claim.pattern
    gain = judged.gain_of(found)
    by_design = judged.is_by_design
    context = registry.context_of(inputs.tables, inputs.role_of, rows, cause)
    return Verdict(
        kind=VerdictKind.STRUCTURAL if by_design else pattern.kind,
        ranks=() if by_design else found.claim.ranks,
        hosts=() if by_design else whole_hosts(found.claim.ranks, inputs.hosts),
        more_work_ranks=tuple(judged.more_work_ranks),
        cause=cause,
        cause_share=share,
        excess_ns=excess_ns,
        excess=excess_ns / typical if typical else None,
        iterations=pattern.iterations,
        period=pattern.period,
        gain_ns=gain,
        since=pattern.since,
        spells=pattern.spells,
        interval=interval(rows["excess_ns"] / typical) if typical else None,
        findings=registry.findings(context),
        next="balance the input of the ranks: sequence lengths, batch sizes, tokens of an expert"
        if by_design
        else f"open {'its report' if len(found.claim.ranks) == 1 else 'their reports'} beside "
        "a normal one: rankscope pick-reports",
    )


def typical_ns(inputs: VerdictInputs, rows: pl.DataFrame) -> int:
    """The median iteration of the roles of some rows of `flags`."""
    roles = rows["role"].unique().implode()
    theirs = inputs.flags.filter(pl.col("role").is_in(roles))
    return int(theirs.select(lower_median(pl.col("length_ns"))).item() or 0)


def cause_of(inputs: VerdictInputs, rows: pl.DataFrame) -> tuple[str | None, float | None]:
    """The phase with most of the excess of some rows of `flags`, and its share of it."""
    if not _phases_known(inputs):
        return None, None
    sums = {
        name.removesuffix("_excess"): summed(rows[name].drop_nulls())
        for name in rows.columns
        if name.endswith("_excess")
    }
    most = max(sums, key=lambda phase: sums[phase])
    return most, min(1.0, sums[most] / max(summed(rows["excess_ns"]), 1))


def _phases_known(inputs: VerdictInputs) -> bool:
    """Whether time lies in a phase: where none is known all is `other`, and that causes nothing."""
    excess = inputs.excess
    named = [place for place, phase in enumerate(excess.phases) if phase != "other"]
    return bool((np.nan_to_num(excess.spent[:, :, named]) > 0).any())


def largest_phase(inputs: VerdictInputs, healed: Floats) -> tuple[str | None, float | None]:
    """The phase from which healing takes most, and its share."""
    # the same order of summation, and thus the same last digit, for any layout in memory
    sums = np.ascontiguousarray(healed).sum(axis=(0, 1))
    if not _phases_known(inputs) or not sums.sum() > 0:
        return None, None
    most = int(sums.argmax())
    return inputs.excess.phases[most], float(sums[most] / sums.sum())


def interval(share: pl.Series) -> tuple[float, float] | None:
    """95 % bootstrap interval of a mean; None for fewer than 2 values."""
    values = share.drop_nulls().to_numpy()
    if len(values) < 2:
        return None
    draw = np.random.default_rng(0)
    means = draw.choice(values, size=(SHUFFLES, len(values))).mean(axis=1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def others(judged: Judgement) -> tuple[Also, ...]:
    """Other stragglers that cost at least 1 % of the time, the costliest first."""
    found, inputs = [], judged.inputs
    for each in judged.others[:FEW]:
        rows = inputs.rows_of(each.claim)
        cause, _ = cause_of(inputs, rows)
        pattern = each.claim.pattern
        excess_ns = round(summed(rows["excess_ns"]) / max(rows.height, 1))
        given = {*ranks_with_more_work(inputs, each.claim)} == {*each.claim.ranks}
        also = Also(
            kind=VerdictKind.STRUCTURAL if given else pattern.kind,
            ranks=each.claim.ranks,
            hosts=whole_hosts(each.claim.ranks, inputs.hosts),
            iterations=pattern.iterations,
            cause=cause,
            excess_ns=excess_ns,
            gain_ns=each.gain_ns,
            period=pattern.period,
            since=pattern.since,
        )
        found.append(also_sentence(also, inputs.hosts, len(inputs.numbers), inputs.total_ns))
    return tuple(found)
