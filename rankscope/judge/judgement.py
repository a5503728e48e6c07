"""What decides a verdict: the part of the imbalance whose repair would save most.

See METHOD.md#verdict.
"""

from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from rankscope.judge.causes.more_work import more_work
from rankscope.judge.healing import Prices
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.levels import HALF, LEAST_GAIN, MOST, MUCH
from rankscope.judge.story import Slow
from rankscope.model.kinds import VerdictKind
from rankscope.util.robust import Floats

Component = Literal["ranks", "role", "transfer"]
"""A part of the imbalance."""


class Straggler(NamedTuple):
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
    `left_ns`: what is left of `cost_ns` when `main` and all of these are healed.
    `costless`: ranks that are slow, and healing of which saves less than `LEAST_GAIN` then.
    `more_work_ranks`: those of the named ranks that have more to do. `is_by_design`: they are most
    of these, which no repair makes fast.
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
    is_by_design: bool

    @property
    def cost_ns(self) -> int:
        """What all imbalance costs: `everything_ns`; without a replay, what it is at most."""
        cost = self.prices.most(self.prices.everything, self.everything_ns)
        return cost if self.straggler is None else max(cost, self.gain_of(self.straggler))

    def gain_of(self, straggler: Straggler) -> int:
        """What healing ranks saves, as `cost_ns`."""
        return self.prices.most(self.inputs.healed(straggler.claim), straggler.gain_ns)


def decide(inputs: VerdictInputs, prices: Prices) -> Judgement:
    """Price the claims and components of a run and choose what decides."""
    least = LEAST_GAIN * inputs.total_ns
    nothing = np.zeros_like(prices.everything)
    together = reduce(np.maximum, map(inputs.healed, inputs.claims), nothing)
    components: dict[Component, Floats] = {}
    if prices.role is not None:
        components["role"] = prices.role
    if prices.transfer is not None:
        components["transfer"] = nothing
    played = chain(
        [prices.everything, *components.values(), together],
        map(inputs.healed, inputs.claims),  # one at a time: they are large
    )
    everything, *rest = prices.of(played, with_transfers=(0, len(components)))
    gains = dict(zip(components, rest, strict=False))
    named, *rest = rest[len(components) :]
    priced = [Straggler(claim, gain) for claim, gain in zip(inputs.claims, rest, strict=True)]
    best = max(priced, key=lambda each: each.gain_ns, default=None)
    if best is not None and not _is_a_detail(best, named, everything, inputs.total_ns):
        gains["ranks"] = best.gain_ns
    main = max(gains, key=lambda each: gains[each], default=None)
    if main is not None and gains[main] < least:
        main = None
    if main == "transfer" and best is not None and best.gain_ns >= least and _slows(prices, best):
        main = "ranks"  # a collective that hosts carry out is work of its members
    with_transfers = range(len(inputs.claims) + 1) if main == "transfer" else ()
    if main == "transfer":
        (named,) = prices.of([together], with_transfers=with_transfers)
    elif main == "role":
        together = np.maximum(together, components["role"])
        (named,) = prices.of([together])
    straggler = best if main == "ranks" else None
    more = [] if straggler is None else ranks_with_more_work(inputs, straggler.claim)
    by_design = straggler is not None and 2 * len(more) > len(straggler.claim.ranks)

    # what each of the others saves in addition
    base = nothing
    if straggler is not None and not by_design:
        base = inputs.healed(straggler.claim)
    beside = [each.claim for each in priced if each is not straggler]
    played = chain([base], (np.maximum(base, inputs.healed(claim)) for claim in beside))
    before, *after = prices.of(played, with_transfers=with_transfers)
    others = [Straggler(claim, gain - before) for claim, gain in zip(beside, after, strict=True)]
    slow = {rank for each in others if each.claim.chance is not None for rank in each.claim.ranks}
    others = sorted((each for each in others if each.gain_ns >= least), key=lambda e: -e.gain_ns)
    accused = {rank for each in (straggler, *others) if each for rank in each.claim.ranks}
    return Judgement(
        inputs,
        prices,
        everything_ns=everything,
        gains=gains,
        main=main,
        straggler=straggler,
        others=others,
        left_ns=prices.most(
            np.maximum(prices.everything - together, 0.0), max(everything - named, 0)
        ),
        costless=sorted(slow - accused),
        more_work_ranks=more,
        is_by_design=by_design,
    )


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


def _slows(prices: Prices, found: Straggler) -> bool:
    """Whether a rank is slow in most iterations in which transfers among its peers are slow."""
    if prices.slow is None:
        return False
    ranks, when = {*found.claim.ranks}, {*found.claim.pattern.iterations}
    rows = prices.slow.slow.select("members", "iterations").iter_rows()
    return any(ranks & {*m} and 2 * len(when & {*numbers}) >= len(numbers) for m, numbers in rows)


class Fast(NamedTuple):
    """Ranks that are fast beyond chance, and what the others may lose by it.

    `claim`: the fast ranks. `others`: of their roles. `many`: whether the fast are more than a
    third of these. `less_ns`: by how much the fast ones need less, on average. `gain_ns`: what the
    run would save if all were as fast.
    """

    claim: Slow
    others: tuple[int, ...]
    many: bool
    less_ns: int
    gain_ns: int


def fast_ranks(judged: Judgement) -> Fast | None:
    """The ranks that are fast by what is worth a name; None where there are none."""
    inputs, prices = judged.inputs, judged.prices
    excess, fast = inputs.excess, inputs.story.fast
    if fast is None:
        return None
    members = np.isin(excess.ranks, fast.ranks)
    peers = np.isin(excess.roles, excess.roles[members])
    others = peers & ~members
    best = np.nanmedian(excess.total[members], axis=0)
    over = np.where(others[:, None], excess.total - best, 0.0)
    healing = excess.saved(over, excess.spent)
    (gain,) = prices.of([healing])
    if gain < LEAST_GAIN * inputs.total_ns:
        return None
    less = round(float(np.nanmean(over[others])))
    ranks = tuple(excess.ranks[others].tolist())
    many = bool(3 * members.sum() > peers.sum())
    return Fast(fast, ranks, many, less, prices.most(healing, gain))


def holders(judged: Judgement) -> list[int]:
    """The fewest ranks that hold most of what the slowest rank of each iteration costs.

    In the order of their costs.
    """
    amount = np.nan_to_num(judged.prices.everything.sum(axis=2))
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
