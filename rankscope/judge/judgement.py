"""What decides a verdict: the part of the imbalance whose repair would save most.

See METHOD.md#verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from itertools import chain

import numpy as np
import polars as pl

from rankscope.judge.causes.more_work import more_work
from rankscope.judge.healing import Prices
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.levels import HALF, LEAST_GAIN, MOST, MUCH
from rankscope.judge.story import Slow
from rankscope.judge.transfers import SlowTransfers
from rankscope.model.kinds import VerdictKind


class Component(Enum):
    """A part of the imbalance."""

    RANKS = "ranks"
    ROLE = "role"
    TRANSFER = "transfer"


@dataclass(frozen=True, slots=True, eq=False)
class Straggler:
    """A claim with its price."""

    claim: Slow
    gain_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The prices of a run's imbalance, and what costs most.

    `inputs`: what is known of the run. `prices`: what healing saves.
    `everything_ns`: the gain of all ranks at their role's median, all roles at the median role, and
    all transfers as usual. `gains`: that of each component.
    `main`: the component that decides; None where nothing costs enough. `straggler`: the ranks that
    are named; None where none can be.
    `others`: further stragglers, with what healing them saves once the main ones are healed.
    Ranks that are given more work are not repaired before that: the others must save it alone.
    `left_ns`: what is left of `everything_ns` when `main` and all of these are healed.
    `costless`: ranks that are slow, and healing of which saves less than `LEAST_GAIN` then.
    `more_work_ranks`: those of the named ranks that have more to do.
    """

    inputs: VerdictInputs
    prices: Prices
    everything_ns: int
    gains: dict[Component, int]
    main: Component | None
    straggler: Straggler | None
    others: list[Straggler]
    left_ns: int
    costless: list[int]
    more_work_ranks: list[int]

    @property
    def cost_ns(self) -> int:
        """What all imbalance costs: `everything_ns`; without a replay, what it is at most."""
        cost = self.prices.most(self.prices.components.everything, self.everything_ns)
        return cost if self.straggler is None else max(cost, self.gain_of(self.straggler))

    def gain_of(self, straggler: Straggler) -> int:
        """What healing ranks saves, as `cost_ns`."""
        return self.prices.most(self.inputs.healed(straggler.claim), straggler.gain_ns)

    @property
    def is_by_design(self) -> bool:
        """Whether most of the named ranks are given more work: no repair makes them fast."""
        named = () if self.straggler is None else self.straggler.claim.ranks
        return 2 * len(self.more_work_ranks) > len(named)


def decide(inputs: VerdictInputs, prices: Prices) -> Judgement:
    """Price the claims and components of a run and choose what decides."""
    parts, total = prices.components, inputs.total_ns
    nothing = np.zeros_like(parts.everything)
    together = reduce(np.maximum, map(inputs.healed, inputs.claims), nothing)
    role = [] if parts.role is None else [parts.role]
    played = chain([together], role, map(inputs.healed, inputs.claims))
    if parts.transfer is None:  # all together take little longer than one
        everything, named, *rest = prices.of(chain([parts.everything], played))
    else:
        (everything,) = prices.of([parts.everything], parts.transfer)
        named, *rest = prices.of(played)
    gains = {Component.ROLE: rest.pop(0)} if role else {}
    if parts.transfer is not None:
        gains[Component.TRANSFER] = prices.of([nothing], parts.transfer)[0]
    priced = [Straggler(claim, gain) for claim, gain in zip(inputs.claims, rest, strict=True)]
    best = max(priced, key=lambda each: each.gain_ns, default=None)
    least = LEAST_GAIN * total
    if best is not None and not _is_a_detail(best, named, everything, total):
        gains[Component.RANKS] = best.gain_ns
    main = max(gains, key=lambda each: gains[each], default=None)
    if main is not None and gains[main] < least:
        main = None
    if (
        main is Component.TRANSFER
        and best is not None
        and _slows_transfers(inputs, prices.slow, best)
    ):
        main = Component.RANKS  # a collective that hosts carry out is work of its members
    if main is Component.TRANSFER:
        (named,) = prices.of([together], parts.transfer)
    elif main is Component.ROLE:
        (named,) = prices.of([np.maximum(together, role[0])])
    straggler = best if main is Component.RANKS else None
    more = [] if straggler is None else ranks_with_more_work(inputs, straggler.claim)
    found = Judgement(
        inputs,
        prices,
        everything_ns=everything,
        gains=gains,
        main=main,
        straggler=straggler,
        others=[],
        left_ns=max(everything - named, 0),
        costless=[],
        more_work_ranks=more,
    )
    return _with_others(found, priced)


def _is_a_detail(best: Straggler, named: int, everything: int, total: int) -> bool:
    """Whether facts are less than what else imbalance costs, which is much.

    Events that recur with a period are no detail: they have one reason.

    Args:
        best: the claim that costs most.
        named: what healing of all claims saves.
        everything: what all imbalance costs.
        total: the time.
    """
    is_event = best.claim.chance is None and best.claim.pattern.kind is not VerdictKind.PERIODIC
    return is_event and everything - named > max(named, MUCH * total)


def _slows_transfers(inputs: VerdictInputs, slow: SlowTransfers | None, found: Straggler) -> bool:
    """Whether a rank is slow in most iterations in which transfers among its peers are slow."""
    if slow is None or found.gain_ns < LEAST_GAIN * inputs.total_ns:
        return False
    ranks, when = {*found.claim.ranks}, {*found.claim.pattern.iterations}
    rows = slow.slow.select("members", "iterations").iter_rows()
    return any(ranks & {*m} and 2 * len(when & {*numbers}) >= len(numbers) for m, numbers in rows)


def _with_others(found: Judgement, priced: list[Straggler]) -> Judgement:
    """The judgement with all further claims, each with what it saves in addition, most first."""
    inputs, prices = found.inputs, found.prices
    rest = [each for each in priced if each is not found.straggler]
    base = np.zeros_like(prices.components.everything)
    if found.straggler is not None and not found.is_by_design:
        base = inputs.healed(found.straggler.claim)
    transfer = prices.components.transfer if found.main is Component.TRANSFER else None
    more = (np.maximum(base, inputs.healed(each.claim)) for each in rest)
    before, *after = prices.of(chain([base], more), transfer)
    beside = [replace(each, gain_ns=gain - before) for each, gain in zip(rest, after, strict=True)]
    beside.sort(key=lambda each: -each.gain_ns)
    least = LEAST_GAIN * inputs.total_ns
    slow = {rank for each in beside if each.claim.chance is not None for rank in each.claim.ranks}
    named = set() if found.straggler is None else {*found.straggler.claim.ranks}
    costly = {rank for each in beside if each.gain_ns >= least for rank in each.claim.ranks}
    return replace(
        found,
        others=[each for each in beside if each.gain_ns >= least],
        costless=sorted(slow - costly - named),
    )


def holders(judged: Judgement) -> list[int]:
    """The fewest ranks that hold most of what the slowest rank of each iteration costs.

    In the order of their costs.
    """
    amount = np.nan_to_num(judged.prices.components.everything.sum(axis=2))
    slowest = amount.argmax(axis=0)
    cost = np.bincount(slowest, weights=amount.max(axis=0), minlength=len(amount))
    order = np.argsort(-cost, kind="stable")
    enough = int(np.searchsorted(np.cumsum(cost[order]), MOST * cost.sum())) + 1
    return [int(rank) for rank in judged.inputs.excess.ranks[order[:enough]]]


def ranks_with_more_work(inputs: VerdictInputs, claim: Slow) -> list[int]:
    """Which of the ranks have more to do, by enough to explain most of their excess."""
    numbers = claim.pattern.iterations
    work = more_work(inputs.tables, inputs.role_of, numbers)
    mean = inputs.healed(claim)[:, np.isin(inputs.excess.numbers, numbers)].sum(axis=2).mean(axis=1)
    excess = dict(zip(inputs.excess.ranks.tolist(), mean.tolist(), strict=True))
    return [
        rank
        for rank, extra in work.filter(pl.col("more")).select("rank", "extra_ns").iter_rows()
        if rank in claim.ranks and extra >= HALF * excess[rank]
    ]
