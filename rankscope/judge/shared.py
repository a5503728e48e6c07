"""Claims about ranks that share a host, or something else: they are one claim.

See METHOD.md#verdict.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from rankscope.judge.chance import chance_of_last, chance_of_levels, chance_of_sets, mean_of
from rankscope.judge.claims import Slow, differing, event_of
from rankscope.judge.excess import Excess
from rankscope.judge.facts import facts_of, single_events
from rankscope.judge.levels import ALPHA, FEW, HALF, MOST, NOISE
from rankscope.judge.noise import noise_of
from rankscope.judge.timing import pattern_of
from rankscope.judge.traits import leading_sets, traits_of
from rankscope.model.intervals import Flags, Floats, Index


def slow_hosts(excess: Excess) -> list[Slow]:
    """The claims about hosts whose ranks are slow by turns, or on average."""
    hosts = excess.of_hosts
    if hosts is None:
        return []
    noise = noise_of(hosts)
    limit = differing(noise)
    cells = [np.clip(hosts.share, -limit, limit)]  # single events hardly count

    def sure(claim: Slow) -> bool:
        """As one of two tests: of ranks, and of hosts."""
        rows = np.flatnonzero(np.isin(hosts.ranks, claim.ranks))
        return bool(chance_of_sets(cells, hosts.roles, [(0, rows)])[0] <= ALPHA / 2)

    traits, _, rest = traits_of(hosts, noise, None)
    slow = [
        replace(each, ranks=tuple(excess.ranks[np.isin(excess.hosts, each.ranks)].tolist()))
        for each in filter(sure, (*traits, *facts_of(rest, noise)))
    ]
    return [each for each in slow if _is_shared(excess, each)]


def with_turns(claims: list[Slow], excess: Excess, noise: float) -> list[Slow]:
    """The claims; where ranks are slow by turns, those about some of them as one.

    As they are if they are few, name no rank twice, and hold most of what these ranks cost.
    """
    turns = _by_turns(excess, noise)
    if turns is None:
        return claims
    pieces = [each for each in claims if {*each.ranks} <= {*turns.ranks}]
    ranks = [rank for each in pieces for rank in each.ranks]
    cells = [each.cells(excess) for each in claims]
    named = np.any([np.zeros_like(turns.cells(excess)), *cells], axis=0)
    all_of_it = _above_others(excess, named | turns.cells(excess))
    few = len(pieces) < FEW and len(ranks) == len({*ranks})
    if few and _above_others(excess, named) >= MOST * all_of_it:
        return claims
    return [turns, *(each for each in claims if each not in pieces)]


def joined(claims: Sequence[Slow], excess: Excess) -> list[Slow]:
    """Ranks that are slow alike at the same time, as one: healing some of them saves little."""
    merged: list[Slow] = []
    for claim in claims:
        for place, other in enumerate(merged):
            both = tuple(sorted({*other.ranks, *claim.ranks}))
            amounts = [np.median(excess.share[each.cells(excess)]) for each in (other, claim)]
            alike = min(amounts) >= HALF * max(amounts)
            one, two = ({*each.pattern.iterations} for each in (other, claim))
            if alike and len(one & two) >= MOST * len(one | two):
                merged[place] = replace(other, ranks=both)
                break
        else:
            merged.append(claim)
    return merged


def joined_by_host(claims: list[Slow], excess: Excess, noise: float) -> list[Slow]:
    """Claims about all ranks of a host as one, if each rank takes part, in the same phase.

    The one must hold most of what the claims cost, and none of these may hold most of it: else some
    ranks are slow, and not the host.
    """
    for host in np.unique(excess.hosts):
        rows = np.flatnonzero(excess.hosts == host)
        ranks = tuple(excess.ranks[rows].tolist())
        parts = [each for each in claims if {*each.ranks} <= {*ranks}]
        named = {rank for each in parts for rank in each.ranks}
        if len(parts) < 2 or named != {*ranks} or len(ranks) in (1, len(excess.ranks)):
            continue
        when = np.array([np.isin(excess.numbers, each.pattern.iterations) for each in parts])
        if (when.sum(axis=0) > 1).sum() < HALF * when.sum(axis=1).min():
            continue  # one after the other
        cells = [each.cells(excess) for each in parts]
        either = np.any(cells, axis=0)
        amounts = np.where(either[rows], excess.share[rows], 0.0)
        pattern = pattern_of(amounts.mean(axis=0), NOISE * noise, excess.numbers)
        chances = [each.chance for each in parts if each.chance is not None]
        whole = Slow(ranks, pattern, max(chances, default=None))
        cost = _above_others(excess, whole.cells(excess))
        one = max(_above_others(excess, each & whole.cells(excess)) for each in cells)
        holds = one < MOST * cost and cost >= MOST * _above_others(excess, either)
        sums = amounts.sum(axis=1)
        by_phase = np.where(either[rows][:, :, None], excess.by_phase[rows], 0.0)
        alike = np.ptp(np.nansum(by_phase, axis=1).argmax(axis=1)) == 0
        if holds and alike and sums.min() >= (1 - MOST) * sums.mean():
            claims = [whole, *(each for each in claims if each not in parts)]
    return claims


def _by_turns(excess: Excess, noise: float) -> Slow | None:
    """The ranks that have events more often than chance explains; None if no two have.

    Either the ranks of one host, or a set of ranks: two tests, each at half of the level.
    """
    slow = excess.share > event_of(noise)
    # events in successive iterations may have one reason, and count as one
    begins = slow & ~np.roll(slow, 1, axis=1)
    begins[:, 0] = slow[:, 0]
    events = begins.astype(np.float64)
    rows = _host_by_turns(excess, events)
    if rows is not None:
        claim = _by_rows(excess, rows, slow)
        if _is_shared(excess, claim):
            return claim
    rows = _set_by_turns(excess, events, slow)
    return None if rows is None else _by_rows(excess, rows, slow)


def _by_rows(excess: Excess, rows: Index, slow: Flags) -> Slow:
    """The claim that ranks (rows) have single events where one of them is slow."""
    when = excess.numbers[slow[rows].any(axis=0)]
    return single_events(excess, excess.ranks[rows].tolist(), when.tolist())


def _host_by_turns(excess: Excess, events: Floats) -> Index | None:
    """The ranks (rows) of the host that has events in more iterations than chance explains."""
    own = [np.flatnonzero(excess.hosts == host) for host in np.unique(excess.hosts)]
    if not 1 < len(own) < len(excess.hosts):
        return None
    of_hosts = np.stack([events[rows].max(axis=0) for rows in own])
    # hosts are exchanged that have as many ranks of each role: with more, one has more events
    roles = excess.roles
    ranks = [np.bincount(roles[rows], minlength=len(roles)) for rows in own]
    kinds = np.unique(ranks, axis=0, return_inverse=True)[1].ravel()
    begun = of_hosts.sum(axis=1)
    most = (begun - mean_of(begun, kinds)).argmax()
    chance = chance_of_sets([of_hosts], kinds, [(0, np.array([most]))])[0]
    return own[most] if chance <= ALPHA / 2 else None


def _set_by_turns(excess: Excess, events: Floats, slow: Flags) -> Index | None:
    """The ranks (rows) that have events more often than chance explains.

    Even the one with fewest events must have more than chance explains, compared with the ranks
    that are not of the set.
    """
    roles, slow_cells = excess.roles, slow.astype(np.float64)
    sets = [rows for rows in leading_sets(events.sum(axis=1), roles) if len(rows) > 1]
    if not sets:
        return None
    chances = chance_of_sets([events], roles, [(0, rows) for rows in sets])
    for some, chance in zip(sets[::-1], chances[::-1], strict=True):
        levels = chance_of_levels(slow_cells, roles, excess.hosts, some, some)
        if max(chance, levels) > ALPHA / 2:
            continue

        def exceed(size: int, some: Index = some) -> bool:
            """Whether even the rank with fewest events has more than chance explains."""
            return chance_of_last(events, roles, some[:size]) <= ALPHA

        sizes = range(len(some), 1, -1)
        # the fewer they are, the more events each has
        at = 0 if exceed(len(some)) else bisect_left(sizes, True, 1, key=exceed)
        if at < len(sizes):
            return some[: sizes[at]]
    return None


def _above_others(excess: Excess, cells: Flags) -> float:
    """The time by which ranks in some iterations (cells) exceed all others, ns."""
    share = np.fmax(excess.share, 0.0)
    over = share.max(axis=0) - np.where(cells, 0.0, share).max(axis=0)
    return float((over * np.nan_to_num(excess.unit).max(axis=0)).sum())


def _is_shared(excess: Excess, claim: Slow) -> bool:
    """Whether most of the ranks take part, or most of as many as there are iterations.

    A rank takes part if it has at least half of the mean rank's excess. The largest ones count as
    much as the usual one.
    """
    rows = np.isin(excess.ranks, claim.ranks)
    share = excess.share[np.ix_(rows, np.isin(excess.numbers, claim.pattern.iterations))]
    sums = np.clip(share, 0.0, np.median(share.max(axis=0))).sum(axis=1)
    part = int(np.count_nonzero(sums >= HALF * sums.mean()))
    ranks, events = share.shape
    return bool(part >= min(ranks, FEW) and 2 * part > min(ranks, events))
