"""What is true of a whole run, whatever range is asked about: its noise, and who is slow in it.

See METHOD.md#verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.judge.chance import chance_of_few, chance_of_largest, chance_of_sets, lasting
from rankscope.judge.excess import Excess, Flags, Index, event_of, noise_of
from rankscope.judge.levels import ALPHA, BY_NATURE, FEW, HALF, LEAST_GAIN, MOST, NOISE, RARE
from rankscope.judge.timing import Pattern, pattern_of
from rankscope.model.kinds import Phase, VerdictKind
from rankscope.util.robust import Floats, lower_medians


@dataclass(frozen=True, slots=True)
class Slow:
    """Ranks that are slow, and when.

    `chance`: the probability that a run without slow ranks looks like this. None of facts: that
    something happened needs no test, but it says nothing of other iterations.
    `in_turn`: they are slow where they have events, in each iteration some of them.
    """

    ranks: tuple[int, ...]
    pattern: Pattern
    chance: float | None
    in_turn: bool = False

    def cells(self, excess: Excess, event: float) -> Flags:
        """Where they are slow, as a matrix of rank by iteration.

        Args:
            excess: of all ranks, in some iterations.
            event: `Story.event`.
        """
        cells = excess.cells(self.ranks, self.pattern.iterations)
        return np.asarray(cells & (excess.share > event)) if self.in_turn else cells


@dataclass(frozen=True, slots=True)
class Story:
    """What holds for every range of a run.

    `noise`: a robust deviation of a rank around its own median, as a share of the iteration.
    `slow`: the ranks that are slow beyond chance, then those with facts.
    `lead`: of the other ranks those that are slowest, and the probability that chance makes some
    ranks that slow: it is no small one. None where no excess is positive. `count`: iterations.
    `fast`: ranks that are fast beyond chance, if no rank is slow beyond it: the others may then be
    the slow ones.
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
    noise = noise_of(excess.share, excess.roles)
    found, lead = _traits(excess, noise, spans)
    loaders_bind = bool(found) and _waits_for_queue(excess, found[0])  # that costs most
    if loaders_bind:
        excess = excess.without(Phase.LOAD)
        found, lead = _traits(excess, noise, None)
    found += facts_of(excess, noise, found)
    found = _told_once(found)
    found = _in_turn(excess, noise, found) or found
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
    considered = excess.without(Phase.LOAD) if story.loaders_bind else excess
    return _told_once(known + facts_of(considered, story.noise, known))


def _in_turn(excess: Excess, noise: float, found: list[Slow]) -> list[Slow]:
    """What is found, with one description of the few ranks to which nearly all events belong.

    It replaces several of single ones of them, or those that leave out much. None where there is
    no such description.

    They have at least half as many as the rank with most. That they are so often the slowest must
    be no chance. Successive iterations with the same slowest rank count as one.
    """
    ranks = len(excess.ranks)
    events = excess.share > event_of(noise)
    counts = events.sum(axis=1)
    members = np.flatnonzero(counts >= np.maximum(HALF * counts.max(), 1))
    if not 2 <= len(members) < ranks / 2:
        return []
    theirs = [each for each in found if {*each.ranks} <= {*excess.ranks[members].tolist()}]
    cost = np.where(events, excess.share, 0.0)[members]
    described = np.zeros_like(events)
    for each in theirs:
        described |= excess.cells(each.ranks, each.pattern.iterations)
    if len(theirs) < FEW and cost[described[members]].sum() >= MOST * cost.sum():
        return []
    slowest = np.where(events.any(axis=0), excess.share.argmax(axis=0), ranks)
    starts = slowest[np.diff(slowest, prepend=ranks) != 0]
    own = int(np.isin(starts, members).sum())
    others = int((starts < ranks).sum()) - own
    chance = chance_of_few(own, len(members), ranks, others=others)
    if chance > RARE:
        return []
    hits = tuple(excess.numbers[np.isin(slowest, members)].tolist())
    pattern = Pattern(VerdictKind.TRANSIENT, hits)
    together = Slow(tuple(excess.ranks[members].tolist()), pattern, chance, in_turn=True)
    return [together, *(each for each in found if each not in theirs)]


def _told_once(found: list[Slow]) -> list[Slow]:
    """The same, with one description of the single events of the same ranks."""
    merged: dict[object, Slow] = {}
    for place, each in enumerate(found):
        lone = each.chance is None and each.pattern.kind is VerdictKind.TRANSIENT
        key = each.ranks if lone else place
        before = merged[key].pattern.iterations if key in merged else ()
        hits = tuple(sorted((*before, *each.pattern.iterations)))
        merged[key] = (
            replace(each, pattern=replace(each.pattern, iterations=hits)) if before else each
        )
    return [*merged.values()]


def _traits(excess: Excess, noise: float, spans: Floats | None) -> tuple[list[Slow], Slow | None]:
    """The ranks that are slow beyond chance, one set after the other, and who leads then."""
    found: list[Slow] = []
    shares, left = excess.share, np.nan_to_num(excess.total)
    while len(found) < FEW:
        trait = _slowest(excess, shares, left, noise, spans)
        if trait is None or trait.chance is None or trait.chance > ALPHA:
            return found, trait
        found.append(trait)
        shares[np.isin(excess.ranks, trait.ranks)] = 0.0
        slow = excess.cells(trait.ranks, trait.pattern.iterations)
        left = left - excess.amounts(noise, slow)
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
    members = np.isin(excess.ranks, trait.ranks)
    here = np.isin(excess.numbers, trait.pattern.iterations)
    spent = np.nan_to_num(excess.spent[:, :, place])
    own = float(np.median(np.nan_to_num(excess.by_phase[members][:, here, place])))
    whole = float(np.median(np.nan_to_num(excess.total[members][:, here])))
    if here.all() or not own > 0 or own < HALF * whole:
        return False
    others = lower_medians(spent[~members], 0)[0]
    return bool(np.median(others[~here]) - np.median(others[here]) >= HALF * own)


def _fast(excess: Excess, noise: float, spans: Floats | None) -> Slow | None:
    """The ranks of `Story.fast`, found as slow ranks are, but from the negative excess."""
    turned = replace(excess, total=-excess.total, by_phase=-excess.by_phase)
    left = np.nan_to_num(turned.total)
    found = _slowest(turned, turned.share, left, noise, None if spans is None else -spans)
    return None if found is None or (found.chance or 0.0) > ALPHA else found


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
    most = max(int(sum(np.bincount(excess.roles) // 2)), 1)  # who is slow if most are?
    sizes = _knees(sums[order], most)
    if not sizes:
        return None
    if spans is None:
        chances = _chances(cells, excess.roles, order, sizes)
    else:
        chances = _chance_of_spans(spans, excess.roles, order, sizes)
    tried = []
    for size, chance in zip(sizes, chances.tolist(), strict=True):
        found = _set_of(excess, share, noise, left, order[:size], chance)
        tried += [] if found is None else [found]
    sure = [each for each in tried if (each[0].chance or 0.0) <= ALPHA]
    return max(sure or tried, key=lambda each: each[1], default=(None, 0.0))[0]


def _set_of(
    excess: Excess, share: Floats, noise: float, left: Floats, members: Index, chance: float
) -> tuple[Slow, float] | None:
    """Those of some ranks that are slow by at least half as much as the slowest, as a set.

    With it the time that healing them saves, times the probability that it is no chance, ns. None
    where they are slow by less than ranks differ by nature, or that time is nothing. Arguments as
    in `_slowest`; the members are given by their rows.
    """
    pattern = pattern_of(share[members].mean(axis=0), NOISE * noise, excess.numbers)
    here = np.isin(excess.numbers, pattern.iterations)
    then = np.median(share[np.ix_(members, here)], axis=1)
    mostly = pattern.kind is VerdictKind.PERSISTENT and then.min() > NOISE * noise
    if not (mostly or pattern.always or pattern.has_one_reason):
        pattern = Pattern(VerdictKind.PERSISTENT, tuple(excess.numbers.tolist()), always=True)
        here[:] = True
        then = np.median(share[members], axis=1)
    if then.max() < BY_NATURE:
        return None
    alike = then >= HALF * then.max()
    if not alike.all():
        return _set_of(excess, share, noise, left, members[alike], chance)
    slow = excess.cells(excess.ranks[members], pattern.iterations)
    after = left - excess.amounts(np.inf, slow)
    gain = float((left.max(axis=0) - np.maximum(after.max(axis=0), 0.0))[here].sum())
    if gain < LEAST_GAIN * float(np.nansum(excess.lengths[here])):
        return None
    if (_parts_of_roles(excess.roles, members) == 1 / 2).any():
        chance = min(2 * chance, 1.0)  # that the other half is fast would have been found as well
    ranks = tuple(sorted(excess.ranks[members].tolist()))
    return Slow(ranks, pattern, chance), gain * (1 - chance)


def _parts_of_roles(roles: Index, members: Index) -> Floats:
    """Which part of each role the members are, of the roles that have some."""
    counts = np.bincount(roles[members], minlength=roles.max() + 1)
    return np.asarray((counts / np.bincount(roles))[counts > 0])


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


def _knees(sums: Floats, most: int) -> list[int]:
    """Sizes of sets after which the next rank costs clearly less, ascending.

    Args:
        sums: of the ranks, the highest first.
        most: the largest size.
    """
    before, after = sums[:most], np.append(sums[1:], 0.0)[:most]
    sizes = np.flatnonzero((before > 0) & (after < MOST * before))
    largest = np.argsort((after - before)[sizes], kind="stable")[:FEW]
    return sorted((sizes[largest] + 1).tolist())


def facts_of(excess: Excess, noise: float, known: Sequence[Slow]) -> list[Slow]:
    """The few ranks or sets of ranks whose events lie apart from all that others do.

    Args:
        excess: of some iterations.
        noise: as in `Story`, of the whole run.
        known: what is described already.
    """
    share = excess.share
    for each in known:
        share[excess.cells(each.ranks, each.pattern.iterations)] = 0.0
    found: list[Slow] = []
    amounts = np.empty(0)
    named: list[int] = []
    apart = single = 0
    for count in range(1, FEW + 1):
        members, worth = _costliest(share, event_of(noise), excess)
        if not members:
            break
        amount = np.where(worth > 0, share[members].mean(axis=0), 0.0)
        pattern = pattern_of(amount, 0.0, excess.numbers)
        here = np.isin(excess.numbers, pattern.iterations)
        found.append(Slow(tuple(excess.ranks[members].tolist()), pattern, None))
        events = amount[here & (amount > 0)]
        amounts = np.append(amounts, events)
        single += 0 if pattern.has_one_reason else len(events)
        share[np.ix_(np.asarray(members), here)] = 0.0
        named += members
        rare = count == 1 or single <= max(RARE * len(excess.numbers), 1)
        rest = share if 2 * len({*named}) > len(share) else np.delete(share, named, 0)
        if rest.shape[1] >= FEW:
            rest = rest - np.median(rest, axis=1, keepdims=True)  # a level is no event
        others = np.maximum(np.abs(rest), NOISE * noise)
        if rare and len(amounts) and chance_of_largest(amounts, others) <= ALPHA:
            apart = count
    return found[:apart]


def _costliest(share: Floats, least: float, excess: Excess) -> tuple[list[int], Floats]:
    """The rank or the set of ranks, by their rows, whose events cost most, and about how much.

    In each iteration, what they exceed all others by, ns. A set has events in the same iteration,
    and is at most half of the ranks.

    Args:
        share: rank by iteration.
        least: from which on an excess is an event.
        excess: of all ranks.
    """
    events = share > least
    columns = {tuple(np.flatnonzero(column).tolist()) for column in events.T if column.any()}
    sets = [[*each] for each in sorted(columns) if 1 < len(each) <= len(share) // 2]
    unit = np.nan_to_num(excess.unit).max(axis=0)
    high = np.partition(share, -2, axis=0)[-2:] if len(share) > 1 else np.vstack([0 * share, share])
    best, worth = list[int](), np.zeros(share.shape[1])
    for members in [[row] for row in np.flatnonzero(events.any(axis=1)).tolist()] + sets:
        here = np.flatnonzero(events[members].mean(axis=0) >= MOST)
        own = np.median(share[np.ix_(np.asarray(members), here)], axis=0)
        if len(members) == 1:
            next_one = np.where(own >= high[1, here], high[0, here], high[1, here])
        else:
            next_one = np.delete(share[:, here], members, 0).max(axis=0)
        cost = np.zeros(len(worth))
        cost[here] = np.maximum(own - np.maximum(next_one, 0.0), 0.0) * unit[here]
        if not best or cost.sum() > worth.sum():
            best, worth = members, cost
    return best, worth


def flagged(excess: Excess, story: Story) -> pl.DataFrame:
    """Every rank and iteration with its excess, and whether it stands out.

    A rank stands out where it has an event, or is slow by the story of the run.

    Args:
        excess: of all ranks, in some iterations.
        story: of the whole run.

    Returns:
        rank, role, iteration, excess_ns (null where unknown), length_ns (the role's median
        iteration), flagged, cause (phase with the largest excess, where flagged),
        cause_excess_ns and `<phase>_excess`.
    """
    apart = excess.share > story.event
    for each in story.slow:
        apart |= each.cells(excess, story.event)
    row, column = np.nonzero(~np.isnan(excess.total))
    by_phase = excess.by_phase[row, column]
    filled = np.where(np.isnan(by_phase), -np.inf, by_phase)
    largest, most = filled.argmax(axis=1), filled.max(axis=1)
    # where no phase is known all time is `other`, and that causes nothing
    has_cause = np.isfinite(most) & (most > 0)
    frame = pl.DataFrame(
        {
            "rank": excess.ranks[row],
            "role": pl.Series(excess.role_names).gather(excess.roles[row]),
            "iteration": excess.numbers[column],
            "excess_ns": excess.total[row, column].round().astype(np.int64),
            "length_ns": np.nan_to_num(excess.length[row, column]).round().astype(np.int64),
            "flagged": apart[row, column] & (excess.total[row, column] > 0),
            "cause": pl.Series(excess.phases).gather(largest),
            "cause_excess_ns": np.where(has_cause, most, 0.0).round().astype(np.int64),
            **{
                f"{phase}_excess": pl.Series(amounts).fill_nan(None).round().cast(pl.Int64)
                for phase, amounts in zip(excess.phases, by_phase.T, strict=True)
            },
        }
    )
    shown = pl.col("flagged") & pl.Series(has_cause)
    return frame.with_columns(pl.when(shown).then(pl.col("cause", "cause_excess_ns")))
