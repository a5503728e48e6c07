"""What a verdict is found from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from rankscope.compare.robust import Floats
from rankscope.compare.verdict import flags
from rankscope.compare.verdict.candidates import (
    Candidate,
    candidate_of,
    event_candidates,
    level_candidates,
)
from rankscope.compare.verdict.decision import Decision, decide
from rankscope.compare.verdict.excess import Excess, Index, excess_of
from rankscope.compare.verdict.healing import (
    Components,
    Prices,
    components_of,
    level_weights,
    slow_excess,
)
from rankscope.compare.verdict.levels import Levels, levels_of
from rankscope.compare.verdict.transfers import SlowTransfers
from rankscope.compare.whatif.replay import Replay


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What is known of a run before its ranks are judged."""

    ranks: int
    iterations: int
    missing_ranks: tuple[int, ...]
    blind_ranks: tuple[int, ...]  # without the collectives that the others have
    metric: str | None  # what can be judged: work, load, or nothing
    roles: int  # kinds of work that the ranks do


@dataclass(frozen=True, eq=False)
class VerdictInputs:
    """All that the rules may look at. What several rules need is computed once, at first use."""

    run: RunSummary
    wide: Callable[[], pl.DataFrame]
    """Gives rank, role, iteration, `<metric>_ns` of the selected iterations; asked once."""
    hosts: dict[int, str | None]
    tables: Callable[[str, Collection[int]], pl.DataFrame | None]
    """Table and iterations → its rows of all ranks; None where the run has no such table."""
    replayed: Callable[[], Replay | None]
    """The run, to be played again; None where that cannot be done."""
    transfers: Callable[[], SlowTransfers | None] = field(default=lambda: None)
    """Collectives that take longer than usual; None where there are none or that is unknown."""

    @cached_property
    def excess(self) -> Excess:
        """The excess of every rank over its role."""
        assert self.run.metric is not None, "the preconditions come first"
        return excess_of(self.wide(), self.run.metric)

    @cached_property
    def levels(self) -> Levels:
        """What is usual for every rank, and what is not."""
        return levels_of(self.excess)

    @cached_property
    def level_sets(self) -> list[Candidate]:
        """Sets of ranks that are usually slow, each with the one before it."""
        return level_candidates(self.excess, self.levels, self.hosts)

    @cached_property
    def event_sets(self) -> list[Candidate]:
        """Hosts and ranks that have more events than chance gives, most costly first."""
        return event_candidates(self.excess, self.levels, self.hosts)

    @cached_property
    def components(self) -> Components:
        """The parts of the excess."""
        slow = self.transfers()
        return components_of(self.excess, None if slow is None else slow.saved)

    @property
    def level(self) -> Floats:
        """The level, as `Components` have theirs; not kept, for it is priced once."""
        return self.excess.saved(self.levels.usual, self.level_weights)

    @property
    def events(self) -> Floats:
        """The events, as `Components` have theirs; not kept, for they are priced once."""
        return self.excess.saved(self.levels.events, self.excess.by_phase)

    @cached_property
    def level_weights(self) -> Floats:
        """How the level is spread over the phases."""
        return level_weights(self.excess, self.levels)

    @cached_property
    def prices(self) -> Prices:
        """What healing saves."""
        return Prices(self.excess, self.replayed)

    @cached_property
    def flags(self) -> pl.DataFrame:
        """The columns of `flags.flagged`."""
        return flags.flagged(self.excess, self.levels, self.level_sets)

    @cached_property
    def numbers(self) -> list[int]:
        """The selected iterations, ascending."""
        return [int(number) for number in self.excess.numbers]

    @cached_property
    def role_of(self) -> dict[int, str]:
        """rank → role."""
        excess = self.excess
        return {
            int(rank): excess.role_names[role]
            for rank, role in zip(excess.ranks, excess.roles, strict=True)
        }

    @property
    def total_ns(self) -> int:
        """The time of the selected iterations: the sum of the longest role's median iterations."""
        return self.excess.total_ns

    @cached_property
    def decision(self) -> Decision:
        """What costs most, and who is named for it."""
        return decide(self)

    def level_part(self, candidate: Candidate, members: Index) -> Candidate:
        """Some ranks of a set of usually slow ranks, by their places."""
        some = np.zeros_like(candidate.members)
        some[members] = True
        return candidate_of(some, candidate.where & some[:, None], self.excess, self.hosts)

    def healed(self, candidate: Candidate, *, level: bool) -> Floats:
        """What healing a candidate takes out.

        Of the level also what lies beyond the noise around it: a spell is not equally slow all the
        time.
        """
        if not level:
            rest = np.where(candidate.where, self.excess.total - self.levels.usual, 0.0)
            return self.excess.saved(rest, self.excess.by_phase)
        amount = np.where(candidate.where, slow_excess(self.excess, self.levels), 0.0)
        return self.excess.saved(amount, self.level_weights)

    def rows_of(self, candidate: Candidate) -> pl.DataFrame:
        """The rows of `flags` of a candidate: its ranks in the iterations in which it is slow."""
        rank, number = np.nonzero(candidate.where)
        wanted = pl.DataFrame(
            {"rank": self.excess.ranks[rank], "iteration": self.excess.numbers[number]}
        )
        return self.flags.join(wanted, on=["rank", "iteration"], how="semi")
