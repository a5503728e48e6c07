"""The ordered list of rules that give a run its verdict. See METHOD.md#verdict."""

from collections.abc import Callable
from itertools import chain, compress
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import asdict, replace

from rankscope.judge import preconditions
from rankscope.judge.causes import registry
from rankscope.judge.causes.counters import network_words
from rankscope.judge.chance import iterations_to_settle
from rankscope.judge.claims import Slow, event_of
from rankscope.judge.healing import Prices
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.judgement import Judgement, decide, holders
from rankscope.judge.levels import (
    BY_NATURE,
    FEW,
    HALF,
    LARGE_TRANSFER,
    LEAST_GAIN,
    MOST,
    MUCH,
    RARE,
)
from rankscope.judge.phrases import all_on, lowered, one_host, when, who, whole_hosts
from rankscope.judge.preconditions import inconclusive
from rankscope.judge.sentences import changed, described, finished, held_up, in_words
from rankscope.model.kinds import POINT_TO_POINT, CauseKind, VerdictKind
from rankscope.model.results import Holder, Leading, Verdict
from rankscope.sources.recorders import Record, advice
from rankscope.util.wording import (
    MOST_LISTED,
    agreeing,
    counted,
    duration,
    ms,
    percent,
    ranks_text,
    span,
)

EXPOSED = "exposed_communication"

MORE = "capture more iterations"

TELL_APART = (
    "say which ranges are iterations: --iteration REGEX, or annotate them: rankscope capture "
    "--snippet"
)
"""What settles a verdict about captures that are one iteration each."""

BALANCE_INPUT = "balance the input of the ranks: sequence lengths, batch sizes, tokens of an expert"

BALANCE_ROLES = "balance the work of the roles: layers per stage, embedding and loss"

COMPARE_GROUPS = (
    "compare what both groups do, and their devices and hosts: models, clocks, power limits, "
    "versions"
)

COMPARE_LINKS = (
    "compare the transfers with what the links can do: rankscope imbalance --by collective"
)


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
    return finished(verdict, judged)


def slow_or_by_design(judged: Judgement) -> Verdict | None:
    """Ranks whose role nobody else has: slow, or given more to do?

    All ranks of a pipeline stage, or a rank that is the only one of its role and always needs more,
    but not for the same kernels.
    """
    straggler, inputs = judged.straggler, judged.inputs
    if straggler is None or straggler.is_by_design:
        return None
    ranks, pattern, stages = straggler.claim.ranks, straggler.claim.pattern, inputs.stages()
    is_stage = len(ranks) > 1 and ranks in stages
    if not is_stage:
        is_alone = inputs.run.own_roles or stages.issuperset((rank,) for rank in ranks)
        # a role holds for the whole run
        lasts = pattern.kind is VerdictKind.PERSISTENT and pattern.since is None
        if not is_alone or not lasts or pattern.spells:
            return None
        causes = registry.findings(inputs.context(straggler.claim))
        if sum(each.share for each in causes if each.kind is CauseKind.DEVICE_SLOWER) >= HALF:
            return None
    leading = _leading(judged, ranks, straggler.gain_ns, straggler.claim)
    return _may_be_by_design(judged, leading, is_stage=is_stage)


def named(judged: Judgement) -> Verdict | None:
    """The ranks whose level or events cost most: stragglers, or ranks that have more to do."""
    straggler, inputs = judged.straggler, judged.inputs
    if straggler is None:
        return None
    excess, _, share = inputs.extent(straggler.claim)
    also, parts = described(inputs, straggler), inputs.by_phase(straggler.claim)
    # of more work, kernels may take longer than their blocks tell
    other = CauseKind.DEVICE_SLOWER if straggler.is_by_design else None
    causes = [
        [each for each in registry.findings(inputs.context(part)) if each.kind is not other]
        for _, part in parts
    ]
    more: dict[str, Any] = {
        "more_work_ranks": straggler.more_work_ranks,
        "cause_share": share,
        "spells": straggler.claim.pattern.spells,
        "findings": tuple(chain(*causes)),
        "next": f"open {'its report' if len(also.ranks) == 1 else 'their reports'} beside a normal "
        "one: rankscope pick-reports",
    }
    verdict = Verdict(**asdict(also) | more)
    if straggler.is_by_design:
        of_roles = inputs.run.own_roles or also.ranks in inputs.stages()
        settle = BALANCE_ROLES if of_roles else BALANCE_INPUT
        if sum(each.share for each in verdict.findings if each.usual_ns == 0) >= HALF:
            those = ranks_text(also.ranks, MOST_LISTED)
            runs = agreeing(len(also.ranks), "runs", "run")
            settle = f"see what {those} alone {runs}: rankscope imbalance --by kernel"
        verdict = replace(verdict, ranks=(), hosts=())
        return _with_more_work(verdict, judged, "the others", settle)
    one, count = len(verdict.hosts or verdict.ranks) == 1, len(inputs.numbers)
    name = who(verdict.ranks, inputs.hosts, verdict.hosts)
    if inputs.run.missing_ranks:
        name = f"Of the {counted(inputs.run.ranks, 'rank')} with a report, {lowered(name)}"
    compared = "the median rank" + " then" * (len(verdict.iterations) < count)
    most = float(excess.max(initial=0.0))
    if verdict.kind is VerdictKind.TRANSIENT and HALF * most > also.excess_ns:
        compared += f" (up to {ms(most)})"
    mostly = _mostly(verdict, inputs.excess.metric)
    if len(parts) > 1:
        mostly = ", " + " and ".join(
            f"{ranks_text(part.ranks, MOST_LISTED)} mostly in {phase}"
            + f" ({registry.findings_sentence(found)})" * bool(found)
            for (phase, part), found in zip(parts, causes, strict=True)
        )
    return replace(
        verdict,
        sentence=f"{name} {'is' if one else 'are'} slow "
        f"{when(verdict, count, of_captures=inputs.run.of_captures)}: "
        f"{'it needs' if one else 'they need'} {ms(also.excess_ns)} more {inputs.excess.metric} "
        f"than {compared}{mostly}. "
        f"Fixing {'it' if one else 'them'} would save",
    )


def _with_more_work(verdict: Verdict, judged: Judgement, compared: str, settle: str) -> Verdict:
    """The verdict that ranks are given more work than others, with its sentence."""
    inputs, ranks = judged.inputs, verdict.more_work_ranks
    role = f" (role {verdict.roles[0]!r})" if verdict.roles else ""
    then = when(verdict, len(inputs.numbers), of_captures=inputs.run.of_captures, exactly=False)
    return replace(
        verdict,
        next=settle,
        sentence=f"{ranks_text(ranks, MOST_LISTED).capitalize()}{role} "
        f"{agreeing(len(ranks), 'is', 'are')} given more work than {compared} {then}: it takes "
        f"{ms(verdict.excess_ns or 0)} longer{_mostly(verdict, inputs.excess.metric)}; no rank is "
        "to blame. Giving all ranks the same would save",
    )


def _mostly(verdict: Verdict, metric: str) -> str:
    """`, 90 % of it in load (the device idles longer)`: in which phase of `metric`, and why."""
    inside = registry.findings_sentence(verdict.findings)
    said = verdict.cause is None or verdict.cause == metric
    phase = "" if said else f", {percent(verdict.cause_share)} of it in {verdict.cause}"
    return phase + (f" ({inside})" if inside else "")


def heavy_role(judged: Judgement) -> Verdict | None:
    """The role that is given most work, where balancing the roles would save most."""
    inputs, healed = judged.inputs, judged.prices.role
    if judged.main != "role" or healed is None:
        return None
    excess = inputs.excess
    cost = np.bincount(excess.roles, weights=healed.sum(axis=(1, 2)))
    heaviest = excess.roles == cost.argmax()
    ranks = tuple(excess.ranks[heaviest].tolist())
    gain_ns = judged.prices.most(healed, judged.gains["role"])
    if len(ranks) == 1:
        return _may_be_by_design(judged, _leading(judged, ranks, gain_ns, None))
    per = healed[heaviest][0].sum(axis=1)
    hit = per > LEAST_GAIN * np.nan_to_num(excess.length[heaviest][0])
    sums = healed[heaviest].sum(axis=(0, 1))
    cause, share = excess.main_phase(sums, sums.sum())
    verdict = Verdict(
        kind=VerdictKind.STRUCTURAL,
        roles=(excess.role_names[cost.argmax()],),
        more_work_ranks=ranks,
        cause=cause,
        cause_share=share,
        excess_ns=round(float(per[hit].mean())) if hit.any() else 0,
        iterations=tuple(excess.numbers[hit].tolist()),
        gain_ns=gain_ns,
        next="",
    )
    return _with_more_work(verdict, judged, "the median role", BALANCE_ROLES)


def slow_link(judged: Judgement) -> Verdict | None:
    """Collectives that take longer than usual once all ranks have arrived."""
    inputs, slow = judged.inputs, judged.prices.slow
    if judged.main != "transfer" or slow is None:
        return None
    first = slow.slow.row(0, named=True)
    members, iterations = {*first["members"]}, tuple(first["iterations"])
    groups = {frozenset(group) for group in slow.slow["members"].to_list()}
    common = members.intersection(*groups)
    inside = all(one_host(group, inputs.hosts) for group in groups)
    lasts = len(iterations) >= FEW and iterations == slow.numbers[-len(iterations) :]
    verdict = Verdict(
        kind=VerdictKind.COMMUNICATION,
        cause=EXPOSED,
        cause_share=1.0,
        excess_ns=first["transfer_ns"] - first["usual_ns"],
        iterations=iterations,
        iterations_share=len(iterations) / len(slow.numbers),
        members=tuple(sorted(common or members)),
        since=iterations[0] if lasts and len(iterations) < len(slow.numbers) else None,
        gain_ns=judged.gains["transfer"],
        next="compare the links of the members: rankscope imbalance --by collective, and "
        + advice(Record.LINKS if inside else Record.NETWORK, inputs.run.recorder),
    )
    places = {inputs.hosts.get(rank) for rank in members}
    sends = first["operation"] == POINT_TO_POINT
    where = [first["label"]] * sends  # others are called by their ranks
    where += filter(None, [all_on(members, inputs.hosts)])
    where += ["across hosts"] * (sends and None not in places and len(places) > 1)
    place = f" ({', '.join(where)})" if where else ""
    shared = f", all with {ranks_text(tuple(sorted(common)), MOST_LISTED)}" if common else ""
    more = f", one of {len(groups)} slow ones{shared}," * (len(groups) > 1)
    ranks = f" among {ranks_text(tuple(sorted(members)), MOST_LISTED)}"
    ranks *= not sends
    larger = " (if its messages are no larger)" * (sends and not first["sized"])
    calls = first["per_iteration"]
    mean = f" on average over {calls} calls" * (calls > 1)
    adapters = network_words(
        inputs.tables((*inputs.hosts,)), members, {*iterations}, slow.numbers, inputs.hosts
    )
    at = when(verdict, len(slow.numbers), of_captures=inputs.run.of_captures, exactly=False)
    at += " looked at" * (at.endswith("s") and len(slow.numbers) < len(inputs.numbers))
    return replace(
        verdict,
        sentence=f"The transfer is slow: {first['operation']}{ranks}{place}{more} "
        f"takes {ms(first['transfer_ns'])}{mean} "
        f"once all have arrived, usually {ms(first['usual_ns'])}{larger}, {at}"
        f"{f'; the network adapters of its hosts {adapters}' if adapters else ''}. At the usual "
        "speed the run would save",
    )


class Fast(NamedTuple):
    """Ranks that are fast beyond chance."""

    difference: str  # to the others of their roles, in words
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    gain_ns: int  # what the run would save if all were as fast


def _fast(judged: Judgement) -> Fast | None:
    """The ranks that are fast by enough to be said; None where there are none."""
    inputs, excess, fast = judged.inputs, judged.inputs.excess, judged.inputs.story.fast
    if fast is None:
        return None
    members = np.isin(excess.ranks, fast.ranks)
    others = np.isin(excess.roles, excess.roles[members]) & ~members
    over = excess.total - np.nanmedian(excess.total[members], axis=0)
    healing = excess.saved(np.where(others[:, None], over, 0.0), excess.spent)
    gain = judged.prices.most(healing, *judged.prices.of([healing]))
    if gain < LEAST_GAIN * inputs.total_ns:
        return None
    slow, hosts = tuple(excess.ranks[others].tolist()), whole_hosts(fast.ranks, inputs.hosts)
    difference = (
        f"{lowered(who(fast.ranks, inputs.hosts, hosts))} "
        f"{agreeing(len(hosts or fast.ranks), 'needs', 'need')} "
        f"{ms(float(np.nanmean(over[others])))} less {excess.metric} than "
        f"{ranks_text(slow, MOST_LISTED)}"
    )
    return Fast(difference, fast.ranks, slow, gain)


def most_may_be_slow(judged: Judgement) -> Verdict | None:
    """More than a third of a role are fast beyond chance: the others may be slow."""
    inputs, fast = judged.inputs, _fast(judged)
    if fast is None or 2 * len(fast.ranks) <= len(fast.others):
        return None
    return inconclusive(
        f"{fast.difference} in {counted(len(inputs.numbers), 'iteration')}: "
        "either the latter are slow, although they are the majority, or the former are unusually "
        f"fast. If all were as fast, the run would save {judged.at_most}{duration(fast.gain_ns)}, "
        f"{percent(fast.gain_ns / inputs.total_ns)} of the time",
        COMPARE_GROUPS,
        _leading(judged, fast.others, fast.gain_ns, inputs.story.fast),
    )


def rotating(judged: Judgement) -> Verdict | None:
    """Much imbalance on changing ranks: chance explains which of them is slowest."""
    inputs, story = judged.inputs, judged.inputs.story
    if judged.everything_ns < MUCH * inputs.total_ns:
        return None
    excess, everything = inputs.excess, judged.prices.everything
    slowest, own = judged.imbalance.max(axis=0), sorted(holders(inputs, judged.imbalance))
    # iterations in which others differ as much, slower or faster: not all of a host, for one reason
    far = (np.abs(excess.total) >= HALF * slowest).T
    at_once = far.sum(axis=1) >= FEW
    at_once &= [not whole_hosts(excess.ranks[each].tolist(), inputs.hosts) for each in far]
    differ = slowest[at_once].sum() >= MOST * slowest.sum()
    leading, lead, much = _unlikely_lead(judged), story.lead, MUCH * inputs.total_ns
    if leading is not None and leading.gain_ns < much < judged.everything_ns - leading.gain_ns:
        lead = story.second  # one that costs little hides nobody
        if lead is not None and _saved(judged, lead.ranks) < LEAST_GAIN * inputs.total_ns:
            lead = None
    aside = "" if story.loaders_bind else _may_be_slow(judged, leading)
    hit = slowest > event_of(story.noise) * excess.lengths
    brief = in_words(own, inputs, judged.imbalance, slowest.sum())
    # in a part of a run, events that name nobody may be of one rank
    in_part = brief and not inputs.claims and len(inputs.numbers) < story.count
    apart = len(own) > 1 or bool(in_part)
    by_chance = _chance(lead) > RARE and (apart or differ)
    if not (story.loaders_bind or by_chance):
        return None
    sums = everything.sum(axis=(0, 1))
    cause, share = excess.main_phase(sums, sums.sum())
    phase = "" if cause is None else f", mostly in {cause}"
    how = "in the iterations that cost most, others lie as far from the median"
    if apart:
        held = f"{agreeing(len(own), 'holds', 'hold')} most of what imbalance costs"
        ranks = span([rank for rank, _ in own], MOST_LISTED)
        where = all_on([rank for rank, _ in own], inputs.hosts, FEW)
        ranks += f", {where}" if where else ""
        how = (
            f"{brief} {held}"
            if brief
            else f"{counted(len(own), 'rank')} ({ranks}) {held}, each in different iterations"
        )
    return Verdict(
        kind=VerdictKind.ROTATING,
        leading=leading if aside else None,
        holders=()
        if story.loaders_bind or not apart
        else tuple(Holder(rank, tuple(numbers)) for rank, numbers in own),
        cause=cause,
        cause_share=share,
        excess_ns=round(float(slowest[hit].mean())) if hit.any() else None,
        iterations=tuple(excess.numbers[hit].tolist()),
        gain_ns=judged.cost_ns,
        next="compare the reports: rankscope pick-reports; and the input and the hosts of the "
        "ranks: sequence lengths, batch contents, storage, other load",
        sentence="No rank in particular is slow, but loading is slow on all: they wait for data "
        "where no rank holds them up, and one whose queue is empty holds up the others. Faster "
        "loading would save"
        if story.loaders_bind
        else f"No rank in particular is slow: {how}{phase}{aside}. "
        "Without imbalance the run would save",
    )


def _may_be_slow(judged: Judgement, leading: Leading | None) -> str:
    """A clause on who leads beside what is said; empty where nobody does, or at no cost."""
    if leading is None or leading.gain_ns < LEAST_GAIN * judged.inputs.total_ns:
        return ""
    hosts = judged.inputs.hosts
    name = lowered(who(leading.ranks, hosts, whole_hosts(leading.ranks, hosts)))
    return (
        f"; {name} may be slow, which costs {judged.part(leading.gain_ns)}, but chance alone does "
        f"that in {percent(leading.chance or 0.0)} of such runs"
    )


def _unlikely_lead(judged: Judgement) -> Leading | None:
    """Who leads more clearly than chance often does, and what fixing it would save."""
    lead = judged.inputs.story.lead
    if lead is None or _chance(lead) > RARE:
        return None
    return _leading(judged, lead.ranks, _saved(judged, lead.ranks), lead)


def undecided(judged: Judgement) -> Verdict | None:
    """Imbalance costs much, and some ranks lead, but chance is not unlikely enough."""
    inputs, lead = judged.inputs, judged.inputs.story.lead
    total, count, least = inputs.total_ns, inputs.story.count, LEAST_GAIN * inputs.total_ns
    captures = inputs.run.of_captures
    if judged.everything_ns < MUCH * total:
        return None
    ranks = () if lead is None else lead.ranks
    [(rank, events), *_] = holders(inputs, judged.imbalance)
    costliest = (rank,)
    gain, most = _saved(judged, ranks), _saved(judged, costliest)
    apart = ""
    if gain < max(least, HALF * most):  # an event, or who leads in the run not in a part of it
        lead, ranks, gain = None, costliest, most
        few = 0 < len(events) <= FEW and 2 * len(events) < len(inputs.numbers)
        apart = f", mostly in {agreeing(len(events), 'iteration')} {span(events)}" * few
    costs = (
        f"imbalance costs {judged.part(judged.cost_ns)} of the time over "
        f"{counted(len(inputs.numbers), 'iteration')}"
    )
    if gain < least:
        reason = f"{costs}, and no rank is slow beyond chance"
        more = TELL_APART if captures else MORE
        return replace(inconclusive(reason, more), gain_all_ns=judged.cost_ns)
    chance = _chance(lead)
    settles = iterations_to_settle(chance, count)
    causes = registry.findings(inputs.context(lead)) if lead and settles else ()
    why = f" ({registry.findings_sentence(causes)})" if causes else ""
    hosts = whole_hosts(ranks, inputs.hosts)
    one = len(hosts or ranks) == 1
    explains = f"does that in {percent(chance)} of such runs" if chance < 1 else "may explain it"
    settle = "compare the reports: rankscope pick-reports; more iterations may not settle it"
    if captures:
        settle = TELL_APART
    elif settles:
        settle = f"{MORE}: about {settles} iterations would settle it"
    elif count <= FEW:
        settle = MORE
    verdict = inconclusive(
        f"{costs}. {who(ranks, inputs.hosts, hosts)} {'leads' if one else 'lead'}{apart}{why}: "
        f"fixing {'it' if one else 'them'} would save {judged.at_most}{duration(gain)}, "
        f"{percent(gain / total)} of the time, but chance alone {explains}",
        settle,
        _leading(judged, ranks, gain, lead),
    )
    return replace(verdict, settles=settles if settles and not captures else None)


def network(judged: Judgement) -> Verdict | None:
    """Nobody is late, and yet communication holds the ranks up for a large part of the time.

    Calls of a pipeline that were not matched are none of it: they wait for the other stages.
    """
    inputs = judged.inputs
    unmatched = 0 if inputs.stages() else inputs.unmatched_ns or 0
    parts = (inputs.exposed_transfer_ns or 0, unmatched)
    if sum(parts) < LARGE_TRANSFER * inputs.total_ns:
        return None
    known = (inputs.unmatched_ns or 0) < MUCH * inputs.total_ns
    waits = _waited(inputs) / inputs.total_ns
    late = "late" if known else "known to be late"
    if waits >= MUCH:
        late += f" (ranks wait {percent(waits)} of the time for each other)"
    return Verdict(
        kind=VerdictKind.COMMUNICATION,
        cause=EXPOSED,
        cause_share=1.0,
        gain_ns=sum(parts),
        gain_is_bound=True,
        iterations=tuple(inputs.numbers),
        next=COMPARE_LINKS,
        sentence=f"No rank{' in particular' * (waits >= MUCH)} is {late}, and yet "
        f"{'the network' if known else 'communication'} holds all ranks up for "
        f"{ms(sum(parts) / len(inputs.numbers))} an iteration: "
        f"{'; '.join(held_up(inputs, MUCH))}. Without that the run would save",
    )


def _waited(inputs: VerdictInputs) -> int:
    """How long the median rank waits for others, ns."""
    return 0 if inputs.held_up is None else int(inputs.held_up["wait_ns"].quantile(0.5) or 0)


def balanced(judged: Judgement) -> Verdict:
    """No other rule has found anything."""
    inputs = judged.inputs
    unsaid = judged.cost_ns < LEAST_GAIN * inputs.total_ns or inputs.claims
    nobody = f"no rank is slow beyond chance by {percent(BY_NATURE)} or more; "
    leading = _unlikely_lead(judged)
    aside = _may_be_slow(judged, leading)
    details = "".join(f"; {each}" for each in (*held_up(inputs, MUCH), *changed(inputs)))
    if (fast := _fast(judged)) is not None:
        details += f"; {fast.difference}, and if all needed as little the run would save "
        details += judged.part(fast.gain_ns)
    return Verdict(
        kind=VerdictKind.BALANCED,
        next=_costliest(inputs, fast),
        sentence=f"Balanced: over {counted(len(inputs.numbers), 'iteration')} of "
        f"{counted(len(inputs.excess.ranks), 'rank')}, "
        f"{'' if unsaid else nobody}all imbalance together costs "
        f"{judged.part(judged.cost_ns)} of the time{details}{aside}",
        leading=leading if aside else None,
    )


def _costliest(inputs: VerdictInputs, fast: Fast | None) -> str:
    """What to look at where no rank is slow: what costs most, of what costs much."""
    lengths = inputs.excess.lengths
    usual = float(np.nanmedian(lengths))
    waited = _waited(inputs)
    longer = lengths >= (1.0 + HALF) * usual
    numbers = [*compress(inputs.numbers, longer.tolist())]
    steps = [
        (
            float(lengths[longer].sum()) - usual * len(numbers),
            f"see why {agreeing(len(numbers), 'iteration')} {span(numbers, MOST_LISTED)} "
            f"{agreeing(len(numbers), 'takes', 'take')} longer on all ranks: rankscope imbalance "
            "--by iteration",
        ),
        (inputs.exposed_transfer_ns or 0, COMPARE_LINKS),
        (0 if fast is None else fast.gain_ns, COMPARE_GROUPS),
        (
            waited,
            f"see where the ranks wait for each other, {percent(waited / inputs.total_ns)} of the "
            "time: rankscope imbalance --by collective",
        ),
    ]
    cost, step = max(steps, key=lambda each: each[0])
    if cost >= MUCH * inputs.total_ns:
        return step
    return "look for time that all ranks lose in the same way: rankscope imbalance --by phase"


def _may_be_by_design(judged: Judgement, leading: Leading, *, is_stage: bool = False) -> Verdict:
    """Ranks need more than the others, which have other roles."""
    inputs, one = judged.inputs, len(leading.ranks) == 1
    why = f"{'it' if one else 'each'} is the only one of its role"
    if is_stage:
        why = "they are all the ranks of one communicator of a pipeline"
    return inconclusive(
        f"{lowered(who(leading.ranks, inputs.hosts, ()))} {'needs' if one else 'need'} more "
        f"{inputs.excess.metric} than the others, {judged.part(leading.gain_ns)} of the "
        f"time, but {why}: {'it' if one else 'they'} may be slow, or have more to do by design",
        "say with --roles which ranks do the same work, compare the layers of the stages, or "
        "profile several replicas of the job",
        leading,
    )


def _leading(judged: Judgement, ranks: tuple[int, ...], gain: int, claim: Slow | None) -> Leading:
    chance = None if claim is None else claim.chance
    return Leading(ranks, gain, gain / judged.inputs.total_ns, chance)


def _saved(judged: Judgement, ranks: tuple[int, ...]) -> int:
    """What ranks at their role's median save, ns."""
    prices, excess = judged.prices, judged.inputs.excess
    healing = excess.only(prices.everything, np.isin(excess.ranks, ranks))
    return prices.most(healing, *prices.of([healing]))


def _chance(lead: Slow | None) -> float:
    return 1.0 if lead is None or lead.chance is None else lead.chance


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
    preconditions.began_apart,
    preconditions.late_by_unmatched,
    network,
    preconditions.unlike_outside,
    balanced,
)
"""The first rule that finds something decides; the last one always does."""
