"""Which ranks had events that lie apart from all that others do.

See METHOD.md#verdict.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from rankscope.judge.chance import chance_of_largest, chance_of_levels, chance_of_sets
from rankscope.judge.claims import Pattern, Slow, differing, event_of
from rankscope.judge.excess import Excess
from rankscope.judge.levels import ALPHA, BY_NATURE, FEW, HALF, MOST, MUCH, NOISE, RARE
from rankscope.judge.timing import pattern_of
from rankscope.judge.traits import change_of
from rankscope.model.intervals import Floats, Index
from rankscope.util.numbers import ROBUST


def facts_of(excess: Excess, noise: float) -> list[Slow]:
    """The few ranks or sets of ranks whose events lie apart from all that others do.

    Args:
        excess: what traits do not explain.
        noise: of a rank around its own level, as a share of the iteration.
    """
    share, numbers = excess.share.copy(), excess.numbers
    sought = share.copy()
    facts: list[Slow] = []
    amounts, named = np.empty(0), np.zeros(len(share), dtype=np.bool_)
    # the noise is that of each rank around its own level
    free = (len(share) - len(np.unique(excess.roles))) * max(len(numbers) - 1, 1)
    significant = single = 0
    for _ in range(FEW):
        members, amount = _costliest(sought, event_of(noise), excess)
        if not amount.any():
            break
        # one that waits for a slower rank may do meanwhile what was due
        slower = np.delete(excess.share > event_of(noise), members, axis=0).any(axis=0)
        pattern = pattern_of(amount, 0.0, numbers, slower & (amount == 0))
        fact = Slow(tuple(excess.ranks[members].tolist()), pattern, None)
        sought[fact.cells(excess)] = 0.0
        during = np.isin(numbers, pattern.iterations)
        then = excess.share[:, during]
        if pattern.since is not None or pattern.spells:  # others may have such spells as well
            suspects = np.union1d(np.flatnonzero(named), members)
            layout = excess.roles, excess.hosts, members, suspects
            levels = chance_of_levels(change_of(excess.share, during), *layout, changes=True) / RARE
            if min(levels, chance_of_levels(then, *layout, nature=BY_NATURE)) > ALPHA:
                continue
        others = np.delete(then, members, axis=0)  # all may differ as much in these iterations
        differ = ROBUST * np.median(np.abs(others - np.median(others, axis=0)), axis=0)
        if (then[members].mean(axis=0) <= NOISE * differ).all():
            continue
        facts.append(fact)
        events = amount[np.isin(numbers, pattern.iterations) & (amount > 0)]
        if pattern.has_one_reason:  # it has one size
            events = np.full(len(events), np.median(events))
        else:
            # events in successive iterations may have one reason
            single += 1 + int((np.diff(np.flatnonzero(during & (amount > 0))) > 1).sum())
        amounts = np.append(amounts, events)
        before = share.copy()
        share[fact.cells(excess)] = 0.0
        named[members] = True
        one_owner = len({each.ranks for each in facts}) == 1
        rare = one_owner or single <= max(RARE * len(numbers), 1)
        beside = ~named | (2 * named.sum() > len(share))
        background = np.abs(share[beside])
        if share.shape[1] >= FEW:  # a level is no event, nor is a rank as slow as usual
            level = np.median(share[beside], axis=1, keepdims=True)
            background = np.fmin(np.abs(share[beside] - level), excess.own_changes[beside])
        chance = chance_of_largest(amounts, background, differing(noise), noise, free)
        # what costs more than all that is left need not be as improbable
        holds = len(numbers) > FEW and _holds_most(excess, before, share)
        beyond = chance <= (RARE if holds else ALPHA)
        if beyond and (rare or _are_theirs(excess, noise, np.flatnonzero(named))):
            significant = len(facts)
    return _by_rank(facts[:significant], excess)


def _holds_most(excess: Excess, before: Floats, after: Floats) -> bool:
    """Whether a fact costs much, and more than all that is left without it.

    Args:
        excess: of the run.
        before: shares of an iteration, rank by iteration.
        after: the same without the fact.
    """
    unit = np.nan_to_num(excess.unit).max(axis=0)
    whole, left = (float(np.fmax(each.max(axis=0), 0.0) @ unit) for each in (before, after))
    return whole - left > max(left, MUCH * float(unit.sum()))


def extended(fact: Slow, excess: Excess, noise: float) -> Slow:
    """A fact with the iterations in which the ranks are as slow by less than an event.

    Then the median one exceeds all other ranks and a threshold, and each exceeds half of that.
    """
    if fact.pattern.has_one_reason:
        return fact
    rows, then = np.isin(excess.ranks, fact.ranks), np.isin(excess.numbers, fact.pattern.iterations)
    share = np.median(excess.share[rows], axis=0)
    others = excess.share[~rows].max(axis=0, initial=0.0)
    least = max(HALF * float(np.median(share[then])), differing(noise))
    each = excess.share[rows].min(axis=0) > HALF * least
    when = then | (each & (share > least) & (share > others))
    if (when == then).all():
        return fact
    return replace(fact, pattern=pattern_of(np.where(when, share, 0.0), 0.0, excess.numbers))


def rare_events(excess: Excess, facts: Sequence[Slow]) -> list[Slow]:
    """The single events of ranks that are usually not half as slow."""
    regular = {rank for each in facts if each.pattern.has_one_reason for rank in each.ranks}
    rare = list[Slow]()
    for each in facts:
        then = np.isin(excess.numbers, each.pattern.iterations)
        if regular.isdisjoint(each.ranks) and 2 * then.sum() < len(then):
            share = excess.share[np.isin(excess.ranks, each.ranks)]
            if np.median(share[:, ~then]) < HALF * np.median(share[:, then]):
                rare.append(each)
    return rare


def _by_rank(facts: list[Slow], excess: Excess) -> list[Slow]:
    """A fact for each owner, or for each rank, where these are fewer: slow by turns and at once.

    Facts that have one reason stay as they are.
    """
    owners, alone = dict[tuple[int, ...], set[int]](), dict[tuple[int, ...], set[int]]()
    for each in facts:
        for one, of in [(each.ranks, owners), *(((rank,), alone) for rank in each.ranks)]:
            of.setdefault(one, set()).update(each.pattern.iterations)
    sets = alone if len(owners) > 1 and len(alone) < len(facts) else owners
    if len(sets) == len(facts) or any(each.pattern.has_one_reason for each in facts):
        return facts

    return [single_events(excess, ranks, sorted(of)) for ranks, of in sets.items()]


def single_events(excess: Excess, ranks: Sequence[int], when: Sequence[int]) -> Slow:
    """The claim that ranks have single events then."""
    amount = np.where(excess.cells(ranks, when), excess.share, 0.0).sum(axis=0)
    kind = pattern_of(amount, 0.0, excess.numbers).kind
    return Slow(tuple(sorted(ranks)), Pattern(kind, tuple(when)), None)


def _are_theirs(excess: Excess, noise: float, rows: Index) -> bool:
    """Whether a few ranks (rows) have more events than chance alone would give them."""
    cells = (excess.share > event_of(noise)).astype(np.float64)
    places = np.unique(excess.hosts[rows])
    of_hosts = len(places) < np.isin(excess.hosts, places).sum() == len(rows)
    if len(rows) > min(FEW, len(cells) // 2) or of_hosts:
        return False  # ranks that are all of a host may be that host
    chance = chance_of_sets([cells], excess.roles, [(0, rows)])[0]
    levels = chance_of_levels(cells, excess.roles, excess.hosts, rows, rows)
    return bool(max(chance, levels) <= ALPHA)


def _costliest(share: Floats, least: float, excess: Excess) -> tuple[Index, Floats]:
    """The rank or the set of ranks (rows) whose events cost most, and their share by iteration.

    The cost is the time by which they exceed all others. An event is a share above `least`. The
    ranks of a set have events in the same iteration, and are at most half of all ranks.
    """
    events = share > least
    unit = np.nan_to_num(excess.unit).max(axis=0)
    best, amount, most = np.zeros(1, dtype=np.int64), np.zeros(len(unit)), 0.0
    sets = {tuple(np.flatnonzero(each).tolist()) for each in events.T}
    sets |= {(row,) for row in share.argmax(axis=0)[events.any(axis=0)].tolist()}
    for rows in map(np.array, sorted(sets)):
        if not 0 < len(rows) <= max(len(share) // 2, 1):
            continue
        columns = np.flatnonzero(events[rows].mean(axis=0) >= MOST)
        if (events[np.ix_(rows, columns)].mean(axis=1) < HALF).any():
            continue  # one is rarely slow with the others
        own = np.median(share[np.ix_(rows, columns)], axis=0)
        others = np.delete(share[:, columns], rows, 0).max(axis=0, initial=0.0)
        cost = np.maximum(own - others, 0.0) * unit[columns]
        if cost.sum() > most:
            best, most, amount = rows, float(cost.sum()), np.zeros(len(unit))
            amount[columns] = np.where(cost > 0, share[np.ix_(rows, columns)].mean(axis=0), 0.0)
    return best, amount
