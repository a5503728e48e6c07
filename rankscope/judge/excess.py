"""The excess of every rank, iteration and phase over the median of the rank's role.

See METHOD.md#verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.judge.levels import FEW, MUCH, RARE
from rankscope.match.rank_axis import RANKS_AT_ONCE
from rankscope.model.intervals import Flags, Floats, Index
from rankscope.model.kinds import PHASES, Phase
from rankscope.model.metrics import column_of


class Excess(Struct, frozen=True, eq=False, dict=True):
    """Matrices of rank by iteration in ns; NaN is unknown.

    `hosts`: a number of each rank's host, one of its own where that is unknown. `total`: the judged
    metric over the lower median of the role in the iteration, less what the others launch ahead
    while they wait. `by_phase`: the same of each phase (rank by iteration by phase). `value`: the
    judged metric. `spent`: the time in each phase. `length`: the role's median iteration. `unit`:
    the length that the iteration has by the work of the role's median rank, without waits for slow
    ranks. `need`: what an iteration takes at least by the rank's host, where that binds without
    waits; `usual_need`: the same of the role's median host.
    """

    metric: str
    ranks: Index
    numbers: Index
    roles: Index
    hosts: Index
    role_names: tuple[str, ...]
    phases: tuple[str, ...]
    total: Floats
    by_phase: Floats
    value: Floats
    spent: Floats
    length: Floats
    unit: Floats
    need: Floats
    usual_need: Floats

    @property
    def lengths(self) -> Floats:
        """The time of each iteration: the longest of the roles' medians."""
        return np.asarray(np.fmax.reduce(self.length, axis=0))

    @cached_property
    def share(self) -> Floats:
        """`total` as a share of `unit`; 0 where unknown."""
        return np.nan_to_num(self.total / self.unit)

    @cached_property
    def own_changes(self) -> Floats:
        """How far `value` is from the rank's own median, as a share of `unit`; 0 where unknown."""
        return np.nan_to_num(np.abs(self.value - lower_medians(self.value.T).T) / self.unit)

    def beside(self, phase: str) -> Excess:
        """The same without the time in a phase, in `total` and `by_phase`."""
        place = self.phases.index(phase)
        value = self.value - np.nan_to_num(self.spent[:, :, place])
        by_phase = self.by_phase.copy()
        by_phase[:, :, place] = 0.0
        over = self.spent - usual_of(self.spent, self.roles)
        ahead = np.maximum(np.nan_to_num(over - self.by_phase), 0.0)
        ahead[:, :, place] = 0.0
        total = value - usual_of(value, self.roles) - ahead.sum(axis=2)
        return replace(self, total=total, by_phase=by_phase)

    def within(self, phase: str | None) -> Excess:
        """The same with the excess in one phase as `total`; None: in all of them."""
        if phase is None:
            return self
        return replace(self, total=self.by_phase[:, :, self.phases.index(phase)])

    @cached_property
    def of_hosts(self) -> Excess | None:
        """The same of hosts in place of ranks: the means of their ranks.

        None where there are several roles, fewer than three hosts, or no host has two ranks, or
        they have not equally many: the means of fewer ranks scatter more.
        """
        hosts, first, count = np.unique(self.hosts, return_index=True, return_counts=True)
        several = FEW <= len(hosts) < len(self.ranks) and np.ptp(count) == 0
        if len(self.role_names) > 1 or not several:
            return None
        order = np.argsort(self.hosts, kind="stable")
        begins = np.cumsum(count) - count

        def mean(values: Floats) -> Floats:
            return np.asarray(np.add.reduceat(values[order], begins, axis=0) / count[0])

        means = {
            each: mean(getattr(self, each)) for each in ("total", "by_phase", "value", "spent")
        }
        alike = ("roles", "length", "unit", "need", "usual_need")
        firsts = {each: getattr(self, each)[first] for each in alike}
        return replace(self, ranks=hosts, hosts=hosts, **means, **firsts)

    def without(self, cells: Flags) -> Excess:
        """The same with no excess of some ranks, or of these in some iterations."""
        total, by_phase = self.total.copy(), self.by_phase.copy("K")
        total[cells] = by_phase[cells] = 0.0
        return replace(self, total=total, by_phase=by_phase)

    def cells(self, ranks: Sequence[int] | Index, iterations: Sequence[int]) -> Flags:
        """Some ranks in some iterations, as a matrix of rank by iteration."""
        rows, columns = np.isin(self.ranks, ranks), np.isin(self.numbers, iterations)
        return np.asarray(rows[:, None] & columns)

    def main_phase(
        self, sums: Floats, whole: float, cells: Flags | None = None
    ) -> tuple[str | None, float | None]:
        """The phase with most of an amount, and its share; None where no phase is known.

        All time is `other` then, and that causes nothing.

        Args:
            sums: the amount by phase.
            whole: the amount.
            cells: of which ranks and iterations; None: all.
        """
        spent = self.spent if cells is None else self.spent[cells]
        known = (spent[..., at] for at, phase in enumerate(self.phases) if phase != "other")
        if not any((spent > 0).any() for spent in known) or not sums.max() > 0:
            return None, None
        most = int(sums.argmax())
        return self.phases[most], min(1.0, float(sums[most] / max(whole, 1)))

    @cached_property
    def over(self) -> Floats:
        """How far all ranks exceed their role's median: rank by iteration by phase, ns."""
        return self.saved(self.total, self.by_phase)

    def no_time(self) -> Floats:
        """Zeros: rank by iteration by phase. Memory holds only those that are written."""
        # in memory by phase, where sums over phases are quick
        return np.moveaxis(np.zeros((len(self.phases), *self.total.shape)), 0, 2)

    def only(self, amount: Floats, where: Flags) -> Floats:
        """The part of an amount (rank by iteration by phase) of some ranks, or of some cells."""
        kept = self.no_time()
        kept[where] = amount[where]
        return kept

    def saved(self, amount: Floats, weights: Floats) -> Floats:
        """`amount` ns (rank by iteration) spread over the phases.

        Args:
            amount: what is taken out; NaN is nothing.
            weights: how it is spread: rank by iteration by phase, negative ones count as 0.

        Returns:
            rank by iteration by phase, never more than the phase's time.
        """
        savings = self.no_time()
        affected = np.flatnonzero((amount > 0).any(axis=1))
        for at in range(0, len(affected), RANKS_AT_ONCE):
            rows = affected[at : at + RANKS_AT_ONCE]
            spent, parts = np.fmax(self.spent[rows], 0.0), np.fmax(weights[rows], 0.0)
            sums = parts.sum(axis=2)
            even = ~(sums > 0)
            parts[even] = spent[even] + 1e-9
            sums[even] = parts[even].sum(axis=1)
            parts /= sums[:, :, None]
            parts *= np.fmax(amount[rows], 0.0)[:, :, None]
            savings[rows] = np.fmin(parts, spent, out=parts)
        return savings


def excess_of(wide: pl.DataFrame, metric: str) -> Excess:
    """The excess of all ranks over their roles.

    Args:
        wide: rank, role, iteration, `<metric>_ns`, iteration_ns and `<phase>_ns`; perhaps
            host, wait_ns and host_ns.
        metric: `work`, or a phase where work is unknown.
    """
    phases = tuple(PHASES) if metric == "work" else (metric,)
    who = wide.select(pl.col("rank", "role", "^host$")).unique("rank").sort("rank")
    ranks = who["rank"].to_numpy().astype(np.int64)
    names, roles = np.unique(who["role"].to_list(), return_inverse=True)
    known = who["host"] if "host" in who.columns else [None] * len(who)
    hosts = [host or f"\0{rank}" for rank, host in zip(ranks.tolist(), known, strict=True)]
    numbers = wide["iteration"].unique().sort().to_numpy().astype(np.int64)
    cells = np.searchsorted(ranks, wide["rank"].to_numpy()) * len(numbers)
    cells += np.searchsorted(numbers, wide["iteration"].to_numpy())

    def matrix(name: str) -> Floats:
        values = np.full(len(ranks) * len(numbers), np.nan)
        if name in wide.columns:
            values[cells] = wide[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        return values.reshape(len(ranks), len(numbers))

    value, length = matrix(column_of(metric)), matrix("iteration_ns")
    spent = np.moveaxis(np.stack([matrix(column_of(phase)) for phase in phases]), 0, 2)
    own, host = length - matrix("wait_ns"), matrix("host_ns")
    length, usual = usual_of(length, roles), usual_of(value, roles)
    by_phase = _with_rare(spent - usual_of(spent, roles), spent, value - usual, roles)
    one = np.unique(roles, return_index=True)[1]  # a rank of each role
    unit = np.concatenate([_unit(usual[[rank]], length[[rank]]) for rank in one])[roles]
    usual_need = _need(usual_of(host, roles)[one], usual_of(own, roles)[one], length[one])[roles]
    late = np.maximum(own - usual_need, 0.0)
    ahead = np.maximum(np.nan_to_num(value - usual - late), 0.0)
    return Excess(
        metric=metric,
        ranks=ranks,
        numbers=numbers,
        roles=roles,
        hosts=np.unique(hosts, return_inverse=True)[1],
        role_names=(*names.tolist(),),
        phases=phases,
        total=value - usual - ahead,
        by_phase=_less(by_phase, ahead, phases),
        value=value,
        spent=spent,
        length=np.where(length > 0, length, np.nan),
        unit=np.where(unit > 0, unit, np.nan),
        need=_need(host, own, lower_medians(length[one].T).T[roles]),
        usual_need=usual_need,
    )


def _need(host: Floats, own: Floats, length: Floats) -> Floats:
    """What an iteration would take without waits, where the host binds; else NaN.

    A rank launches ahead while it waits, and its device then needs less than its host. A rank that
    waits for nobody needs at least the time of its host. That is the lower decile over the
    iterations; where it is more than 95 % of an iteration, nothing is known of it.

    Args:
        host: the time of hosts, NaN where unknown.
        own: the iteration without waits, NaN where unknown.
        length: the median iteration.
    """
    # in most iterations a host may wait where no call tells, as behind a full queue
    known = np.nan_to_num(host, nan=np.inf)
    least = np.quantile(known, RARE, axis=1, keepdims=True, method="lower")
    return np.where((least > own) & (least <= (1 - MUCH) * length), least, np.nan)


def _less(by_phase: Floats, ahead: Floats, phases: tuple[str, ...]) -> Floats:
    """The excess by phase without `ahead`: first of the phases in which ranks launch."""
    if not ahead.any():
        return by_phase
    launches = np.array([phase != Phase.LOAD for phase in phases])
    over = np.nan_to_num(np.fmax(by_phase, 0.0))
    for some in (launches, ~launches):
        part = np.where(some, over, 0.0)
        sums = part.sum(axis=2)
        taken = np.minimum(ahead, sums)
        by_phase = by_phase - part * (taken / np.where(sums > 0, sums, 1.0))[:, :, None]
        ahead = ahead - taken
    return by_phase


def _with_rare(by_phase: Floats, spent: Floats, total: Floats, roles: Index) -> Floats:
    """The excess by phase; what no other phase explains lies in those that few ranks know.

    Where at most half of a role know a phase, as the load of those that load, nobody knows what is
    usual in it.
    """
    known, rare = np.isfinite(spent), np.zeros(spent.shape, dtype=np.bool_)
    for role in np.unique(roles):
        some = np.flatnonzero(roles == role)
        most = np.isfinite(total[some]).sum(axis=0)[:, None]
        few = some[:, None], *np.nonzero(2 * known[some].sum(axis=0) <= most)
        rare[few] = known[few]
    if not rare.any():
        return by_phase
    rest = np.maximum(total - np.nansum(np.where(rare, 0.0, by_phase), axis=2), 0.0)
    part = np.where(rare, spent, 0.0)
    share = np.minimum(rest / np.maximum(part.sum(axis=2), 1.0), 1.0)
    return np.where(rare, part * share[:, :, None], by_phase)


def usual_of(values: Floats, roles: Index) -> Floats:
    """The lower median of each rank's role, in the row of the rank."""
    different, place = np.unique(roles, return_inverse=True)
    if len(different) == 1:
        return np.broadcast_to(lower_medians(values), values.shape)
    return np.concatenate([lower_medians(values[roles == role]) for role in different])[place]


def _unit(usual: Floats, length: Floats) -> Floats:
    """The median length, plus how far the median rank's work in the iteration is from usual.

    Both medians are of the iterations in which the work is known, if there are any.
    """
    if np.isnan(length).all():
        return length
    known = ~np.isnan(usual) & ~np.isnan(length)
    if not known.any():
        return np.full_like(length, np.nanmedian(length))
    more = np.where(usual > 0, usual - np.median(usual[known]), 0.0)
    return np.asarray(np.median(length[known]) + more)


def lower_medians(values: Floats) -> Floats:
    """The lower medians along the first axis, which is kept; NaN is unknown, as where all are."""
    ordered = np.sort(values, axis=0)  # unknown values come last
    known = np.sum(~np.isnan(values), axis=0, keepdims=True)
    return np.take_along_axis(ordered, np.maximum(known - 1, 0) // 2, axis=0)
