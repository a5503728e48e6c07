"""What decides a verdict: the part of the excess whose healing would save most.

See METHOD.md#verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from rankscope.compare.causes.more_work import more_work
from rankscope.compare.robust import Floats
from rankscope.compare.verdict.candidates import Candidate
from rankscope.compare.verdict.roles_and_hosts import whole_hosts

if TYPE_CHECKING:
    from rankscope.compare.verdict.inputs import VerdictInputs

LEAST_GAIN = 0.01
"""Share of the time that healing must save before anybody is named for it."""

MUCH_GAIN = 0.05
"""Share of the time from which on imbalance is no mere jitter."""

MOST_OF_IT = 0.8
"""Share of a component's gain that the named ranks hold."""

HALF = 0.5
"""Share of the iterations in which ranks are slow together that makes them slow at one time."""

PART_OF_ALL = 0.2
"""Share of the gain of healing everything that the named ranks must hold, where that is large."""


GIVEN = 0.5
"""Share of a rank's excess that more work must explain."""

MOST_EVENT_SETS = 8
"""Hosts and ranks with events that are priced."""


class Component(Enum):
    """A part of the excess."""

    LEVEL = "level"
    EVENTS = "events"
    ROLE = "role"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True, eq=False)
class Straggler:
    """A candidate with its price."""

    candidate: Candidate
    component: Component  # LEVEL or EVENTS
    healed: Floats  # rank by iteration by phase
    gain_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """The prices of a run's imbalance, and what costs most.

    `everything_ns`: the gain of all ranks at their role's median, all roles at the median role, and
    all transfers as usual. `gains`: that of each component.
    `main`: the component that decides; None where nothing costs enough, or no component holds
    enough of a large gain. `straggler`: the ranks that are named; None where none can be.
    `others`: further stragglers, with what healing them saves once the main ones are healed.
    Ranks that are given more work are not repaired before that: the others must save it alone.
    `costless`: usually slow ranks, healing of which saves less than `LEAST_GAIN` then.
    `more_work_ranks`: those of the named ranks that have more to do.
    """

    everything_ns: int
    gains: dict[Component, int]
    main: Component | None
    straggler: Straggler | None
    others: list[Straggler]
    costless: list[int]
    more_work_ranks: list[int]

    @property
    def is_by_design(self) -> bool:
        """Whether most of the named ranks are given more work: no repair makes them fast."""
        named = () if self.straggler is None else self.straggler.candidate.ranks
        return 2 * len(self.more_work_ranks) > len(named)


def decide(inputs: VerdictInputs) -> Decision:
    """Price the components of a run and choose the one that decides."""
    parts, prices = inputs.components, inputs.prices
    level_sets = [(each, inputs.healed(each, level=True)) for each in inputs.level_sets]
    event_sets = [
        (each, inputs.healed(each, level=False)) for each in inputs.event_sets[:MOST_EVENT_SETS]
    ]
    role = [] if parts.role is None else [parts.role]

    def played() -> Iterator[Floats]:
        yield inputs.level
        yield inputs.events
        yield from (*role, *(healed for _, healed in (*level_sets, *event_sets)))

    if parts.transfer is None:  # all together take little longer than one
        everything, level, events, *rest = prices.of(chain([parts.everything], played()))
    else:
        (everything,) = prices.of([parts.everything], parts.transfer)
        level, events, *rest = prices.of(played())
    gains = {Component.LEVEL: level, Component.EVENTS: events}
    if role:
        gains[Component.ROLE], *rest = rest
    if parts.transfer is not None:
        nothing = np.zeros_like(parts.everything)
        gains[Component.TRANSFER] = prices.of([nothing], parts.transfer)[0]
    least = LEAST_GAIN * inputs.total_ns
    priced = [
        Straggler(candidate, component, healed, gain)
        for (candidate, healed), component, gain in zip(
            (*level_sets, *event_sets),
            [*[Component.LEVEL] * len(level_sets), *[Component.EVENTS] * len(event_sets)],
            rest,
            strict=True,
        )
    ]
    usual = _usually_slow(inputs, [e for e in priced if e.component is Component.LEVEL], level)
    sudden = _at_times_slow(inputs, [e for e in priced if e.component is Component.EVENTS])
    named = {
        Component.LEVEL: usual if usual is not None and usual.gain_ns >= least else None,
        Component.EVENTS: sudden if sudden is not None and sudden.gain_ns >= least else None,
    }
    main = _main(gains, named, everything, inputs.total_ns)
    straggler = None if main is None else named.get(main)
    least_other = least
    if straggler is None and everything >= MUCH_GAIN * inputs.total_ns:
        least_other = PART_OF_ALL * everything  # else one of many reasons
    given = [] if straggler is None else ranks_with_more_work(inputs, straggler)
    found = Decision(everything, gains, main, straggler, [], [], given)
    besides = _besides(inputs, found, priced)
    others = [each for each in besides if each.gain_ns >= least_other]
    costless = sorted(
        rank
        for each in besides
        if each.component is Component.LEVEL and each.gain_ns < least
        for rank in each.candidate.ranks
    )
    return replace(found, others=others, costless=costless)


def _main(
    gains: dict[Component, int],
    named: dict[Component, Straggler | None],
    everything: int,
    total: int,
) -> Component | None:
    """The component with the largest gain of those that name somebody or something."""
    for component in sorted(gains, key=lambda each: -gains[each]):
        gain = gains[component]
        if gain < LEAST_GAIN * total:
            return None
        if component in (Component.ROLE, Component.TRANSFER):
            return component
        someone = named[component]
        if someone is not None:
            much = everything >= MUCH_GAIN * total
            if not much or someone.gain_ns >= PART_OF_ALL * everything:
                return component
        elif component is Component.EVENTS:
            return component
    return None


def _usually_slow(
    inputs: VerdictInputs, sets: list[Straggler], gain_of_all: int
) -> Straggler | None:
    """The smallest set of usually slow ranks that holds most of the gain."""
    if not sets:
        return None
    enough = [each for each in sets if each.gain_ns >= MOST_OF_IT * gain_of_all]
    found = enough[0] if enough else max(sets, key=lambda each: each.gain_ns)
    alike = _alike(inputs, found)
    if alike.candidate.members.sum() == found.candidate.members.sum():
        return found
    (gain,) = inputs.prices.of([alike.healed])
    return replace(alike, gain_ns=gain) if gain >= LEAST_GAIN * inputs.total_ns else found


def _alike(inputs: VerdictInputs, found: Straggler) -> Straggler:
    """Of a set of ranks those that are slow in the same phase and at the same kind of times."""
    members = np.flatnonzero(found.candidate.members)
    cost = found.healed[members].sum(axis=1)
    phase = cost.argmax(axis=1)
    when = found.candidate.where[members]
    lead = int(cost.sum(axis=1).argmax())
    same = [
        place
        for place in range(len(members))
        if phase[place] == phase[lead]
        and (when[place] & when[lead]).sum() >= HALF * (when[place] | when[lead]).sum()
    ]
    if len(same) == len(members):
        return found
    return _part(inputs, found, members[same])


def _part(inputs: VerdictInputs, found: Straggler, members: np.ndarray) -> Straggler:
    """Some of the ranks of a set; the gain is still that of the whole set."""
    candidate = inputs.level_part(found.candidate, members)
    return replace(found, candidate=candidate, healed=inputs.healed(candidate, level=True))


def _at_times_slow(inputs: VerdictInputs, sets: list[Straggler]) -> Straggler | None:
    """The host or the ranks whose events cost most: alone, or with others of the same kind."""
    if not sets:
        return None
    lead = max(sets, key=lambda each: each.gain_ns)
    phase = lead.healed.sum(axis=(0, 1)).argmax()
    alike = [
        each
        for each in sets
        if each.candidate.pattern.kind == lead.candidate.pattern.kind
        and each.candidate.pattern.period == lead.candidate.pattern.period
        and each.healed.sum(axis=(0, 1)).argmax() == phase
    ]
    if len(alike) == 1 or lead.candidate.hosts:
        return lead
    healed = np.sum([each.healed for each in alike], axis=0)
    (gain,) = inputs.prices.of([healed])
    if MOST_OF_IT * gain < lead.gain_ns:
        return lead
    members = np.logical_or.reduce([each.candidate.members for each in alike])
    where = np.logical_or.reduce([each.candidate.where for each in alike])
    ranks = tuple(int(rank) for rank in inputs.excess.ranks[members])
    hit = where.any(axis=0)
    pattern = replace(
        lead.candidate.pattern,
        iterations=[number for number, at in zip(inputs.numbers, hit, strict=True) if at],
    )
    candidate = Candidate(members, where, ranks, whole_hosts(ranks, inputs.hosts), pattern)
    return Straggler(candidate, Component.EVENTS, healed, gain)


def _besides(inputs: VerdictInputs, found: Decision, priced: list[Straggler]) -> list[Straggler]:
    """Candidates besides the main ones, each with what it saves in addition, most first."""
    main, straggler = found.main, found.straggler
    named = np.zeros(len(inputs.excess.ranks), dtype=np.bool_)
    if straggler is not None:
        named = straggler.candidate.members
    rest: list[Straggler] = []
    usual = [each for each in priced if each.component is Component.LEVEL]
    if usual:
        largest = usual[-1]
        left = np.flatnonzero(
            largest.candidate.members
            & ~(named if main is Component.LEVEL else np.zeros_like(named))
        )
        while len(left):
            some = _alike(inputs, _part(inputs, largest, left))
            rest.append(some)
            left = np.setdiff1d(left, np.flatnonzero(some.candidate.members))
            if len(rest) >= MOST_EVENT_SETS:
                break
    rest += [
        each
        for each in priced
        if each.component is Component.EVENTS
        and not (main is Component.EVENTS and (each.candidate.members & named).any())
    ]
    if not rest:
        return []
    base = np.zeros_like(inputs.components.everything)
    if straggler is not None and not found.is_by_design:
        base = straggler.healed
    transfer = inputs.components.transfer if main is Component.TRANSFER else None
    before, *after = inputs.prices.of([base, *(base + each.healed for each in rest)], transfer)
    priced = [replace(each, gain_ns=gain - before) for each, gain in zip(rest, after, strict=True)]
    return sorted(priced, key=lambda each: -each.gain_ns)


def ranks_with_more_work(inputs: VerdictInputs, found: Straggler) -> list[int]:
    """Which of the ranks have more to do, by enough to explain most of their excess."""
    numbers = found.candidate.pattern.iterations
    work = more_work(inputs.tables, inputs.role_of, numbers)
    mean = found.healed[:, np.isin(inputs.excess.numbers, numbers)].sum(axis=2).mean(axis=1)
    excess = dict(zip(inputs.excess.ranks.tolist(), mean.tolist(), strict=True))
    return [
        rank
        for rank, extra in work.filter(pl.col("more")).select("rank", "extra_ns").iter_rows()
        if rank in found.candidate.ranks and extra >= GIVEN * excess[rank]
    ]
