"""What is true of a whole run: its noise, which ranks are slow, and when.

These records hold no arrays: a stored answer is read without what computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rankscope.judge.levels import BY_NATURE, MUCH, NOISE
from rankscope.model.kinds import VerdictKind

if TYPE_CHECKING:
    from rankscope.judge.excess import Excess
    from rankscope.model.intervals import Flags


class Pattern(Struct, frozen=True):
    """When ranks are slow."""

    kind: VerdictKind  # PERSISTENT, PERIODIC or TRANSIENT
    iterations: tuple[int, ...]  # in which they are slow, ascending
    period: int | None = None  # k where they are slow in every k-th iteration
    since: int | None = None  # the iteration from which on they are slow
    spells: tuple[tuple[int, int], ...] = ()  # first and last iteration of each slow spell
    always: bool = False

    @property
    def has_one_reason(self) -> bool:
        """Whether they are slow since an iteration, in spells, or every k-th time."""
        return bool(self.since is not None or self.spells or self.period)

    def within(self, numbers: Sequence[int]) -> Pattern:
        """The pattern within some iterations (ascending): a range does not change the story."""
        selected = {*numbers}
        iterations = tuple(
            numbers if self.always else (n for n in self.iterations if n in selected)
        )
        since = self.since if self.since is not None and self.since > numbers[0] else None
        spells = tuple(
            (max(first, numbers[0]), min(last, numbers[-1]))
            for first, last in self.spells
            if first <= numbers[-1] and last >= numbers[0]
        )
        spells = () if len(iterations) == len(numbers) else spells
        kind, period = self.kind, self.period
        if kind is VerdictKind.PERIODIC and len(iterations) < 2:
            kind, period = VerdictKind.TRANSIENT, None
        return replace(
            self, kind=kind, iterations=iterations, period=period, since=since, spells=spells
        )


class Slow(Struct, frozen=True):
    """Ranks that are slow, and when.

    `chance`: the probability that a run without slow ranks looks like this. None for facts: an
    event that has happened needs no test, but it says nothing about other iterations.
    """

    ranks: tuple[int, ...]
    pattern: Pattern
    chance: float | None

    def cells(self, excess: Excess) -> Flags:
        """Where they are slow, as a matrix of rank by iteration."""
        return excess.cells(self.ranks, self.pattern.iterations)


class Story(Struct, frozen=True):
    """What holds for every range of a run.

    `noise`: a robust deviation of a rank around its own median, as a share of the iteration.
    `slow`: the ranks that are slow beyond chance, then those with facts.
    `lead`: the slowest of the other ranks, and the probability that chance makes some ranks that
    slow, which is not small. None where no excess is positive. `count`: iterations.
    `fast`: ranks that are fast beyond chance, if no rank is slow beyond it: the others may then be
    the slow ones.
    `loaders_bind`: the loaders of all ranks are the bottleneck, so loading blames nobody.
    `second`: the slowest beside a lead that may be slow.
    """

    noise: float
    slow: tuple[Slow, ...]
    lead: Slow | None
    count: int
    fast: Slow | None = None
    loaders_bind: bool = False
    second: Slow | None = None


def differing(noise: float) -> float:
    """The share of an iteration up to which ranks differ by noise or by nature."""
    return max(NOISE * noise, BY_NATURE)


def event_of(noise: float) -> float:
    """The share of an iteration from which on an excess is an event."""
    return max(NOISE * noise, MUCH)
