"""The ordered list of rules that give a run its verdict. See METHOD.md#verdict."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rankscope.judge import preconditions
from rankscope.judge.causes import registry
from rankscope.judge.chance import iterations_to_settle
from rankscope.judge.excess import Flags
from rankscope.judge.healing import Prices, only
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.judgement import Judgement, decide, fast_ranks, holders
from rankscope.judge.levels import (
    ALPHA,
    FEW,
    HALF,
    LARGE_TRANSFER,
    LEAST_GAIN,
    MUCH,
    RARE,
    SHUFFLES,
)
from rankscope.judge.phrases import also_sentence, who, whole_hosts
from rankscope.judge.preconditions import inconclusive
from rankscope.judge.sentences import also_clauses, sentence, they_need_less
from rankscope.judge.story import Slow
from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.model.results import Also, Leading, Verdict
from rankscope.sources.recorders import Record, advice
from rankscope.util.robust import Floats
from rankscope.util.wording import MOST_LISTED, counted, ms, percent, ranks_text


def judge(inputs: VerdictInputs, prices: Prices | None = None) -> Verdict:
    """The verdict of the first rule that finds something, in words.

    Args:
        inputs: what is known of the run.
        prices: what healing saves; None: upper bounds from how much faster the slowest would be.
    """
    if (unmet := preconditions.nothing_to_judge(inputs)) is not None:
        return unmet
    judged = decide(inputs, prices or Prices(inputs.excess))
    verdict = next(result for rule in RULES if (result := rule(judged)) is not None)
    if verdict.sentence and verdict.leading is None and verdict.gain_all_ns is None:
        return verdict
    total, count = inputs.total_ns, len(inputs.numbers)
    verdict = replace(
        verdict,
        gain_all_ns=judged.cost_ns,
        gain_all=judged.cost_ns / total,
        gain=None if verdict.gain_ns is None else verdict.gain_ns / total,
        iterations_share=len(verdict.iterations) / count if verdict.iterations else None,
        gain_is_bound=verdict.gain_is_bound or judged.why_bound is not None,
        costless_ranks=tuple(judged.costless),
        also=_others(judged) if verdict.kind is not VerdictKind.BALANCED else (),
    )
    if verdict.sentence:  # the sentence names those who lead; others may be slow beyond chance
        led = () if verdict.leading is None else verdict.leading.ranks
        also = [each for each in verdict.also if (each.ranks, len(each.iterations)) != (led, count)]
        verdict = replace(verdict, also=tuple(also))
        clauses = "".join(f"; {each}" for each in also_clauses(verdict, inputs, led))
        return replace(verdict, sentence=f"{verdict.sentence.removesuffix('.')}{clauses}.")
    return replace(verdict, sentence=sentence(verdict, judged))


def slow_or_by_design(judged: Judgement) -> Verdict | None:
    """Ranks whose role nobody else has: slow, or given more to do?

    All ranks of a pipeline stage, or a rank that is the only one of its role and always needs more,
    but not for the same kernels.
    """
    straggler, inputs = judged.straggler, judged.inputs
    if straggler is None or straggler.is_by_design:
        return None
    ranks, pattern, gain = straggler.claim.ranks, straggler.claim.pattern, straggler.gain_ns
    if len(ranks) > 1 and ranks in inputs.stages():
        verdict = inconclusive(
            f"{who(ranks, inputs.hosts, ()).lower()} need more {inputs.excess.metric} than the "
            f"others, {percent(gain / inputs.total_ns)} of the time, but they are all the ranks of "
            "one communicator of a pipeline: they may be slow, or have more to do by design",
            "say with --roles which ranks do the same work, or compare the layers of the stages",
        )
    elif inputs.run.own_roles and pattern.kind is VerdictKind.PERSISTENT:
        if pattern.since is not None or pattern.spells:
            return None  # a role holds for the whole run
        causes = registry.findings(inputs.context(straggler.claim))
        if sum(each.share for each in causes if each.kind is CauseKind.DEVICE_SLOWER) >= HALF:
            return None
        verdict = _only_one(ranks, inputs.excess.metric)
    else:
        return None
    return replace(verdict, leading=_leading(judged, ranks, gain, straggler.claim))


def named(judged: Judgement) -> Verdict | None:
    """The ranks whose level or events cost most: stragglers, or ranks that have more to do."""
    straggler, inputs = judged.straggler, judged.inputs
    if straggler is None:
        return None
    ranks, pattern = straggler.claim.ranks, straggler.claim.pattern
    by_design = straggler.is_by_design
    excess, cause, share = inputs.extent(straggler.claim)
    typical = _typical(inputs, np.isin(inputs.excess.ranks, ranks))
    return Verdict(
        kind=VerdictKind.STRUCTURAL if by_design else pattern.kind,
        ranks=() if by_design else ranks,
        hosts=() if by_design else whole_hosts(ranks, inputs.hosts),
        more_work_ranks=straggler.more_work_ranks,
        cause=cause,
        cause_share=share,
        excess_ns=_mean(excess),
        excess=_mean(excess) / typical if typical else None,
        iterations=pattern.iterations,
        period=pattern.period,
        gain_ns=straggler.gain_ns,
        since=pattern.since,
        spells=pattern.spells,
        interval=interval(excess / typical) if typical else None,
        findings=registry.findings(inputs.context(straggler.claim)),
        next="balance the input of the ranks: sequence lengths, batch sizes, tokens of an expert"
        if by_design
        else f"open {'its report' if len(ranks) == 1 else 'their reports'} beside a normal one: "
        "rankscope pick-reports",
    )


def heavy_role(judged: Judgement) -> Verdict | None:
    """The role that is given most work, where balancing the roles would save most."""
    inputs, healed = judged.inputs, judged.prices.role
    if judged.main != "role" or healed is None:
        return None
    excess = inputs.excess
    cost = np.bincount(excess.roles, weights=healed.sum(axis=(1, 2)))
    heaviest = excess.roles == cost.argmax()
    ranks = tuple(excess.ranks[heaviest].tolist())
    if len(ranks) == 1:
        return _only_one(ranks, excess.metric)
    per = healed[heaviest][0].sum(axis=1)
    hit = per > LEAST_GAIN * np.nan_to_num(excess.length[heaviest][0])
    typical = _typical(inputs, heaviest)
    sums = healed[heaviest].sum(axis=(0, 1))
    cause, share = inputs.excess.main_phase(sums, sums.sum())
    return Verdict(
        kind=VerdictKind.STRUCTURAL,
        roles=(excess.role_names[cost.argmax()],),
        more_work_ranks=ranks,
        cause=cause,
        cause_share=share,
        excess_ns=_mean(per[hit]),
        excess=_mean(per[hit]) / typical if typical else None,
        iterations=tuple(excess.numbers[hit].tolist()),
        gain_ns=judged.gains["role"],
        next="balance the work of the roles: layers per stage, embedding and loss",
    )


def slow_link(judged: Judgement) -> Verdict | None:
    """Collectives that take longer than usual once all ranks have arrived."""
    inputs, slow = judged.inputs, judged.prices.slow
    if judged.main != "transfer" or slow is None:
        return None
    first = slow.slow.row(0, named=True)
    excess_ns = first["transfer_ns"] - first["usual_ns"]
    typical = float(np.nanmedian(inputs.excess.lengths))
    return Verdict(
        kind=VerdictKind.COMMUNICATION,
        cause="exposed_communication",
        cause_share=1.0,
        excess_ns=excess_ns,
        excess=excess_ns / typical if typical else None,
        iterations=tuple(first["iterations"]),
        gain_ns=judged.gains["transfer"],
        next="compare the links of the members: rankscope imbalance --by collective, and "
        + advice(Record.NETWORK, inputs.run.recorder),
    )


def most_may_be_slow(judged: Judgement) -> Verdict | None:
    """Nearly half of the ranks are fast, so that most of them may be slow."""
    inputs, fast = judged.inputs, fast_ranks(judged)
    if fast is None or 2 * len(fast.ranks) <= len(fast.others):
        return None
    verdict = inconclusive(
        f"{they_need_less(inputs, fast)} than {ranks_text(fast.others, MOST_LISTED)} in "
        f"{counted(len(inputs.numbers), 'iteration')}: "
        "either the latter are slow, although they are the majority, or the former are unusually "
        f"fast. If all were as fast, the run would save {judged.at_most}{ms(fast.gain_ns)}, "
        f"{percent(fast.gain_ns / inputs.total_ns)} of the time",
        "compare the devices and hosts of both groups: models, clocks, power limits, versions",
    )
    return replace(verdict, leading=_leading(judged, fast.others, fast.gain_ns, inputs.story.fast))


def rotating(judged: Judgement) -> Verdict | None:
    """Much imbalance on changing ranks: chance explains which of them is slowest."""
    inputs, lead = judged.inputs, judged.inputs.story.lead
    if judged.everything_ns < MUCH * inputs.total_ns:
        return None
    if not inputs.story.loaders_bind and (_chance(lead) <= RARE or len(holders(judged)) < 2):
        return None
    excess, everything = inputs.excess, judged.prices.everything
    slowest = np.nan_to_num(everything.sum(axis=2)).max(axis=0)
    hit = slowest > inputs.story.event * excess.lengths
    sums = everything.sum(axis=(0, 1))
    cause, share = inputs.excess.main_phase(sums, sums.sum())
    most, leading = tuple(sorted(holders(judged))), None
    if not inputs.story.loaders_bind and len(most) <= min(FEW, len(excess.ranks) // 2):
        leading = _leading(judged, most, _saved(judged, most)[0], None)
    return Verdict(
        kind=VerdictKind.ROTATING,
        leading=leading,
        cause=cause,
        cause_share=share,
        excess_ns=_mean(slowest[hit]) if hit.any() else None,
        iterations=tuple(excess.numbers[hit].tolist()),
        gain_ns=judged.cost_ns,
        next="compare the input and the hosts of the ranks: sequence lengths, batch contents, "
        "storage, other load",
    )


def undecided(judged: Judgement) -> Verdict | None:
    """Imbalance costs much, and some ranks lead, but chance is not unlikely enough."""
    inputs, prices = judged.inputs, judged.prices
    lead, total, count = inputs.story.lead, inputs.total_ns, len(inputs.numbers)
    if judged.everything_ns < MUCH * total:
        return None
    ranks = () if lead is None else lead.ranks
    gain, healing = _saved(judged, ranks)
    if gain < LEAST_GAIN * total:  # who leads in the run need not do so in a part of it
        lead, ranks = None, (holders(judged)[0],)
        gain, healing = _saved(judged, ranks)
    costs = (
        f"imbalance costs {judged.at_most}{percent(judged.cost_ns / total)} of the time over "
        f"{counted(count, 'iteration')}"
    )
    if gain < LEAST_GAIN * total:
        no_leader = inconclusive(
            f"{costs}, and no rank is slow beyond chance", "capture more iterations"
        )
        return replace(no_leader, gain_all_ns=judged.cost_ns)
    chance, gain = _chance(lead), prices.most(healing, gain)
    settles = iterations_to_settle(chance, ALPHA, inputs.story.count)
    hosts = whole_hosts(ranks, inputs.hosts)
    causes = registry.findings(inputs.context(lead)) if lead and settles else ()
    why = registry.findings_sentence(causes)
    one = len(hosts or ranks) == 1
    explains = f"does that in {percent(chance)} of such runs" if chance < 1 else "may explain it"
    verdict = inconclusive(
        f"{costs}. {who(ranks, inputs.hosts, hosts)} {'leads' if one else 'lead'}"
        f"{f' ({why})' * bool(why)}: fixing {'it' if one else 'them'} would save "
        f"{judged.at_most}{ms(gain)}, {percent(gain / total)} of the time, but chance alone "
        f"{explains}",
        f"capture more iterations: about {settles} iterations would settle it"
        if settles
        else "capture more iterations"
        if inputs.story.count <= FEW
        else "compare the reports: rankscope pick-reports; more iterations may not settle it",
    )
    return replace(verdict, leading=_leading(judged, ranks, gain, lead), settles=settles or None)


def network(judged: Judgement) -> Verdict | None:
    """Nobody is late, and yet communication holds the ranks up for a large part of the time.

    Calls of a pipeline that were not matched are none of it: they wait for the other stages.
    """
    inputs = judged.inputs
    unmatched = 0 if inputs.stages() else inputs.unmatched_ns or 0
    parts = (inputs.exposed_transfer_ns or 0, unmatched)
    if max(parts) < LARGE_TRANSFER * inputs.total_ns:
        return None
    return Verdict(
        kind=VerdictKind.COMMUNICATION,
        cause="exposed_communication",
        cause_share=1.0,
        gain_ns=sum(parts),
        gain_is_bound=True,
        iterations=tuple(inputs.numbers),
        next="compare the bandwidth with what the links can do: rankscope imbalance --by "
        "collective",
    )


def balanced(judged: Judgement) -> Verdict:
    """No other rule has found anything."""
    del judged
    return Verdict(
        kind=VerdictKind.BALANCED,
        next="look for time that all ranks lose in the same way: rankscope imbalance --by phase",
    )


Rule = Callable[[Judgement], Verdict | None]
"""What is found in a run; None where the rule does not apply."""

RULES: tuple[Rule, ...] = (
    # what healing saves decides
    slow_or_by_design,
    named,
    heavy_role,
    slow_link,
    most_may_be_slow,
    rotating,
    undecided,
    # the ranks look alike
    preconditions.may_be_unlike,
    network,
    preconditions.unlike_outside,
    balanced,
)
"""The first rule that finds something decides; the last one always does."""


def _others(judged: Judgement) -> tuple[Also, ...]:
    """Other stragglers that cost at least 1 % of the time, the costliest first."""
    others, inputs = [], judged.inputs
    for other in judged.others:
        claim = other.claim
        excess, cause, _ = inputs.extent(claim)
        also = Also(
            kind=VerdictKind.STRUCTURAL if other.is_by_design else claim.pattern.kind,
            ranks=claim.ranks,
            hosts=whole_hosts(claim.ranks, inputs.hosts),
            iterations=claim.pattern.iterations,
            cause=cause,
            excess_ns=_mean(excess),
            gain_ns=other.gain_ns,
            period=claim.pattern.period,
            since=claim.pattern.since,
        )
        others.append(
            also_sentence(
                also,
                inputs.hosts,
                len(inputs.numbers),
                inputs.total_ns,
                of_captures=inputs.run.of_captures,
                is_bound=judged.why_bound is not None,
            )
        )
    return tuple(others)


def _only_one(ranks: tuple[int, ...], metric: str) -> Verdict:
    """Ranks need more than the others, which have other roles."""
    one = len(ranks) == 1
    return inconclusive(
        f"{ranks_text(ranks, MOST_LISTED)} {'needs' if one else 'need'} more "
        f"{metric} than the others, but {'it' if one else 'each'} is the only one of its role: "
        f"{'it' if one else 'they'} may be slow, or have more to do by design",
        "profile several replicas of the job, or say with --roles which ranks do the same work",
    )


def _leading(judged: Judgement, ranks: tuple[int, ...], gain: int, claim: Slow | None) -> Leading:
    chance = None if claim is None else claim.chance
    return Leading(ranks, gain, gain / judged.inputs.total_ns, chance)


def _typical(inputs: VerdictInputs, members: Flags) -> float:
    """The median iteration of the roles of the members."""
    return float(np.nanmedian(inputs.excess.length[members]))


def _mean(values: Floats) -> int:
    return round(float(values.mean())) if len(values) else 0


def interval(share: Floats) -> tuple[float, float] | None:
    """95 % bootstrap interval of a mean; None for fewer than 2 values."""
    if len(share) < 2:
        return None
    draw = np.random.default_rng(0)
    means = draw.choice(share, size=(SHUFFLES, len(share))).mean(axis=1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def _saved(judged: Judgement, ranks: tuple[int, ...]) -> tuple[int, Floats]:
    """What ranks at their role's median save, and the healing."""
    healing = only(judged.prices.everything, np.isin(judged.inputs.excess.ranks, ranks))
    return judged.prices.of([healing])[0], healing


def _chance(lead: Slow | None) -> float:
    return 1.0 if lead is None or lead.chance is None else lead.chance
