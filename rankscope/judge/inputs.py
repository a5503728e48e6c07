"""The input of a verdict, before anything is priced."""

from collections.abc import Callable
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from rankscope.judge.causes.context import CauseContext, Tables
from rankscope.judge.causes.registry import compared_with, context_of
from rankscope.judge.claims import Slow, Story
from rankscope.judge.excess import Excess, lower_medians
from rankscope.judge.flags import flagged
from rankscope.judge.levels import MOST
from rankscope.judge.story import story_of
from rankscope.model.intervals import Flags, Floats
from rankscope.sources.recorders import Recorder


class Began(NamedTuple):
    """The rank that began the first recorded iteration last."""

    rank: int
    waited_ns: int  # what the median rank waits in it


class RunSummary(Struct, frozen=True):
    """What is known of a run before its ranks are judged."""

    ranks: int
    iterations: int
    missing_ranks: tuple[int, ...]
    blind_ranks: tuple[int, ...]  # without the collectives that the others have
    metric: str | None  # what can be judged: work, load, or nothing
    recorder: Recorder = Recorder.NSYS  # for advice
    host_asked: bool = False  # the user asked for the host clock
    has_device: bool = False  # every rank has device work in its report
    own_roles: bool = False  # every rank has a role of its own; they are compared as one role
    of_captures: bool = False  # each capture is one iteration
    ends_alone: bool = False  # only the ends of iterations are recorded
    far_ranks: tuple[int, ...] = ()  # the time of day of their hosts is far from that of the others
    world_size: int | None = None  # ranks of the job, as its environment says
    keep_time: bool = True  # no clock drifts like those of `far_ranks` if all are of one run
    began: Began | None = None  # None: together, or it is not selected


class VerdictInputs(Struct, frozen=True, eq=False, dict=True):
    """All that the rules may read. What several rules need is computed once, at first use."""

    run: RunSummary
    known: Excess | None
    """The excess of every rank over its role; None where no metric can be judged."""
    spent_ns: int
    """The time of the selected iterations, the mean over ranks."""
    role_of: dict[int, str]
    """rank → role."""
    hosts: dict[int, str | None]
    tables: Callable[[tuple[int, ...]], Tables]
    """The tables of some ranks."""
    named_work: Callable[[], pl.DataFrame | None] = field(default=lambda: None)
    """rank, kind, name, total_ns and count of ACTIVITIES, summed over the selected iterations."""
    stages: Callable[[], frozenset[tuple[int, ...]]] = field(default=frozenset)
    """Ranks of a pipeline that may hold a part of the model each, where roles are not given."""
    exposed_transfer_ns: int | None = None
    """How long transfers hold up the median rank, over the selected iterations; None: unknown."""
    unmatched_ns: int | None = None
    """The same for calls that were not matched across ranks: their transfers and waits."""
    least_held_up_ns: int | None = None
    """How long transfers and waits hold up the rank that waits least in each of the iterations.
    None where it is unknown, or every rank has a report."""
    held_up: pl.DataFrame | None = None
    """rank, wait_ns, unmatched_ns: how long waits in matched calls, and calls that were not
    matched, hold up each rank, over the selected iterations; None: unknown. The latter is less by
    transfers behind work, which those that share calls have in common."""
    spans: Floats | None = None
    """Own work of each rank between collectives (`waits.own_spans`), where iterations are few."""
    collectives: Callable[[], pl.DataFrame | None] = field(default=lambda: None)
    """The rows of `collective_rows.by_collective`, with exposed_ns, of some selected iterations."""
    outside: pl.DataFrame | None = None
    """rank, role, outside_ns: work before the first and after the last collective of a capture,
    where that is not judged."""
    whole: Story | None = None
    """The story of the whole run, where a part of it is selected."""

    @property
    def excess(self) -> Excess:
        """The excess of every rank over its role."""
        assert self.known is not None, "the preconditions come first"
        return self.known

    @cached_property
    def story(self) -> Story:
        """The story of the whole run."""
        return self.whole or story_of(self.excess, self.spans)

    @cached_property
    def claims(self) -> list[Slow]:
        """Who is slow in the selected iterations, and when, by the story of the run."""
        parts = (
            replace(each, pattern=each.pattern.within(self.numbers)) for each in self.story.slow
        )
        return [each for each in parts if each.pattern.iterations]

    def healed(self, claim: Slow) -> Floats:
        """What healing a claim takes out: rank by iteration by phase, ns.

        A repaired rank varies like its peers, which have events as well: of its largest excess that
        of the median peer stays, of its second largest the second largest, and so on.
        """
        excess, over = self.excess, self.excess.over
        named = np.isin(excess.ranks, claim.ranks)
        when = np.isin(excess.numbers, claim.pattern.iterations)
        healed = excess.no_time()
        for role in np.unique(excess.roles[named]).tolist():
            own = np.ix_((excess.roles == role) & named, when)
            amount = over[own].sum(axis=2)
            usual = self._habit(claim, role)[amount.argsort(axis=1).argsort(axis=1)]
            kept = np.divide(usual, amount, out=np.zeros_like(amount), where=amount > 0)
            healed[own] = over[own] * (1.0 - np.fmin(kept, 1.0))[:, :, None]
        return healed

    @cached_property
    def _habit(self) -> Callable[[Slow, int], Floats]:
        """The excess of the median peer of a claim's ranks in a role, ascending, ns."""

        @cache
        def habit(claim: Slow, role: int) -> Floats:
            peers = (self.excess.roles == role) & ~np.isin(self.excess.ranks, claim.ranks)
            when = np.isin(self.excess.numbers, claim.pattern.iterations)
            amounts = np.sort(self.excess.over.sum(axis=2)[np.ix_(peers, when)], axis=1)
            return lower_medians(amounts)[0] if peers.any() else np.zeros(when.sum())

        return habit

    @cached_property
    def flags(self) -> pl.DataFrame:
        """The columns of `flags.flagged`."""
        return flagged(self.excess, self.story)

    @cached_property
    def numbers(self) -> list[int]:
        """The selected iterations, ascending."""
        return [int(number) for number in self.excess.numbers]

    @property
    def total_ns(self) -> int:
        """The time of the selected iterations: the sum of the longest role's median iterations."""
        return int(np.nansum(self.excess.lengths))

    def extent(self, claim: Slow) -> tuple[Floats, str | None, float | None]:
        """The excess of each rank in each iteration of a claim, ns; its main phase, and its share.

        As `Excess.main_phase` gives them. Iterations in which that phase is unknown are left out.
        """
        cells, by_phase, totals = self._amounts(claim)
        phase = self.excess.main_phase(by_phase.sum(axis=0), totals.sum(), cells)
        return self.excess.total[cells], *phase

    def by_phase(self, claim: Slow) -> list[tuple[str | None, Slow]]:
        """The ranks of a claim by the phase that they are slow in: first its main phase.

        Where most of a rank's excess is in no single phase, that is the main phase of all. Of
        several phases, ranks that are not slow in the selected iterations are in none.
        """
        _, main, _ = self.extent(claim)
        if main is None:
            return [(None, claim)]
        _, by_phase, totals = self._amounts(claim)
        first = self.excess.phases.index(main)
        own = np.where(by_phase.max(axis=1) >= MOST * totals, by_phase.argmax(axis=1), first)
        own[totals <= 0] = -1
        phases = [first, *sorted({*own.tolist()} - {first, -1})]
        parts = [(phase, self.excess.ranks[own == phase].tolist()) for phase in phases]
        several = [
            (self.excess.phases[phase], replace(claim, ranks=tuple(ranks)))
            for phase, ranks in parts
            if ranks
        ]
        return several if len(several) > 1 else [(main, claim)]

    def _amounts(self, claim: Slow) -> tuple[Flags, Floats, Floats]:
        """Cells of a claim, and what each rank exceeds the median by in them: by phase, in all.

        The excess of a rank in a phase is at most its excess in all. Where it needs less than the
        median, that takes nothing from the excess of other ranks.
        """
        excess = self.excess
        cells = claim.cells(excess) & ~np.isnan(excess.total)
        most = int(np.nansum(excess.by_phase[cells], axis=0).argmax())
        known = cells & ~np.isnan(excess.spent[:, :, most])
        cells = known if known.any() else cells
        rows = np.flatnonzero(cells.any(axis=1))
        by_phase, totals = np.zeros((len(cells), len(excess.phases))), np.zeros(len(cells))
        totals[rows] = np.where(cells[rows], excess.total[rows], 0.0).sum(axis=1)
        own = np.where(cells[rows][:, :, None], excess.by_phase[rows], 0.0)
        by_phase[rows] = np.clip(np.nansum(own, axis=1), 0.0, np.maximum(totals, 0.0)[rows, None])
        return cells, by_phase, totals

    def compared(self, claim: Slow) -> tuple[Tables, dict[int, str]]:
        """The tables and roles of a claim's ranks and of those that they are compared with."""
        roles = compared_with(self.role_of, claim.ranks)
        return self.tables((*roles,)), roles

    def context(self, claim: Slow) -> CauseContext:
        """The input of the detectors, which find why the ranks of a claim are slow."""
        excess, (_, cause, _) = self.excess, self.extent(claim)
        row, column = np.nonzero(claim.cells(excess) & ~np.isnan(excess.total))
        amounts = {"excess_ns": excess.total, f"{cause}_excess": excess.within(cause).total}
        amounts = {name: np.nan_to_num(each[row, column]).round() for name, each in amounts.items()}
        places = {"rank": excess.ranks[row], "iteration": excess.numbers[column]}
        rows = pl.DataFrame(places | amounts).cast(pl.Int64)
        return context_of(*self.compared(claim), rows, cause)
