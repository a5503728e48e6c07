"""Who is slow in the selected iterations, and when. See METHOD.md#verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rankscope.judge.cells import places_of, where_of
from rankscope.judge.excess import Excess, Flags
from rankscope.judge.hosts import whole_hosts
from rankscope.judge.story import Story, facts_of
from rankscope.judge.timing import Pattern
from rankscope.model.kinds import Phase


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """Ranks, and when they are slow in the selected iterations.

    `where`: rank by iteration. `chance` and `for_same_work`: as in `Slow`.
    """

    where: Flags
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    pattern: Pattern
    chance: float | None
    for_same_work: float | None = None

    @property
    def members(self) -> Flags:
        """Which of all ranks are meant."""
        return np.asarray(self.where.any(axis=1))


def claims_of(excess: Excess, story: Story, hosts: dict[int, str | None]) -> list[Claim]:
    """Who is slow by the story of the run, then who has further events in these iterations.

    Args:
        excess: of the selected iterations.
        story: of the whole run.
        hosts: rank → host.
    """
    numbers = excess.numbers.tolist()
    known = []
    for each in story.slow:
        pattern = each.pattern.within(numbers)
        if pattern.iterations:
            known.append(replace(each, pattern=pattern))
    told = excess.without(Phase.LOAD) if story.loaders_bind else excess
    facts = facts_of(told, story.noise, known, hosts)
    return [
        Claim(
            where_of(excess, places_of(excess, each.ranks), each.pattern.iterations),
            each.ranks,
            whole_hosts(each.ranks, hosts),
            each.pattern,
            each.chance,
            each.for_same_work,
        )
        for each in (*known, *facts)
    ]
