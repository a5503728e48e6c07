"""Rules that name no rank: a role with more work, a slow link, changing ranks, or nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rankscope.judge.chance import iterations_to_settle
from rankscope.judge.hosts import whole_hosts
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.judgement import Component, Judgement, holders
from rankscope.judge.levels import ALPHA, LARGE_TRANSFER, LEAST_GAIN, MUCH, RARE
from rankscope.judge.phrases import who
from rankscope.judge.preconditions import inconclusive, only_one
from rankscope.judge.story import Slow
from rankscope.judge.stragglers import largest_phase
from rankscope.match.warnings import listed
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Leading, Verdict
from rankscope.sources.recorders import Record, advice
from rankscope.util.robust import Floats
from rankscope.util.wording import agreeing, counted, ms, percent


def heavy_role(judged: Judgement) -> Verdict | None:
    """The role that is given most work, where balancing the roles would save most."""
    inputs = judged.inputs
    if judged.main is not Component.ROLE or judged.prices.components.role is None:
        return None
    excess, healed = inputs.excess, judged.prices.components.role
    cost = np.array([healed[excess.roles == role].sum() for role in range(len(excess.role_names))])
    heaviest = int(cost.argmax())
    members = np.flatnonzero(excess.roles == heaviest)
    if len(members) == 1:
        return only_one((int(excess.ranks[members[0]]),), excess.metric)
    per = healed[members[0]].sum(axis=1)
    hit = per > LEAST_GAIN * np.nan_to_num(excess.length[members[0]])
    mean = round(float(per[hit].mean())) if hit.any() else 0
    typical = float(np.nanmedian(excess.length[members[0]]))
    cause, share = largest_phase(inputs, healed[members])
    gain = judged.gains[Component.ROLE]
    return Verdict(
        kind=VerdictKind.STRUCTURAL,
        roles=(excess.role_names[heaviest],),
        more_work_ranks=tuple(int(rank) for rank in excess.ranks[members]),
        cause=cause,
        cause_share=share,
        excess_ns=mean,
        excess=mean / typical if typical else None,
        iterations=tuple(int(number) for number in excess.numbers[hit]),
        gain_ns=gain,
        next="balance the work of the roles: layers per stage, embedding and loss",
    )


def whole_stage(judged: Judgement) -> Verdict | None:
    """All ranks of a pipeline stage are slow: hardware, or more to do by design?"""
    found, inputs = judged.straggler, judged.inputs
    if found is None or judged.is_by_design:
        return None
    if len(found.claim.ranks) < 2 or found.claim.ranks not in inputs.stages():
        return None
    ranks, gain = found.claim.ranks, judged.gain_of(found)
    share = gain / inputs.total_ns
    verdict = inconclusive(
        f"{who(ranks, inputs.hosts, ()).lower()} need more {inputs.excess.metric} than the others, "
        f"{percent(share)} of the time, but they are all the ranks of one communicator of a "
        "pipeline: they may be slow, or have more to do by design",
        "say with --roles which ranks do the same work, or compare the layers of the stages",
    )
    return replace(verdict, leading=Leading(ranks, gain, share, found.claim.chance))


def network(judged: Judgement) -> Verdict | None:
    """Nobody is late, and yet the ranks are held up by transfers for a large part of the time."""
    inputs = judged.inputs
    exposed = inputs.exposed_transfer_ns
    if exposed is None or exposed < LARGE_TRANSFER * inputs.total_ns:
        return None
    return Verdict(
        kind=VerdictKind.COMMUNICATION,
        cause="exposed_communication",
        cause_share=1.0,
        gain_ns=exposed,
        gain_is_bound=True,
        iterations=tuple(inputs.numbers),
        next="compare the bandwidth with what the links can do: rankscope imbalance --by "
        "collective",
    )


def slow_link(judged: Judgement) -> Verdict | None:
    """Collectives that take longer than usual once all ranks have arrived."""
    inputs = judged.inputs
    slow = judged.prices.slow
    if judged.main is not Component.TRANSFER or slow is None:
        return None
    first = slow.slow.row(0, named=True)
    ranks, hosts = slow.pointed_at(inputs.hosts)
    gain = judged.gains[Component.TRANSFER]
    excess_ns = first["transfer_ns"] - first["usual_ns"]
    typical = float(np.nanmedian(inputs.excess.lengths))
    return Verdict(
        kind=VerdictKind.COMMUNICATION,
        ranks=ranks,
        hosts=hosts,
        cause="exposed_communication",
        cause_share=1.0,
        excess_ns=excess_ns,
        excess=excess_ns / typical if typical else None,
        iterations=tuple(first["iterations"]),
        gain_ns=gain,
        next="compare the links of the members: rankscope imbalance --by collective, and "
        + advice(Record.NETWORK, inputs.run.recorder),
    )


def most_may_be_slow(judged: Judgement) -> Verdict | None:
    """Nearly half of the ranks are fast, so that most of them may be slow."""
    inputs = judged.inputs
    excess, fast = inputs.excess, inputs.story.fast
    if fast is None:
        return None
    members = np.flatnonzero(np.isin(excess.ranks, fast.ranks))
    others = np.isin(excess.roles, excess.roles[members])
    others[members] = False
    best = np.nanmedian(excess.total[members], axis=0)
    over = np.where(others[:, None], excess.total - best, 0.0)
    healing = excess.saved(over, excess.spent)
    (gain,) = judged.prices.of([healing])
    if gain < LEAST_GAIN * inputs.total_ns:
        return None
    gain = judged.prices.most(healing, gain)
    share, bound = gain / inputs.total_ns, "at most " if judged.prices.is_bound else ""
    ranks = tuple(int(rank) for rank in excess.ranks[others])
    hosts = whole_hosts(fast.ranks, inputs.hosts)
    quick = who(fast.ranks, inputs.hosts, hosts)
    verdict = inconclusive(
        f"{quick[0].lower()}{quick[1:]} {agreeing(len(hosts or fast.ranks), 'needs', 'need')} "
        f"{ms(round(float(np.nanmean(over[others]))))} less {excess.metric} than "
        f"{agreeing(len(ranks), 'rank')} {listed(ranks)} in {counted(over.shape[1], 'iteration')}: "
        "either the latter are slow, although they are the majority, or the former are unusually "
        "fast. If all were as fast, "
        f"the run would save {bound}{ms(gain)}, {percent(share)} of the time",
        "compare the devices and hosts of both groups: models, clocks, power limits, versions",
    )
    return replace(verdict, leading=Leading(ranks, gain, share, fast.chance))


def rotating(judged: Judgement) -> Verdict | None:
    """Imbalance that is much, on changing ranks: chance explains who is slowest."""
    inputs, lead = judged.inputs, judged.inputs.story.lead
    if judged.everything_ns < MUCH * inputs.total_ns:
        return None
    if not inputs.story.loaders_bind and (_chance(lead) <= RARE or len(holders(judged)) < 2):
        return None
    excess = inputs.excess
    everything = judged.prices.components.everything
    slowest = np.nan_to_num(everything.sum(axis=2)).max(axis=0)
    hit = slowest > inputs.story.event * excess.lengths
    cause, share = largest_phase(inputs, everything)
    return Verdict(
        kind=VerdictKind.ROTATING,
        cause=cause,
        cause_share=share,
        excess_ns=round(float(slowest[hit].mean())) if hit.any() else None,
        iterations=tuple(int(number) for number in excess.numbers[hit]),
        gain_ns=judged.cost_ns,
        next="compare the input and the hosts of the ranks: sequence lengths, batch contents, "
        "storage, other load",
    )


def undecided(judged: Judgement) -> Verdict | None:
    """Some ranks lead, by much or by what is worth a name, but chance is not unlikely enough.

    A small lead is reported if no test could have confirmed it: with few ranks and iterations, even
    a rank that leads every time may do so by chance.
    """
    inputs = judged.inputs
    lead, total = inputs.story.lead, inputs.total_ns
    ranks = () if lead is None else lead.ranks
    gain, healing = _saved(judged, ranks)
    if gain < LEAST_GAIN * total:  # who leads in the run need not do so in a part of it
        lead, ranks = None, (holders(judged)[0],)
        gain, healing = _saved(judged, ranks)
    untested = lead is not None and _least_chance(inputs) > ALPHA
    if judged.everything_ns < MUCH * total and not untested:
        return None
    gain, cost, chance = judged.prices.most(healing, gain), judged.cost_ns, _chance(lead)
    count = len(inputs.numbers)
    bound = "at most " if judged.prices.is_bound else ""
    costs = (
        f"Inconclusive: imbalance costs {bound}{percent(cost / total)} of the time over "
        f"{counted(count, 'iteration')}"
    )
    nobody = Verdict(
        kind=VerdictKind.INCONCLUSIVE,
        gain_all_ns=cost,
        sentence=f"{costs}, and no rank is slow beyond chance.",
        next="capture more iterations",
    )
    if gain < LEAST_GAIN * total:
        return nobody
    settles = iterations_to_settle(chance, ALPHA, inputs.story.count)
    name = who(ranks, inputs.hosts, whole_hosts(ranks, inputs.hosts))
    return replace(
        nobody,
        leading=Leading(ranks, gain, gain / total, None if lead is None else chance),
        settles=settles or None,
        sentence=f"{costs}. {name} {agreeing(len(ranks), 'leads', 'lead')}: fixing "
        f"{agreeing(len(ranks), 'it', 'them')} would save {bound}{ms(gain)}, "
        f"{percent(gain / total)} of the time, but chance alone {_does_that(chance)}.",
        next=f"capture more iterations: about {settles} iterations would settle it"
        if settles
        else nobody.next,
    )


def _saved(judged: Judgement, ranks: tuple[int, ...]) -> tuple[int, Floats]:
    """What ranks at their role's median save, and the healing."""
    everything = judged.prices.components.everything
    of_them = np.isin(judged.inputs.excess.ranks, ranks)
    healing = np.where(of_them[:, None, None], everything, 0)
    (gain,) = judged.prices.of([healing])
    return gain, healing


def _least_chance(inputs: VerdictInputs) -> float:
    """The smallest probability that a test of the run can give: one rank leads every time."""
    spans = inputs.spans
    units = inputs.story.count if spans is None else spans.shape[1]
    most = int(np.bincount(inputs.excess.roles).max())
    return float(most) ** (1 - units) * (2 if most == 2 else 1)


def _does_that(chance: float) -> str:
    """How often chance makes some ranks as slow as those that lead."""
    return f"does that in {percent(chance)} of such runs" if chance < 1 else "may explain it"


def _chance(lead: Slow | None) -> float:
    return 1.0 if lead is None or lead.chance is None else lead.chance


def balanced(judged: Judgement) -> Verdict:
    """No other rule has found anything."""
    del judged
    return Verdict(
        kind=VerdictKind.BALANCED,
        next="look for time that all ranks lose in the same way: rankscope imbalance --by phase",
    )
