"""What decides a verdict: the part of the imbalance whose healing would save most.

See METHOD.md#verdict.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.judge.causes.more_work import more_work
from rankscope.judge.claims import Slow, event_of
from rankscope.judge.healing import Prices
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.levels import FEW, HALF, LEAST_GAIN, MOST, MUCH
from rankscope.judge.story import is_loading
from rankscope.model.intervals import Floats
from rankscope.model.kinds import STEP_PHASES, Phase
from rankscope.util.wording import percent

Component = Literal["ranks", "role", "transfer"]
"""A part of the imbalance."""


class Straggler(NamedTuple):
    """A claim, what healing it saves, and those of its ranks that have more to do."""

    claim: Slow
    gain_ns: int
    more_work_ranks: tuple[int, ...] = ()

    @property
    def is_by_design(self) -> bool:
        """Whether most of the ranks have more to do, which healing leaves."""
        return 2 * len(self.more_work_ranks) > len(self.claim.ranks)


class Judgement(Struct, frozen=True, eq=False):
    """The prices of a run's imbalance, and what costs most.

    `everything_ns`: the gain of all ranks at their role's median, all roles at the median role, and
    all transfers as usual. `cost_ns`: the same, or its upper bound. `why_bound`: why gains are
    upper bounds, in words; None: they are exact. `gains`: that of each component. `main`: the
    component that decides; None where nothing costs enough. `straggler`: the ranks that are named;
    None where none can be. `others`: further stragglers, with what healing them saves once the main
    ones are healed, unless these have more to do by design. `left_ns`: what is left of `cost_ns`
    when `main` and all of these are healed. `left`: the same of each rank, by iteration.
    """

    inputs: VerdictInputs
    prices: Prices
    everything_ns: int
    cost_ns: int
    why_bound: str | None
    gains: dict[Component, int]
    main: Component | None
    straggler: Straggler | None
    others: list[Straggler]
    left_ns: int
    left: Floats

    @property
    def imbalance(self) -> Floats:
        """What each rank costs, and its role: rank by iteration, ns."""
        return np.asarray(np.nan_to_num(self.prices.everything.sum(axis=2)))

    @property
    def at_most(self) -> str:
        """`at most ` before gains that are upper bounds."""
        return "" if self.why_bound is None else "at most "

    def part(self, gain_ns: int) -> str:
        """`at most 20 %`: a gain as a share of the time."""
        return f"{self.at_most}{percent(gain_ns / self.inputs.total_ns)}"


def decide(inputs: VerdictInputs, prices: Prices) -> Judgement:
    """Price the claims and components of a run and choose what decides."""
    total, claims = inputs.total_ns, inputs.claims
    least = LEAST_GAIN * total
    carries = {claim: _carries(prices, claim) for claim in claims}
    nothing = inputs.excess.no_time()

    def healed(some: Sequence[Slow]) -> Floats:
        return reduce(np.maximum, map(inputs.healed, some)) if some else nothing

    def carried(some: Sequence[Slow]) -> bool:
        return any(carries[claim] for claim in some)

    components: dict[Component, Floats] = {}
    if prices.role is not None:
        components["role"] = prices.role
    if prices.transfer is not None:
        components["transfer"] = nothing
    sets = [claims, *([claim] for claim in claims)]
    everything, *gained = prices.of(
        chain([prices.everything, *components.values()], map(healed, sets)),
        [True, *(name == "transfer" for name in components), *map(carried, sets)],
    )
    gains = dict(zip(components, gained, strict=False))
    named, *by_claim = gained[len(components) :]
    priced = [Straggler(claim, gain) for claim, gain in zip(claims, by_claim, strict=True)]
    best = max(priced, key=lambda each: each.gain_ns, default=None)

    def detail(gain: int, part: float = 1.0) -> bool:
        """Whether the gain is less than a part of all else, which costs much."""
        return everything - gain > max(gain / part, MUCH * total)

    single = best is not None and best.claim.chance is None and not best.claim.pattern.period
    if best is not None and not (single and detail(named, HALF)):
        gains["ranks"] = best.gain_ns
    main: Component | None = None
    together = healed(claims)
    costly = sorted((part for part in gains if gains[part] >= least), key=lambda each: -gains[each])
    # each part alone, then all of them: two that bind by turns save little alone
    for parts in (*([part] for part in costly), costly):
        if not parts or "ranks" in parts:
            main = "ranks" if parts else None
            break
        with_parts = reduce(np.maximum, (components[part] for part in parts), together)
        (both,) = prices.of([with_parts], ["transfer" in parts or carried(claims)])
        if not detail(both):
            main = parts[0]
            break
    if main in components:
        together = np.maximum(together, components[main])
        (named,) = prices.of([together], [main == "transfer" or carried(claims)])
    straggler = _known(inputs, prices, best) if best is not None and main == "ranks" else None
    # what the others save once the first one is healed
    first = [] if straggler is None or straggler.is_by_design else [straggler.claim]
    beside = [each.claim for each in priced if each is not best or straggler is None]
    sets = [first, *([*first, claim] for claim in beside)]
    before, *after = prices.of(map(healed, sets), map(carried, sets)) if beside else [0]
    added = sorted(zip(beside, after, strict=True), key=lambda each: -each[1])
    others = [Straggler(claim, gain - before) for claim, gain in added if gain - before >= least]
    others = [_known(inputs, prices, each) for each in others[:FEW]]
    reported = others if straggler is None else [straggler, *others]
    remaining = prices.everything - together
    np.maximum(remaining, 0.0, out=remaining)
    cost = prices.most(prices.everything, everything)
    return Judgement(
        inputs,
        prices,
        everything_ns=everything,
        cost_ns=cost if straggler is None else max(cost, straggler.gain_ns),
        why_bound=_why_bound(inputs, prices, reported),
        gains=gains,
        main=main,
        straggler=straggler,
        others=others,
        left_ns=prices.most(remaining, max(everything - named, 0)),
        left=np.nan_to_num(remaining.sum(axis=2)),
    )


def _why_bound(inputs: VerdictInputs, prices: Prices, named: Sequence[Straggler]) -> str | None:
    """Why gains are upper bounds, in words; None: they are exact."""
    if prices.why_bound is not None:
        return prices.why_bound
    for claim, gain, _ in named:
        limited = gain + 1 > prices.above_hosts(inputs.healed(claim).sum(axis=2))
        if limited or _may_load_early(inputs, claim):
            early = "launch" if limited else "load"
            return f"others may {early} ahead while they wait, and be slower without that"
    return None


def _may_load_early(inputs: VerdictInputs, claim: Slow) -> bool:
    """Whether the others may load data early while they wait for the ranks of a claim."""
    seldom = 2 * len(claim.pattern.iterations) <= len(inputs.numbers)
    if seldom or not is_loading(inputs.excess, claim):
        return False
    context = inputs.context(claim)
    return context.device_ns(idle=False) < HALF * context.phase_ns


def _known(inputs: VerdictInputs, prices: Prices, straggler: Straggler) -> Straggler:
    """A straggler with its gain as it is said, and the ranks that have more to do."""
    claim = straggler.claim
    healed, numbers = inputs.healed(claim), claim.pattern.iterations
    named = np.isin(inputs.excess.ranks, claim.ranks)
    mean = healed[np.ix_(named, np.isin(inputs.excess.numbers, numbers))].sum(axis=2).mean(axis=1)
    excess = dict(zip(inputs.excess.ranks[named].tolist(), mean.tolist(), strict=True))
    work = more_work(*inputs.compared(claim), numbers).filter(pl.col("more"))
    if _is_beside_steps(inputs, claim):
        work = work.clear()
    more = tuple(
        rank
        for rank, extra in work.select("rank", "extra_ns").iter_rows()
        if rank in claim.ranks and extra >= HALF * excess[rank]
    )
    return Straggler(claim, prices.most(healed, straggler.gain_ns), more)


def _is_beside_steps(inputs: VerdictInputs, claim: Slow) -> bool:
    """Whether ranks are slow beside the phases of a step, as in a validation or a checkpoint.

    That is a task of its own, not a larger share of the same work.
    """
    excess, (_, cause, _) = inputs.excess, inputs.extent(claim)
    named = {
        phase
        for place, phase in enumerate(excess.phases)
        if (np.nan_to_num(excess.spent[:, :, place]) > 0).any()
    }
    # else `other` holds a part of the steps
    return cause == Phase.OTHER and named.issuperset(STEP_PHASES)


def _carries(prices: Prices, claim: Slow) -> bool:
    """Whether ranks are slow in most iterations in which their collectives on hosts are slow.

    A collective that hosts carry out is work of its members.
    """
    if prices.slow is None:
        return False
    ranks, when = {*claim.ranks}, {*claim.pattern.iterations}
    rows = prices.slow.slow.filter("on_host").select("members", "iterations").iter_rows()
    return any(ranks & {*m} and 2 * len(when & {*numbers}) >= len(numbers) for m, numbers in rows)


def holders(inputs: VerdictInputs, amount: Floats) -> list[tuple[int, list[int]]]:
    """The fewest ranks that hold most of what the slowest rank of each iteration costs.

    In the order of their costs, with the iterations in which each is the slowest by an event.

    Args:
        inputs: of the run.
        amount: what ranks cost: rank by iteration, ns.
    """
    excess, slowest, cost = inputs.excess, amount.argmax(axis=0), amount.max(axis=0)
    sums = np.bincount(slowest, cost, len(amount))
    order = np.argsort(-sums, kind="stable")
    enough = int(np.searchsorted(np.cumsum(sums[order]), MOST * sums.sum())) + 1
    hit = cost > event_of(inputs.story.noise) * excess.lengths
    return [
        (int(excess.ranks[row]), excess.numbers[hit & (slowest == row)].tolist())
        for row in order[:enough]
    ]
