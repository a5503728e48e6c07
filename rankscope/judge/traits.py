"""Which ranks are slow in general: the sets of ranks that are slow beyond chance.

See METHOD.md#verdict.
"""

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
from msgspec.structs import replace

from rankscope.judge.chance import chance_of_last, chance_of_levels, chance_of_sets
from rankscope.judge.claims import Pattern, Slow, differing
from rankscope.judge.excess import Excess, lower_medians
from rankscope.judge.levels import (
    ALPHA,
    BY_NATURE,
    FEW,
    HALF,
    LEAST_GAIN,
    LIKELY,
    MOST,
    NOISE,
    RARE,
)
from rankscope.judge.noise import noise_of
from rankscope.judge.timing import pattern_of
from rankscope.model.intervals import Flags, Floats, Index
from rankscope.model.kinds import VerdictKind


def traits_of(
    excess: Excess, noise: float, spans: Floats | None, rare: Sequence[Slow] = ()
) -> tuple[list[Slow], Slow | None, Excess]:
    """The sets of ranks that are slow beyond chance, costliest first, and who leads the others.

    With them the excess that they do not explain.

    Args:
        excess: of all iterations.
        noise: of a rank around its own level, as a share of the iteration.
        spans: of few iterations, what is exchanged in their place: rank by span, ns.
        rare: single events, which make no rank slow.
    """
    traits, rest = list[Slow](), excess
    while len(traits) < FEW:
        trait = slowest(excess, noise, spans, rare)
        if trait is None or not is_sure(trait):
            return traits, trait, rest
        traits.append(trait)
        rest = rest.without(trait.cells(rest))
        # a rank is slow in one way: what else it does are facts
        excess = without_claim(excess, trait)
        if spans is not None:
            spans = np.where(np.isin(excess.ranks, trait.ranks)[:, None], 0.0, spans)
    return traits, None, rest


def without_claim(excess: Excess, claim: Slow) -> Excess:
    """The excess of the ranks that are not named, which are exchanged among each other."""
    named = np.isin(excess.ranks, claim.ranks)
    roles = np.where(named, excess.roles.max() + 1, excess.roles)
    return replace(excess.without(named), roles=roles)


def is_sure(trait: Slow) -> bool:
    """Whether ranks are slow beyond chance, or a fact is said of them."""
    return (trait.chance or 0.0) <= ALPHA


def slowest(
    excess: Excess, noise: float, spans: Floats | None, rare: Sequence[Slow] = ()
) -> Slow | None:
    """The set of ranks that costs most, and how likely it is by chance.

    Where chance may have done it, by a phase: the noise of the others does not hide it.
    """
    trait = costliest_set(excess, {None: noise}, spans, rare)
    if spans is not None or (trait is not None and is_sure(trait)):
        return trait
    noises: dict[str | None, float] = {p: noise_of(excess.within(p)) for p in excess.phases}
    in_phase = costliest_set(excess, noises, None, rare)
    return in_phase if in_phase is not None and is_sure(in_phase) else trait


def leading_sets(sums: Floats, roles: Index) -> list[Index]:
    """Sets of ranks (rows) after which the next one has clearly less, at most half of them.

    Args:
        sums: of each rank.
        roles: of each rank; at most half of each counts.
    """
    order = np.argsort(-sums, kind="stable")
    half = max(int(sum(np.bincount(roles) // 2)), 1)  # a majority is the norm
    before, after = sums[order][:half], np.append(sums[order][1:], 0.0)[:half]
    sizes = np.flatnonzero((before > 0) & (after < MOST * before))
    sizes = np.sort(sizes[np.argsort((after - before)[sizes], kind="stable")[:FEW]]) + 1
    return [order[:k] for k in sizes]


def costliest_set(
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
        candidates = leading_sets(cells.sum(axis=1), excess.roles)
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
        if chance <= ALPHA:
            tested = parts[phase] if spans is None else spans
            chance = max(chance, _chance_of_any(tested, excess, rows, always=pattern.always))
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
            if not (pattern.period or then.all()):  # or by its change, if that is rarer
                change = chance_of_levels(
                    change_of(cells, then), *layout, rows, apart, changes=True
                )
                levels = min(levels, change / RARE)
            chance = max(chance, 1 - (1 - levels) ** len(tried))  # of several tests
        slow = Slow(tuple(sorted(excess.ranks[rows].tolist())), pattern, chance)
        found.append((is_sure(slow), gain * (1 - chance), gain, slow))
    return max(found, key=lambda each: each[:3])[-1]


def _chance_of_any(cells: Floats, excess: Excess, rows: Index, *, always: bool) -> float:
    """How likely a rank of a slow set is slow by chance; 0 where that is no question.

    As of one rank, and of all ranks of some hosts, which are a unit.

    Args:
        cells: rank by iteration.
        excess: of the run.
        rows: the ranks, the slowest first.
        always: whether they are slow in all iterations; of fewer, less is seen.
    """
    places = np.unique(excess.hosts[rows])
    of_hosts = len(places) < len(rows) == np.isin(excess.hosts, places).sum()
    if len(rows) == 1 or of_hosts:
        return 0.0
    last = chance_of_last(cells, excess.roles, rows)
    return last if last > (LIKELY if always else RARE) else 0.0


def change_of(share: Floats, then: Flags) -> Floats:
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
