"""What is true of a whole run, whatever range is asked about: its noise, and who is slow in it.

See METHOD.md#verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rankscope.judge.cells import amounts, event_of, noise_of, places_of, where_of
from rankscope.judge.chance import (
    chance_of_few,
    chance_of_largest,
    chance_of_sets,
    lasting,
)
from rankscope.judge.excess import Excess, Index
from rankscope.judge.levels import ALPHA, BY_NATURE, FEW, HALF, LEAST_GAIN, MOST, NOISE, RARE
from rankscope.judge.timing import Pattern, pattern_of
from rankscope.model.kinds import Phase, VerdictKind
from rankscope.util.robust import Floats, lower_medians


@dataclass(frozen=True, slots=True)
class Slow:
    """Ranks that are slow, and when.

    `chance`: the probability that a run without slow ranks looks like this. None of facts: that
    something happened needs no test, but it says nothing of other iterations.
    """

    ranks: tuple[int, ...]
    pattern: Pattern
    chance: float | None


@dataclass(frozen=True, slots=True)
class Story:
    """What holds for every range of a run.

    `noise`: a robust deviation of a rank around its own median, as a share of the iteration.
    `slow`: the ranks that are slow beyond chance, then those with facts.
    `lead`: of the other ranks those that are slowest, and the probability that chance makes some
    ranks that slow: it is no small one. None where no excess is positive. `count`: iterations.
    `fast`: ranks that are fast beyond chance, if no rank is slow beyond it and they are more than a
    third of their role: the others may then be the slow ones.
    `loaders_bind`: the loaders of all ranks are the bottleneck, so loading blames nobody.
    """

    noise: float
    slow: tuple[Slow, ...]
    lead: Slow | None
    count: int
    fast: Slow | None = None
    loaders_bind: bool = False

    @property
    def event(self) -> float:
        """The share of an iteration from which on an excess is an event."""
        return event_of(self.noise)


def story_of(excess: Excess, spans: Floats | None = None) -> Story:
    """The story of a run.

    Args:
        excess: of all iterations.
        spans: of few iterations, what each rank needs between collectives: rank by span, ns. Ranks
            are then exchanged within a span in place of an iteration.
    """
    if spans is not None:
        spans = spans - np.median(spans, axis=0)
    noise = noise_of(np.nan_to_num(excess.share), excess.roles)
    found, lead = _traits(excess, noise, spans)
    loaders_bind = bool(found) and _waits_for_queue(excess, found[0])  # that costs most
    if loaders_bind:
        excess = excess.without(Phase.LOAD)
        found, lead = _traits(excess, noise, None)
    found += facts_of(excess, noise, found)
    slow = any(each.chance is not None for each in found)
    fast = None if slow else _fast(excess, noise, spans)
    return Story(noise, tuple(found), lead, len(excess.numbers), fast, loaders_bind)


def claims_of(excess: Excess, story: Story) -> list[Slow]:
    """Who is slow in some iterations by the story of the run, then who has further events in them.

    Args:
        excess: of these iterations.
        story: of the whole run.
    """
    numbers = excess.numbers.tolist()
    parts = (replace(each, pattern=each.pattern.within(numbers)) for each in story.slow)
    known = [each for each in parts if each.pattern.iterations]
    told = excess.without(Phase.LOAD) if story.loaders_bind else excess
    return known + facts_of(told, story.noise, known)


def _traits(excess: Excess, noise: float, spans: Floats | None) -> tuple[list[Slow], Slow | None]:
    """The ranks that are slow beyond chance, one set after the other, and who leads then."""
    found: list[Slow] = []
    shares, left = np.nan_to_num(excess.share), np.nan_to_num(excess.total)
    while len(found) < FEW:
        trait = _slowest(excess, shares, left, noise, spans)
        if trait is None or trait.chance is None or trait.chance > ALPHA:
            return found, trait
        found.append(trait)
        members = places_of(excess, trait.ranks)
        shares[members] = 0.0
        left = left - amounts(excess, noise, where_of(excess, members, trait.pattern.iterations))
    return found, None


def _waits_for_queue(excess: Excess, trait: Slow) -> bool:
    """Whether the others load quickly only while they wait for these ranks.

    A loader that runs ahead fills its queue while its rank waits for another one. Where the loaders
    of all ranks are the bottleneck, the rank whose queue is empty waits for data in every
    iteration, and the others do not. That shows in iterations in which nobody is held up by it: the
    others wait for data as well then.
    """
    if Phase.LOAD not in excess.phases:
        return False
    place = excess.phases.index(Phase.LOAD)
    members = places_of(excess, trait.ranks)
    here = np.isin(excess.numbers, trait.pattern.iterations)
    spent = np.nan_to_num(excess.spent[:, :, place])
    own = float(np.median(np.nan_to_num(excess.by_phase[members][:, here, place])))
    whole = float(np.median(np.nan_to_num(excess.total[members][:, here])))
    if here.all() or not own > 0 or own < HALF * whole:
        return False
    others = lower_medians(np.delete(spent, members, 0), 0)[0]
    return bool(np.median(others[~here]) - np.median(others[here]) >= HALF * own)


def _fast(excess: Excess, noise: float, spans: Floats | None) -> Slow | None:
    """The ranks of `Story.fast`, found as slow ranks are, but from the negative excess."""
    turned = replace(excess, total=-excess.total, by_phase=-excess.by_phase)
    share, left = np.nan_to_num(turned.share), np.nan_to_num(turned.total)
    found = _slowest(turned, share, left, noise, None if spans is None else -spans)
    if found is None or found.chance is None or found.chance > ALPHA:
        return None
    members = places_of(excess, found.ranks)
    counts = np.bincount(excess.roles[members], minlength=excess.roles.max() + 1)
    many = (3 * counts > np.bincount(excess.roles))[excess.roles[members]]  # of each role
    return found if many.all() else None


def _not_described(excess: Excess, known: Sequence[Slow]) -> Floats:
    """Excess as shares, 0 where it is described already."""
    share = np.nan_to_num(excess.share)
    for each in known:
        share[where_of(excess, places_of(excess, each.ranks), each.pattern.iterations)] = 0.0
    return share


def _slowest(
    excess: Excess, share: Floats, left: Floats, noise: float, spans: Floats | None
) -> Slow | None:
    """The set of ranks that costs most, and how likely it is.

    Args:
        excess: of all ranks.
        share: their excess, 0 of ranks that are known to be slow.
        left: excess without that of these, ns.
        noise: as in `Story`.
        spans: excess of each rank between collectives, where these are exchanged.
    """
    limit = max(NOISE * noise, BY_NATURE)
    cells = np.clip(share, -limit, limit)  # of a trait, single events are no part
    sums = cells.sum(axis=1)
    order = np.argsort(-sums, kind="stable")
    sizes = [*_knees(sums[order], _most(excess.roles))]
    if not sizes:
        return None
    if spans is None:
        chances = _chances(cells, excess.roles, order, sizes)
    else:
        chances = _chance_of_spans(spans, excess.roles, order, sizes)
    sets = (
        _set_of(excess, share, noise, left, order[:size], chance)
        for size, chance in zip(sizes, chances.tolist(), strict=True)
    )
    tried = [each for each in sets if each is not None]
    sure = [each for each in tried if (each[0].chance or 0.0) <= ALPHA]
    return max(sure or tried, key=lambda each: each[1], default=(None, 0.0))[0]


def _set_of(
    excess: Excess, share: Floats, noise: float, left: Floats, members: Index, chance: float
) -> tuple[Slow, float] | None:
    """Those of some ranks that are slow by at least half as much as the slowest, as a set.

    With it the time that healing them saves, times the probability that it is no chance, ns. None
    where they are slow by less than ranks differ by nature, or that time is nothing.

    Args:
        excess: of all ranks.
        share: as in `_slowest`.
        noise: as in `Story`.
        left: excess without that of ranks that are known to be slow, ns.
        members: their places.
        chance: of the set.
    """
    pattern = pattern_of(share[members].mean(axis=0), NOISE * noise, excess.numbers)
    here = np.isin(excess.numbers, pattern.iterations)
    then = np.median(share[np.ix_(members, here)], axis=1)
    mostly = pattern.kind is VerdictKind.PERSISTENT and then.min() > NOISE * noise
    if not mostly and not pattern.lasting and pattern.kind is not VerdictKind.PERIODIC:
        pattern = Pattern(VerdictKind.PERSISTENT, tuple(excess.numbers.tolist()), always=True)
        here[:] = True
        then = np.median(share[members], axis=1)
    if then.max() < BY_NATURE:
        return None
    alike = then >= max(HALF * then.max(), BY_NATURE)
    if not alike.all():
        return _set_of(excess, share, noise, left, members[alike], chance)
    after = left - amounts(excess, np.inf, where_of(excess, members, pattern.iterations))
    gain = float((left.max(axis=0) - np.maximum(after.max(axis=0), 0.0))[here].sum())
    if gain < LEAST_GAIN * float(np.nansum(excess.lengths[here])):
        return None
    counts = np.bincount(excess.roles[members], minlength=excess.roles.max() + 1)
    if (2 * counts == np.bincount(excess.roles))[counts > 0].any():
        chance = min(2 * chance, 1.0)  # that the other half is fast would have been found as well
    ranks = tuple(sorted(excess.ranks[members].tolist()))
    return Slow(ranks, pattern, chance), gain * (1 - chance)


def _chances(cells: Floats, roles: Index, order: Index, sizes: list[int]) -> Floats:
    """`chance_of_sets`, with ranks exchanged for as long as the others stay as slow as they are.

    A loader that has fallen behind stays behind, and an expert is asked for during many iterations,
    which are not independent then. A slow rank stays slow anyway, so only those that are not in the
    set tell how long ranks do that.
    """
    lengths = np.array([lasting(np.delete(cells, order[:size], 0)) for size in sizes])
    found = np.empty(len(sizes))
    for length in np.unique(lengths):
        blocks = np.add.reduceat(cells, np.arange(0, cells.shape[1], length), axis=1)
        found = np.where(lengths == length, chance_of_sets(blocks, roles, sizes), found)
    return found


def _chance_of_spans(spans: Floats, roles: Index, order: Index, sizes: list[int]) -> Floats:
    """`chance_of_sets` of the ranks that lead in whole iterations; 1 where others lead in spans."""
    chances = chance_of_sets(spans, roles, sizes)
    leading = np.argsort(-spans.sum(axis=1), kind="stable")
    same = [{*order[:size].tolist()} == {*leading[:size].tolist()} for size in sizes]
    return np.where(same, chances, 1.0)


def _most(roles: Index) -> int:
    """The most ranks that a set may have: half of each role, for who is slow if most are?"""
    return max(int(sum(np.bincount(roles) // 2)), 1)


def _knees(sums: Floats, most: int) -> Iterator[int]:
    """Sizes of sets after which the next rank costs clearly less, ascending.

    Args:
        sums: of the ranks, the highest first.
        most: the largest size.
    """
    before, after = sums[:most], np.append(sums[1:], 0.0)[:most]
    sizes = np.flatnonzero((before > 0) & (after < MOST * before))
    largest = np.argsort((after - before)[sizes], kind="stable")[:FEW]
    yield from sorted((sizes[largest] + 1).tolist())


def facts_of(excess: Excess, noise: float, known: Sequence[Slow]) -> list[Slow]:
    """The few ranks or sets of ranks whose events lie apart from all that others do.

    Args:
        excess: of some iterations.
        noise: as in `Story`, of the whole run.
        known: what is described already.
    """
    share = _not_described(excess, known)
    found: list[Slow] = []
    amounts_of: list[Floats] = []
    named: list[int] = []
    apart = 0
    for count in range(1, FEW + 1):
        events = np.where(share > event_of(noise), share, 0.0)
        if not events.any():
            break
        groups = [[place] for place in range(len(share))] + _together(events)
        worth = _worth(groups, events, share, excess)
        best = int(worth.sum(axis=1).argmax())
        members = np.asarray(groups[best])
        amount = np.where(worth[best] > 0, share[members].mean(axis=0), 0.0)
        pattern = pattern_of(amount, 0.0, excess.numbers)
        here = np.isin(excess.numbers, pattern.iterations)
        found.append(Slow(tuple(excess.ranks[members].tolist()), pattern, None))
        amounts_of.append(amount[here & (amount > 0)])
        share[np.ix_(members, here)] = 0.0
        named += groups[best]
        if 2 * len({*named}) > len(share):
            break
        lone = np.concatenate(amounts_of)
        rare = count == 1 or len(lone) <= max(RARE * len(excess.numbers), 1)
        rare = rare or chance_of_few(len(lone), count, len(share)) <= RARE
        others = np.maximum(np.abs(np.delete(share, named, 0)), NOISE * noise)
        if rare and len(lone) and chance_of_largest(lone, others) <= ALPHA:
            apart = count
    return found[:apart]


def _together(events: Floats) -> list[list[int]]:
    """Sets of ranks with events in the same iteration, of at most half of the ranks."""
    columns = {tuple(np.flatnonzero(column).tolist()) for column in (events > 0).T}
    return [[*each] for each in sorted(columns) if 1 < len(each) <= len(events) // 2]


def _worth(groups: list[list[int]], events: Floats, share: Floats, excess: Excess) -> Floats:
    """About what healing each group's events would save: what it exceeds the other ranks by, ns.

    Args:
        groups: places of ranks.
        events: rank by iteration, as shares.
        share: the same of all excess.
        excess: of all ranks.
    """
    unit = np.nan_to_num(np.nanmax(excess.unit, axis=0))
    found = np.zeros((len(groups), events.shape[1]))
    high = np.partition(share, -2, axis=0)[-2:] if len(share) > 1 else np.vstack([0 * share, share])
    for place, members in enumerate(groups):
        here = np.flatnonzero((events[members] > 0).mean(axis=0) >= MOST)
        if len(members) == 1:
            own = share[members[0], here]
            next_one = np.where(own >= high[1, here], high[0, here], high[1, here])
        else:
            own = np.median(share[np.ix_(np.asarray(members), here)], axis=0)
            next_one = np.delete(share[:, here], members, 0).max(axis=0, initial=0.0)
        found[place, here] = np.maximum(own - np.maximum(next_one, 0.0), 0.0) * unit[here]
    return found
