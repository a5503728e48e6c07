"""Work that healing takes out of a run, and the time that this saves. See METHOD.md#verdict."""

from collections.abc import Container, Iterable
from functools import cached_property

import numpy as np

from rankscope.judge.excess import Excess, Flags
from rankscope.judge.replay import Healing, Replay
from rankscope.judge.transfers import SlowTransfers
from rankscope.model.kinds import COMPUTING_PHASES
from rankscope.util.robust import Floats, lower_medians

LEAST_PLAYED, BLOCK = 60, 10
"""Iterations of a large run that are played at least, and those that follow each other in it."""


class Prices:
    """What healing saves, in ns.

    By replay where the run can be replayed; of a sample of iterations, the gain is scaled by what
    the slowest rank of each iteration would be faster, in all iterations and in those. Without a
    replay, the gain is at most that.

    Attributes:
        slow: collectives that take longer than usual; None where that is unknown, or none does.
        transfer: of each collective, what it takes beyond the usual.
    """

    def __init__(
        self,
        excess: Excess,
        replay: Replay | None = None,
        slow: SlowTransfers | None = None,
        *,
        phases_recur: bool = False,
    ) -> None:
        """Prices of a run.

        Args:
            excess: of all ranks.
            replay: plays the run; None where that cannot be done.
            slow: collectives that take longer than usual.
            phases_recur: whether an iteration has each phase several times.
        """
        self._excess = excess
        self._replay = replay
        self.phases_recur = phases_recur
        self.slow = slow
        self.transfer = None if slow is None else slow.saved

    @cached_property
    def role(self) -> Floats | None:
        """What brings every role to the median role: rank by iteration by phase, ns.

        None where all ranks have one role.
        """
        excess = self._excess
        if len(excess.role_names) < 2:
            return None
        each = (excess.spent[excess.roles == role] for role in range(len(excess.role_names)))
        medians = np.stack([lower_medians(spent, 0)[0] for spent in each])
        over = medians - lower_medians(medians, 0)
        return excess.saved(np.nansum(over, axis=2)[excess.roles], over[excess.roles])

    @cached_property
    def everything(self) -> Floats:
        """What brings every rank to its role's median, and every role to the median role."""
        own = self._excess.saved(self._excess.total, self._excess.by_phase)
        if self.role is None:
            return own
        return np.asarray(np.fmin(own + self.role, np.fmax(self._excess.spent, 0.0)))

    @property
    def is_bound(self) -> bool:
        """Whether a gain is at most what is given: not replayed, or unplaced."""
        return self._replay is None or self.is_unplaced

    @property
    def is_unplaced(self) -> bool:
        """Whether ranks meet several times in an iteration, and work between calls is unknown.

        No phase of it is known then, or one only on other ranks, or phases recur.
        """
        replay, excess = self._replay, self._excess
        if replay is None or replay.size <= replay.rows.height:
            return False
        if self.phases_recur:
            return True
        working = [phase in COMPUTING_PHASES for phase in excess.phases]
        known = ~np.isnan(excess.spent[:, :, working]).all(axis=1)
        return bool((known < known.any(axis=0)).any() or not known.any())

    @property
    def played(self) -> int:
        """In how many of the iterations the replay is played; 0 where there is none."""
        replay = self._replay
        return 0 if replay is None else int(np.isin(self._excess.numbers, replay.iterations).sum())

    def of(self, healed: Iterable[Floats], *, with_transfers: Container[int] = ()) -> list[int]:
        """The gain of each healing.

        Args:
            healed: rank by iteration by phase in ns; each is needed only until the next is taken.
            with_transfers: the places of those with which all transfers become as usual.
        """
        replay, excess = self._replay, self._excess
        if replay is None:
            return [int(self._faster(each).sum()) for each in healed]
        played = np.isin(excess.numbers, replay.iterations)
        changes, scales, least = [], [], []
        for place, each in enumerate(healed):
            work = replay.placed(excess.ranks, excess.numbers, excess.phases, each)
            changes.append(Healing(work, self.transfer if place in with_transfers else None))
            scales.append(1.0 if played.all() else self._scale(each, played))
            least.append(self.most(each, 0) if self.phases_recur else 0)
        gains = replay.gains_ns(changes, excess.numbers[played].tolist())
        found = (round(gain * scale) for gain, scale in zip(gains, scales, strict=True))
        return list(map(max, found, least))

    def most(self, healed: Floats, gain_ns: int) -> int:
        """The gain of a healing; where it is a bound, what it is at most.

        Ranks may wait for each other many times in an iteration. No path through the run gets
        shorter by more than what is taken out of a rank of each role (of several, out of the one
        that is healed most in each phase): a pipeline passes through every stage in turn.

        Args:
            healed: rank by iteration by phase in ns.
            gain_ns: as `of` gives it.
        """
        if not self.is_bound:
            return gain_ns
        taken, roles = np.nan_to_num(healed), self._excess.roles
        path = sum(taken[roles == role].max(axis=0).sum() for role in np.unique(roles))
        return max(gain_ns, round(float(path)))

    def _faster(self, healed: Floats) -> Floats:
        """How much faster the slowest rank of each iteration would be."""
        value = np.nan_to_num(self._excess.value)
        after = value - healed.sum(axis=2)
        return np.asarray(value.max(axis=0) - after.max(axis=0))

    def _scale(self, healed: Floats, played: Flags) -> float:
        """Gain in all iterations / gain in those that were played."""
        faster = self._faster(healed)
        here = float(faster[played].sum())
        return float(faster.sum()) / here if here > 0 else len(played) / float(played.sum())


def sampled(excess: Excess, most: int) -> list[int]:
    """At most about `most` iterations to play: blocks spread evenly, and those with most excess.

    Args:
        excess: of all ranks.
        most: how many; at least `LEAST_PLAYED`.
    """
    count = len(excess.numbers)
    most = max(most, LEAST_PLAYED)
    if count <= most:
        return list(map(int, excess.numbers))
    blocks = max(most // (2 * BLOCK), 1)
    starts = np.linspace(0, count - BLOCK, blocks).astype(np.int64)
    chosen = np.zeros(count, dtype=np.bool_)
    for start in starts:
        chosen[start : start + BLOCK] = True
    chosen[np.argsort(-excess.share.max(axis=0), kind="stable")[: most // 2]] = True
    return list(map(int, excess.numbers[chosen]))


def only(healed: Floats, some: Flags) -> Floats:
    """A healing of some ranks, or of some cells of rank by iteration."""
    return np.where(some.reshape(*some.shape, *[1] * (3 - some.ndim)), healed, 0.0)
