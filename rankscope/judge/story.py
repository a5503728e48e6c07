"""What holds for a whole run, whichever range is selected: its noise, and which ranks are slow.

See METHOD.md#verdict.
"""

import numpy as np
from msgspec.structs import replace

from rankscope.judge.claims import Slow, Story
from rankscope.judge.excess import Excess, usual_of
from rankscope.judge.facts import extended, facts_of, rare_events
from rankscope.judge.levels import HALF, MOST, MUCH, RARE
from rankscope.judge.noise import noise_of
from rankscope.judge.shared import joined, joined_by_host, slow_hosts, with_turns
from rankscope.judge.traits import costliest_set, is_sure, slowest, traits_of, without_claim
from rankscope.model.intervals import Floats
from rankscope.model.kinds import Phase


def story_of(excess: Excess, spans: Floats | None = None) -> Story:
    """The story of a run.

    Args:
        excess: of all iterations.
        spans: of few iterations, what each rank needs between collectives: rank by span, ns. Ranks
            are then exchanged within a span in place of an iteration.
    """
    if spans is not None:
        usual = usual_of(spans, excess.roles)
        work = np.nansum(usual_of(excess.value, excess.roles), axis=1, keepdims=True)
        # as long as all work, unless only loading, a part of them, is known
        spans = (spans - usual) * np.fmax(work / np.fmax(usual.sum(axis=1, keepdims=True), 1), 1)
    noise = noise_of(excess)
    facts = facts_of(excess, noise)
    rare = rare_events(excess, facts)
    traits, lead, rest = traits_of(excess, noise, spans, rare)
    if traits:
        facts = facts_of(rest, noise)
    first = next(iter((*traits, *facts, lead)))
    loaders_bind = first is not None and is_loading(excess, first) and _loaders_bind(excess, first)
    if loaders_bind:
        traits, lead, rest = traits_of(excess.beside(Phase.LOAD), noise, None)
        facts = facts_of(rest, noise)
    fast = None
    if not traits:
        turned = replace(rest, total=-rest.total)
        fast = costliest_set(turned, {None: noise}, None if spans is None else -spans)
    fast = fast if fast is not None and is_sure(fast) else None
    slow = [*traits, *(extended(fact, rest, noise) for fact in facts)]
    if spans is None and not loaders_bind:
        slow = with_turns(slow or slow_hosts(excess), excess, noise)
    slow = joined_by_host(joined(slow, excess), excess, noise)
    second = None
    if lead is not None and spans is None and (lead.chance or 0.0) <= RARE:
        second = slowest(without_claim(rest, lead), noise, None, rare)
    return Story(noise, tuple(slow), lead, len(excess.numbers), fast, loaders_bind, second)


def is_loading(excess: Excess, claim: Slow) -> bool:
    """Whether at least half of what the ranks need more is for loading."""
    if Phase.LOAD not in excess.phases:
        return False
    cells = claim.cells(excess)
    load = np.nan_to_num(excess.by_phase[:, :, excess.phases.index(Phase.LOAD)])
    return bool(0 < np.median(load[cells]) >= HALF * np.median(np.nan_to_num(excess.total[cells])))


def _loaders_bind(excess: Excess, claim: Slow) -> bool:
    """Whether the loaders of most other ranks are the bottleneck as well, and as slow.

    Such a loader delivers at its own pace, so its rank waits less by what the rest of the iteration
    takes longer: the time from batch to batch varies less than the wait. A load in the foreground
    takes as long whatever the rest takes.
    """
    load, length = excess.spent[:, :, excess.phases.index(Phase.LOAD)], excess.length
    waited = (load[:, :-1] >= MUCH * length[:, :-1]) & np.isfinite(load[:, 1:])
    waited &= np.diff(excess.numbers) == 1
    named = np.isin(excess.ranks, claim.ranks)
    others = waited.any(axis=1) & ~named
    enough = 2 * others.sum() >= (~named).sum() and waited[others].sum() >= 2 * others.sum()
    waits = load[:, :-1]
    if not (enough and waited[named].any()) or (
        np.mean(waits[others][waited[others]]) < (1 - MOST) * np.mean(waits[named][waited[named]])
    ):
        return False
    to_next, load = (
        np.ma.array(each, mask=~waited)
        for each in (load[:, 1:] + (length - load)[:, :-1], load[:, 1:])
    )
    lag = to_next[named].mean() - to_next[others].mean()
    steady, varied = ((each[others].anom(axis=1) ** 2).sum() for each in (to_next, load))
    # of loads in the foreground it is twice as much, as it holds two of them
    return bool(steady < (1 + HALF) * varied and lag < MUCH * np.nanmedian(length))
