"""Candidates: ranks whose level or events set them apart from their role. See METHOD.md#verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rankscope.compare.robust import Floats, spread, tail
from rankscope.compare.verdict.excess import Excess, Index
from rankscope.compare.verdict.levels import SHORTEST_SPELL, Flags, Levels
from rankscope.compare.verdict.roles_and_hosts import ranks_by_host, whole_hosts
from rankscope.compare.verdict.temporal import (
    Pattern,
    chance_of_period,
    event_pattern,
    level_pattern,
)

LEAST_LEVEL = 0.01
"""Share of the iteration by which a rank's level must exceed its role's median."""

SLOW_SHARE = 0.5
"""Share of a rank's highest level from which on it is slow."""

APART_SPREAD = 2.0
"""Robust deviations of the other ranks' levels between the slow ranks and the others."""

APART_ERRORS = 3.0
"""Standard errors of a level between the slow ranks and the others."""

KNEE = 0.8
"""A rank whose level is at least this share of the last slow rank's is slow, too."""

MOST_GROUPS = 6
"""Sets of slow ranks that are tried."""

UNLIKELY = 0.001
"""Probability, over all ranks, that this many events fall on one rank by chance."""

LONE_EVENT = 0.2
"""Sum of the shares of their iterations that the events of the only rank with events must have."""

LONELY = 7.0
"""Factor between lone events and all that other ranks exceed their levels by, which is enough."""

LONE_CHANCE = 0.05
"""Probability that noise lies as far out as lone events, below which a smaller factor is enough."""

TAIL_SHARE = 0.05
"""Share of the other ranks' excesses that shows how heavy their tail is."""

FEWEST_OF_TAIL, MOST_OF_TAIL = 5, 20
"""Fewest and most of these values."""

LEAST_TAIL = 0.1
"""Tail index that is assumed at least: a few values may lie close together by chance."""

ALIKE_EVENTS = 0.5
"""Events of at least this share of the rank's typical one count as alike."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """Ranks that may be stragglers, and when they are slow.

    `members` and `where` tell which ranks (of all) and which rank by iterations are meant.
    """

    members: Flags
    where: Flags
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    pattern: Pattern


def level_candidates(
    excess: Excess, levels: Levels, hosts: dict[int, str | None]
) -> list[Candidate]:
    """Sets of ranks whose level lies apart from that of all others of their roles, small to large.

    Each set holds the one before it.
    """
    share = _level_shares(excess, levels)
    top = share.max(axis=1)
    slow = (share > SLOW_SHARE * top[:, None]) & (top > LEAST_LEVEL)[:, None]
    cost = np.where(slow, np.nan_to_num(levels.usual), 0.0).sum(axis=1)
    order = np.argsort(-cost, kind="stable")
    order = order[cost[order] > 0]
    strength = np.array([share[rank, slow[rank]].mean() if slow[rank].any() else 0.0
                         for rank in range(len(share))])  # fmt: skip
    error = _level_errors(excess, levels, slow)
    found: list[Candidate] = []
    for size in _knees(cost[order]):
        members = np.zeros(len(share), dtype=np.bool_)
        members[order[:size]] = True
        if _minority(members, excess.roles) and _apart(
            members, slow, strength, error, share, excess
        ):
            found.append(candidate_of(members, slow & members[:, None], excess, hosts))
    return found[:MOST_GROUPS]


def _level_shares(excess: Excess, levels: Levels) -> Floats:
    """Each level as a share of the iteration, the mean over the iterations that have it."""
    share = np.nan_to_num(levels.usual / excess.unit)
    for code in np.unique(levels.code):
        here = levels.code == code
        mean = np.where(here, share, 0.0).sum(axis=1) / np.maximum(here.sum(axis=1), 1)
        share = np.where(here, mean[:, None], share)
    return share


def _level_errors(excess: Excess, levels: Levels, slow: Flags) -> Floats:
    """The standard error of each rank's level over its slow iterations; 0 where it has none.

    The larger one of two: of a median in the noise of all ranks, and of the rank's own values. The
    latter is the distance from the level to the value that lies one standard deviation of a
    binomial count below the median, and holds for any distribution.
    """
    rest = (excess.total - levels.usual) / excess.unit
    errors = np.zeros(len(slow))
    for rank in np.flatnonzero(slow.any(axis=1)):
        values = np.sort(rest[rank, slow[rank] & ~np.isnan(rest[rank])])
        count = max(len(values), 1)
        errors[rank] = 1.2533 * levels.noise / math.sqrt(count)
        below = math.floor((len(values) - math.sqrt(count)) / 2)
        if below >= 0:
            errors[rank] = max(errors[rank], -float(values[below]))
    return errors


def _knees(cost: Floats) -> list[int]:
    """Sizes of sets of ranks after which the next rank costs clearly less, ascending.

    Args:
        cost: of the ranks, the highest first.
    """
    after = np.append(cost[1:], 0.0)
    sizes = np.flatnonzero(after < KNEE * cost) + 1
    steepest = np.argsort(after[sizes - 1] / cost[sizes - 1], kind="stable")[: 4 * MOST_GROUPS]
    return sorted(sizes[steepest].tolist())


def _minority(members: Flags, roles: Index) -> bool:
    """Whether the members are at most half of each role that they belong to."""
    return all(
        2 * (members & (roles == role)).sum() <= (roles == role).sum()
        for role in np.unique(roles[members])
    )


def _apart(
    members: Flags,
    slow: Flags,
    strength: Floats,
    error: Floats,
    share: Floats,
    excess: Excess,
) -> bool:
    """Whether the members lie apart from the other ranks of their roles, in both halves."""
    for role in np.unique(excess.roles[members]):
        mine = np.flatnonzero(members & (excess.roles == role))
        others = np.flatnonzero(~members & (excess.roles == role))
        during = slow[mine].any(axis=0)
        levels_of_others = share[np.ix_(others, during)].mean(axis=1)
        highest = levels_of_others.max(initial=0.0)
        # the spread of few ranks is not known well
        wide = spread(levels_of_others) * (1 + 2 / max(len(others) - 1, 1))
        between = np.fmax(APART_SPREAD * wide, APART_ERRORS * error[mine])
        if (strength[mine] - highest <= between).any():
            return False
        if not _agree(excess.share, mine, others, slow):
            return False
    return True


def _agree(share: Floats, mine: Index, others: Index, slow: Flags) -> bool:
    """Whether the ranks `mine` exceed all others in either half of their slow iterations."""
    patterns, which = np.unique(slow[mine], axis=0, return_inverse=True)
    for pattern, mask in enumerate(patterns):
        alike = mine[which.ravel() == pattern]
        halves = np.array_split(np.flatnonzero(mask), 2)
        if len(halves[0]) < SHORTEST_SPELL // 2:
            return False
        for half in halves:
            medians = np.nanmedian(share[np.ix_(np.append(alike, others), half)], axis=1)
            if medians[: len(alike)].min() <= medians[len(alike) :].max(initial=0.0):
                return False
    return True


def event_candidates(
    excess: Excess, levels: Levels, hosts: dict[int, str | None]
) -> list[Candidate]:
    """Hosts and ranks that have more events than chance gives them, most costly first.

    A host comes before its ranks.
    """
    events = levels.events
    if not events.any():
        return []
    found = _hosts_with_events(excess, events, hosts)
    taken = np.logical_or.reduce([each.members for each in found], initial=False)
    rest = np.nan_to_num(excess.total - levels.usual)
    left = np.flatnonzero((events > 0).any(axis=1) & ~taken).tolist()
    every = np.sort(events[~np.broadcast_to(taken, len(events))], axis=None)
    often = {rank: _often(rank, excess, events[rank], rest[rank], every) for rank in left}
    found += [each for each in often.values() if each is not None]
    share = rest / excess.unit
    for each in found:
        share = np.where(each.where, 0.0, share)
    share = np.nan_to_num(share)
    highest = share.max(axis=1)
    for rank in (rank for rank, each in often.items() if each is None):
        large = (share[rank] >= ALIKE_EVENTS * highest[rank]) & (events[rank] > 0)
        lone, others = share[rank, large], np.delete(share, rank, 0)
        if lone.sum() < LONE_EVENT:
            continue
        is_far = lone.min() > LONELY * others.max(initial=0.0)
        if is_far or chance_of_largest(lone, others) < LONE_CHANCE:
            found.append(_single(rank, large, excess))
    found = _with_smaller_events(found, excess, events)
    cost = [float(rest[each.where].sum()) for each in found]
    return [found[place] for place in np.argsort([-each for each in cost], kind="stable")]


def _with_smaller_events(found: list[Candidate], excess: Excess, events: Floats) -> list[Candidate]:
    """The candidates, each single rank with its events that are larger than those of bystanders.

    The events that show that a rank is slow are its large ones. Once it is known to be, so are
    smaller ones of which no other rank has the like.
    """
    candidates = np.logical_or.reduce([each.members for each in found], initial=False)
    bystanders = events[~np.broadcast_to(candidates, len(events))]
    most = bystanders.max(initial=0.0)
    extended = []
    for each in found:
        if len(each.ranks) == 1 and each.pattern.period is None:
            rank = int(np.flatnonzero(each.members)[0])
            extended.append(_single(rank, each.where[rank] | (events[rank] > most), excess))
        else:
            extended.append(each)
    return extended


def _hosts_with_events(
    excess: Excess, events: Floats, hosts: dict[int, str | None]
) -> list[Candidate]:
    """Hosts that have more events than chance gives them, on most of their ranks."""
    groups = [each for each in ranks_by_host(excess.ranks.tolist(), hosts) if len(each) > 1]
    hits = (events > 0).sum(axis=1)
    found = []
    for group in groups if len(groups) > 1 else []:
        own = int(hits[group].sum())
        spread_out = (hits[group] > 0).sum() > len(group) / 2 and hits[group].max() <= KNEE * own
        chance = len(groups) * tail(own, int(hits.sum()), len(group) / len(events))
        if spread_out and chance < UNLIKELY:
            members = np.isin(np.arange(len(events)), group)
            found.append(candidate_of(members, (events > 0) & members[:, None], excess, hosts))
    return found


def _often(
    rank: int, excess: Excess, events: Floats, rest: Floats, every: Floats
) -> Candidate | None:
    """The rank, if it has more events than chance gives it, or periodic ones.

    Args:
        rank: its place.
        excess: of all ranks.
        events: of the rank.
        rest: what the rank exceeds its level by.
        every: the events of all ranks that are considered, sorted.
    """
    size, amounts = len(excess.ranks), events[events > 0]
    span = int(excess.numbers[-1] - excess.numbers[0]) + 1
    # small events next to large ones are noise
    for typical in (float(np.quantile(amounts, 0.75, method="lower")), float(amounts.max())):
        large = events >= ALIKE_EVENTS * typical
        alike = every.size - int(np.searchsorted(every, ALIKE_EVENTS * typical))
        often = int(large.sum())
        chance = size * tail(often, alike, 1 / size)
        period = event_pattern(np.flatnonzero(large).tolist(), excess.numbers.tolist()).period
        if period is not None:
            place = excess.numbers % period
            fitting = np.bincount(place[large])
            if chance * chance_of_period(int(fitting.max()), often, span) < UNLIKELY:
                large |= (place == fitting.argmax()) & (rest >= ALIKE_EVENTS * typical)
                return _single(rank, large, excess)
        if chance < UNLIKELY:
            return _single(rank, large, excess)
    return None


def _single(rank: int, large: Flags, excess: Excess) -> Candidate:
    """The candidate of one rank with events in some iterations."""
    members = np.arange(len(excess.ranks)) == rank
    pattern = event_pattern(np.flatnonzero(large).tolist(), excess.numbers.tolist())
    where = members[:, None] & large[None, :]
    return Candidate(members, where, (int(excess.ranks[rank]),), (), pattern)


def candidate_of(
    members: Flags, where: Flags, excess: Excess, hosts: dict[int, str | None]
) -> Candidate:
    """The candidate of some ranks that are slow in some iterations."""
    ranks = tuple(excess.ranks[members].tolist())
    slow = np.asarray(where.any(axis=0))
    numbers = excess.numbers.tolist()
    full = where[members].all(axis=0)
    dense = slow.sum() and full.sum() >= KNEE * slow.sum()
    pattern = (
        level_pattern(slow, numbers)
        if dense
        else event_pattern(np.flatnonzero(slow).tolist(), numbers)
    )
    return Candidate(members, where, ranks, whole_hosts(ranks, hosts), pattern)


def chance_of_largest(amounts: Floats, others: Floats) -> float:
    """Probability that some amounts exceed all others as far as they do by chance.

    The tail is that of a power law whose index is Hill's estimate from the largest others.
    There the largest value is more than `r` times the next one with probability `r ** (-1/index)`.
    See METHOD.md#verdict.
    """
    count = min(max(int(TAIL_SHARE * others.size), FEWEST_OF_TAIL), MOST_OF_TAIL)
    largest = np.sort(others, axis=None)[-count - 1 :]
    largest = largest[largest > 0]
    if not len(largest):
        return 0.0
    index = max(float(np.log(largest / largest[0]).sum()) / max(len(largest) - 1, 1), LEAST_TAIL)
    beyond = np.log(amounts / largest[-1])
    return float(np.exp(-beyond.sum() / index)) if (beyond > 0).all() else 1.0
