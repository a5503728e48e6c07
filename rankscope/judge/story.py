"""What holds for a whole run, whichever range is selected: its noise, and which ranks are slow.

See METHOD.md#verdict.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
from msgspec.structs import replace

from rankscope.judge.chance import chance_of_largest, chance_of_levels, chance_of_sets, mean_of
from rankscope.judge.claims import Pattern, Slow, Story, differing, event_of
from rankscope.judge.excess import Excess, lower_medians, usual_of
from rankscope.judge.levels import ALPHA, BY_NATURE, FEW, HALF, LEAST_GAIN, MOST, MUCH, NOISE, RARE
from rankscope.judge.noise import noise_of
from rankscope.judge.timing import pattern_of
from rankscope.model.intervals import Flags, Floats, Index
from rankscope.model.kinds import Phase, VerdictKind
from rankscope.util.numbers import ROBUST


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
    facts = _facts(excess, noise)
    rare = _rare(excess, facts)
    traits, lead, rest = _traits(excess, noise, spans, rare)
    if traits:
        facts = _facts(rest, noise)
    first = next(iter((*traits, *facts, lead)))
    loaders_bind = first is not None and is_loading(excess, first) and _loaders_bind(excess, first)
    if loaders_bind:
        traits, lead, rest = _traits(excess.beside(Phase.LOAD), noise, None)
        facts = _facts(rest, noise)
    fast = None
    if not traits:
        turned = replace(rest, total=-rest.total)
        fast = _costliest_set(turned, {None: noise}, None if spans is None else -spans)
    fast = fast if fast is not None and _is_sure(fast) else None
    slow = [*traits, *(_whole(fact, rest, noise) for fact in facts)]
    if spans is None and not loaders_bind:
        slow = _with_turns(slow or _slow_hosts(excess), excess, noise)
    slow = _of_hosts(_joined(slow, excess), excess, noise)
    second = None
    if lead is not None and spans is None and (lead.chance or 0.0) <= RARE:
        second = _slowest(_others(rest, lead), noise, None, rare)
    return Story(noise, tuple(slow), lead, len(excess.numbers), fast, loaders_bind, second)


def _rare(excess: Excess, facts: Sequence[Slow]) -> list[Slow]:
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


def _is_sure(trait: Slow) -> bool:
    return (trait.chance or 0.0) <= ALPHA


def _traits(
    excess: Excess, noise: float, spans: Floats | None, rare: Sequence[Slow] = ()
) -> tuple[list[Slow], Slow | None, Excess]:
    """The sets of ranks that are slow beyond chance, costliest first, and who leads the others.

    With them the excess that they do not explain.
    """
    traits, rest = list[Slow](), excess
    while len(traits) < FEW:
        trait = _slowest(excess, noise, spans, rare)
        if trait is None or not _is_sure(trait):
            return traits, trait, rest
        traits.append(trait)
        rest = rest.without(trait.cells(rest))
        # a rank is slow in one way: what else it does are facts
        excess = _others(excess, trait)
        if spans is not None:
            spans = np.where(np.isin(excess.ranks, trait.ranks)[:, None], 0.0, spans)
    return traits, None, rest


def _others(excess: Excess, claim: Slow) -> Excess:
    """The excess of the ranks that are not named, which are exchanged among each other."""
    named = np.isin(excess.ranks, claim.ranks)
    roles = np.where(named, excess.roles.max() + 1, excess.roles)
    return replace(excess.without(named), roles=roles)


def _joined(claims: Sequence[Slow], excess: Excess) -> list[Slow]:
    """Ranks that are slow alike at the same time, as one: healing some of them saves little."""
    joined: list[Slow] = []
    for claim in claims:
        for place, other in enumerate(joined):
            both = tuple(sorted({*other.ranks, *claim.ranks}))
            amounts = [np.median(excess.share[each.cells(excess)]) for each in (other, claim)]
            alike = min(amounts) >= HALF * max(amounts)
            one, two = ({*each.pattern.iterations} for each in (other, claim))
            if alike and len(one & two) >= MOST * len(one | two):
                joined[place] = replace(other, ranks=both)
                break
        else:
            joined.append(claim)
    return joined


def _of_hosts(claims: list[Slow], excess: Excess, noise: float) -> list[Slow]:
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
    if not (enough and waited[named].any()):
        return False
    to_next, load = (
        np.ma.array(each, mask=~waited)
        for each in (load[:, 1:] + (length - load)[:, :-1], load[:, 1:])
    )
    lag = to_next[named].mean() - to_next[others].mean()
    steady, varied = ((each[others].anom(axis=1) ** 2).sum() for each in (to_next, load))
    # of loads in the foreground it is twice as much, as it holds two of them
    return bool(steady < (1 + HALF) * varied and lag < MUCH * np.nanmedian(length))


def _slowest(
    excess: Excess, noise: float, spans: Floats | None, rare: Sequence[Slow] = ()
) -> Slow | None:
    """The set of ranks that costs most, and how likely it is by chance.

    Where chance may have done it, by a phase: the noise of the others does not hide it.
    """
    trait = _costliest_set(excess, {None: noise}, spans, rare)
    if spans is not None or (trait is not None and _is_sure(trait)):
        return trait
    noises: dict[str | None, float] = {p: noise_of(excess.within(p)) for p in excess.phases}
    in_phase = _costliest_set(excess, noises, None, rare)
    return in_phase if in_phase is not None and _is_sure(in_phase) else trait


def _with_turns(claims: list[Slow], excess: Excess, noise: float) -> list[Slow]:
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


def _by_turns(excess: Excess, noise: float) -> Slow | None:
    """The ranks that have events more often than chance explains; None if no two have.

    Either the ranks of one host, most of which have events, or a set of ranks. Of a set, even the
    rank with fewest events must have more than chance explains, compared with the ranks that are
    not of the set. Events in successive iterations may have one reason, and count as one.
    """
    roles, hosts, slow = excess.roles, excess.hosts, excess.share > event_of(noise)
    begins = slow & ~np.roll(slow, 1, axis=1)
    begins[:, 0] = slow[:, 0]
    slow_cells, events = slow.astype(np.float64), begins.astype(np.float64)
    own = [hosts == host for host in np.unique(hosts)]
    if 1 < len(own) < len(hosts):
        of_hosts = np.stack([events[rows].max(axis=0) for rows in own])
        # hosts are exchanged that have as many ranks of each role: with more, one has more events
        ranks = [np.bincount(roles[rows], minlength=len(roles)) for rows in own]
        kinds = np.unique(ranks, axis=0, return_inverse=True)[1].ravel()
        begun = of_hosts.sum(axis=1)
        most = (begun - mean_of(begun, kinds)).argmax()
        chance = chance_of_sets([of_hosts], kinds, [(0, np.array([most]))])[0]
        if chance <= ALPHA / 2:  # as one of two tests: of hosts, and of ranks
            rows = own[most]
            when = excess.numbers[slow[rows].any(axis=0)]
            claim = _single(excess, excess.ranks[rows].tolist(), when.tolist())
            if _is_shared(excess, claim):
                return claim
    sets = [rows for rows in _candidates(events.sum(axis=1), roles) if len(rows) > 1]
    if not sets:
        return None
    chances = chance_of_sets([events], roles, [(0, rows) for rows in sets])
    for some, chance in zip(sets[::-1], chances[::-1], strict=True):
        if max(chance, chance_of_levels(slow_cells, roles, hosts, some, some)) > ALPHA / 2:
            continue

        def exceed(size: int, some: Index = some) -> bool:
            """Whether even the rank with fewest events has more than chance explains."""
            beside = np.setdiff1d(np.arange(len(roles)), some[: size - 1])
            fewest = [(0, np.flatnonzero(beside == some[size - 1]))]
            return bool(chance_of_sets([events[beside]], roles[beside], fewest)[0] <= ALPHA)

        sizes = range(len(some), 1, -1)
        # the fewer they are, the more events each has
        at = 0 if exceed(len(some)) else bisect_left(sizes, True, 1, key=exceed)
        if at < len(sizes):
            rows = some[: sizes[at]]
            when = excess.numbers[slow[rows].any(axis=0)]
            return _single(excess, excess.ranks[rows].tolist(), when.tolist())
    return None


def _above_others(excess: Excess, cells: Flags) -> float:
    """The time by which ranks in some iterations (cells) exceed all others, ns."""
    share = np.fmax(excess.share, 0.0)
    over = share.max(axis=0) - np.where(cells, 0.0, share).max(axis=0)
    return float((over * np.nan_to_num(excess.unit).max(axis=0)).sum())


def _candidates(sums: Floats, roles: Index) -> list[Index]:
    """Sets of ranks (rows) after which the next one has clearly less, at most half of them."""
    order = np.argsort(-sums, kind="stable")
    half = max(int(sum(np.bincount(roles) // 2)), 1)  # a majority is the norm
    before, after = sums[order][:half], np.append(sums[order][1:], 0.0)[:half]
    sizes = np.flatnonzero((before > 0) & (after < MOST * before))
    sizes = np.sort(sizes[np.argsort((after - before)[sizes], kind="stable")[:FEW]]) + 1
    return [order[:k] for k in sizes]


def _slow_hosts(excess: Excess) -> list[Slow]:
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

    traits, _, rest = _traits(hosts, noise, None)
    slow = [
        replace(each, ranks=tuple(excess.ranks[np.isin(excess.hosts, each.ranks)].tolist()))
        for each in filter(sure, (*traits, *_facts(rest, noise)))
    ]
    return [each for each in slow if _is_shared(excess, each)]


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


def _costliest_set(
    excess: Excess,
    noises: Mapping[str | None, float],
    spans: Floats | None,
    rare: Sequence[Slow] = (),
) -> Slow | None:
    """The set of ranks that costs most by a phase or all work (None), and its chance.

    Rare events make no rank slow, and hide no rank that is.
    """
    every = excess
    for each in rare:
        excess = excess.without(each.cells(excess))
    parts = dict[str | None, Floats]()
    tried: list[tuple[str | None, Index, Index, Pattern, float]] = []
    untested = dict[float, Slow]()
    for phase, noise in noises.items():
        # a trait leaves out single events
        share = excess.within(phase).share
        limit = np.fmax(np.abs(np.median(share, axis=1, keepdims=True)), differing(noise))
        cells = np.clip(share, -limit, limit)
        candidates = _candidates(cells.sum(axis=1), excess.roles)
        sets = [(rows, *_alike(excess, phase, noise, rows)) for rows in candidates]
        sets = [each for each in sets if each[-1] > 0]
        if spans is not None:  # what lies beside the spans is not tested
            known = spans.sum(axis=1) >= HALF * np.nansum(excess.total, axis=1)
            untested |= {
                gain: Slow(tuple(sorted(excess.ranks[rows].tolist())), when, 1.0)
                for apart, rows, when, gain in sets
                if not known[apart].all()
            }
            sets = [each for each in sets if known[each[0]].all()]
        tried += [(phase, *each) for each in sets]
        if sets:
            parts[phase] = cells
    if not tried:
        return untested[max(untested)] if untested else None
    judged = [*parts]
    chances = chance_of_sets(
        [*parts.values()] if spans is None else [spans],
        excess.roles,
        [(judged.index(p), rows if when.always else apart) for p, apart, rows, when, _ in tried],
    )
    role_sizes = np.bincount(excess.roles)
    found = list[tuple[bool, float, float, Slow]]()
    for (phase, apart, rows, pattern, gain), p in zip(tried, chances.tolist(), strict=True):
        of_roles = np.bincount(excess.roles[rows], minlength=len(role_sizes))
        # the other half of a role may as well be fast
        chance = min(2 * p, 1.0) if (2 * of_roles == role_sizes).any() else p
        if chance <= RARE:
            # single events hardly count
            then = np.isin(excess.numbers, pattern.iterations)
            share = excess.within(phase).share
            most = max(differing(noises[phase]), np.median(share[np.ix_(rows, then)]))
            cells = np.clip(every.within(phase).share, -most, most)
            cells[rows] = np.clip(share[rows], -most, most)
            if spans is not None:  # of as many blocks as spans in each
                blocks = np.array_split(spans, round(sqrt(spans.shape[1])), axis=1)
                cells = np.stack([each.mean(axis=1) for each in blocks], axis=1)
                then = np.ones(len(blocks), dtype=np.bool_)
            layout, nature = (excess.roles, excess.hosts), BY_NATURE if spans is None else 0.0
            levels = chance_of_levels(cells, *layout, rows, apart, then, nature=nature)
            if not (pattern.period or then.all()):  # or by how the others change, if that is rarer
                change = chance_of_levels(_change(cells, then), *layout, rows, apart, changes=True)
                levels = min(levels, change / RARE)
            chance = max(chance, 1 - (1 - levels) ** len(tried))  # of several tests
        slow = Slow(tuple(sorted(excess.ranks[rows].tolist())), pattern, chance)
        found.append((_is_sure(slow), gain * (1 - chance), gain, slow))
    return max(found, key=lambda each: each[:3])[-1]


def _change(share: Floats, then: Flags) -> Floats:
    """How far ranks change then: rank by as many differences as the shorter part has iterations.

    So their mean scatters as the difference of the means of both parts does.
    """
    parts = share[:, then], share[:, ~then]
    count = min(part.shape[1] for part in parts)
    inside, outside = (
        np.stack([each.mean(axis=1) for each in np.array_split(part, count, axis=1)], axis=1)
        for part in parts
    )
    return np.asarray(inside - outside)


def _alike(
    excess: Excess, phase: str | None, noise: float, rows: Index
) -> tuple[Index, Pattern, float]:
    """Those of the ranks (rows) that are at least half as slow as the slowest one, and when.

    Of a host of which most of the ranks are, also those that are slower than by nature.
    With them the time in ns that healing them (in the phase) saves; 0 if they are slow by less than
    ranks differ by nature, if it is too little, or if they need less in other phases.
    """
    part = excess.within(phase)
    share, numbers = part.share, excess.numbers
    kept = np.zeros(1, dtype=np.bool_)
    while not kept.all():
        pattern = pattern_of(share[rows].mean(axis=0), NOISE * noise, numbers)
        main = int(np.nansum(excess.by_phase[rows], axis=(0, 1)).argmax())
        known = np.isfinite(excess.spent[rows, :, main]).max(axis=0)
        # nobody has seen them quick
        unseen = pattern.since is not None and not known[numbers < pattern.since].any()
        regular = pattern.has_one_reason and len(pattern.iterations) >= FEW
        if unseen or not (pattern.always or regular):
            pattern = Pattern(VerdictKind.PERSISTENT, tuple(numbers.tolist()), always=True)
        in_pattern = np.isin(numbers, pattern.iterations)
        medians = lower_medians(share[np.ix_(rows, in_pattern)].T)[0]
        if medians.max() < BY_NATURE:
            return rows, pattern, 0.0
        kept = medians >= HALF * medians.max()
        of_host = excess.hosts[rows][:, None] == excess.hosts
        alike = (of_host[:, rows] & kept).sum(axis=1)
        # most of several, which have one reason
        of_slow = (alike > 1) & (alike > HALF * of_host.sum(axis=1))
        kept &= of_slow | (medians >= BY_NATURE)
        beside = np.isin(excess.roles, excess.roles[rows])
        beside[rows] = False
        if beside.any():  # half of the ranks may be slow
            medians -= min(float(np.median(share[np.ix_(beside, in_pattern)])), 0.0)
        kept |= of_slow & (medians >= BY_NATURE)
        rows = rows[kept]
    before, own = (np.nan_to_num(each.total[:, in_pattern]) for each in (excess, part))
    if before[rows].sum() < HALF * own[rows].sum():
        return rows, pattern, 0.0
    after = before.copy()
    after[rows] -= np.clip(own[rows], 0.0, np.maximum(before[rows], 0.0))
    gain = float((before.max(axis=0) - np.maximum(after.max(axis=0), 0.0)).sum())
    least = LEAST_GAIN * float(np.nansum(excess.lengths[in_pattern]))
    return rows, pattern, gain if gain >= least else 0.0


def _facts(excess: Excess, noise: float) -> list[Slow]:
    """The few ranks or sets of ranks whose events lie apart from all that others do."""
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
            levels = chance_of_levels(_change(excess.share, during), *layout, changes=True) / RARE
            if min(levels, chance_of_levels(then, *layout, nature=BY_NATURE)) > ALPHA:
                continue
        others = np.delete(then, members, axis=0)  # all may differ as much in these iterations
        apart = ROBUST * np.median(np.abs(others - np.median(others, axis=0)), axis=0)
        if (then[members].mean(axis=0) <= NOISE * apart).all():
            continue
        facts.append(fact)
        events = amount[np.isin(numbers, pattern.iterations) & (amount > 0)]
        if pattern.has_one_reason:  # it has one size
            events = np.full(len(events), np.median(events))
        else:
            single += len(events)
        amounts = np.append(amounts, events)
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
        if chance <= ALPHA and (rare or _are_theirs(excess, noise, np.flatnonzero(named))):
            significant = len(facts)
    return _by_rank(facts[:significant], excess)


def _whole(fact: Slow, excess: Excess, noise: float) -> Slow:
    """A fact with the iterations in which the ranks are as slow by less than an event."""
    if fact.pattern.has_one_reason:
        return fact
    rows, then = np.isin(excess.ranks, fact.ranks), np.isin(excess.numbers, fact.pattern.iterations)
    share, others = excess.share[rows].min(axis=0), excess.share[~rows].max(axis=0, initial=0.0)
    least = max(HALF * float(np.median(share[then])), differing(noise))
    when = then | ((share > least) & (share > others))
    if (when == then).all():
        return fact
    return replace(fact, pattern=pattern_of(np.where(when, share, 0.0), 0.0, excess.numbers))


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

    return [_single(excess, ranks, sorted(of)) for ranks, of in sets.items()]


def _single(excess: Excess, ranks: Sequence[int], when: Sequence[int]) -> Slow:
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
