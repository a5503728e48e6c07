"""Work that healing takes out of a run, and the time that this saves. See METHOD.md#verdict."""

import math
from collections.abc import Iterable
from functools import cached_property
from itertools import repeat

import numpy as np

from rankscope.judge.excess import Excess, lower_medians
from rankscope.judge.levels import MOST, MUCH
from rankscope.judge.replay import Healing, Replay
from rankscope.judge.transfers import SlowTransfers
from rankscope.model.intervals import Flags, Floats

LEAST_PLAYED = 40
"""Fewest iterations of a large run that are played."""


class Prices:
    """What healing saves, in ns.

    A run that can be replayed is priced by replay. If only a sample of iterations is played, the
    gain is scaled in proportion to how much faster the slowest rank of each iteration would be.
    Without a replay, that is an upper bound of the gain.

    Attributes:
        role: the healing that brings every role to the median role: rank by iteration by phase,
            ns; None where all ranks have one role.
        everything: that which brings ranks to their role's median as well.
        slow: collectives that take longer than usual; None where that is unknown, or none does.
        transfer: transfer time beyond the usual, ns by instance of a collective.
    """

    def __init__(
        self,
        excess: Excess,
        replay: Replay | None = None,
        slow: SlowTransfers | None = None,
    ) -> None:
        self._excess = excess
        self._replay = replay
        self.slow = slow
        self.transfer = None if slow is None else slow.saved
        self.role, self.everything = None, excess.over
        if len(roles := range(len(excess.role_names))) > 1:
            phases, work = (
                np.stack([lower_medians(each[excess.roles == role])[0] for role in roles])
                for each in (excess.spent, excess.value)
            )
            over, more = phases - lower_medians(phases), work - lower_medians(work)
            self.role = excess.saved(np.nan_to_num(more)[excess.roles], over[excess.roles])
            self.everything = np.fmin(excess.over + self.role, np.fmax(excess.spent, 0.0))

    @cached_property
    def why_bound(self) -> str | None:
        """Why gains are upper bounds, in words; None: they are exact.

        If ranks meet several times in an iteration, what they do in between must be compared.
        """
        replay, excess = self._replay, self._excess
        if replay is None:
            return "the run cannot be replayed"
        if replay.unsure_ns >= MUCH * np.nansum(excess.lengths[self.played]):
            return "ranks that broadcast or send may also wait for earlier calls of others"
        once = replay.size <= replay.rows.height
        if not once and replay.compared.mean() < MOST:
            return "ranks do not call collectives equally often"
        return None

    @property
    def played(self) -> Flags:
        """Which of the iterations are replayed: none without a replay."""
        played = () if self._replay is None else self._replay.iterations
        return np.isin(self._excess.numbers, played)

    def of(self, healed: Iterable[Floats], transfers: Iterable[bool] = repeat(False)) -> list[int]:
        """The gain of each healing.

        Args:
            healed: rank by iteration by phase in ns; each is needed only until the next is taken.
            transfers: whether each also brings all transfers to the usual.
        """
        replay, excess = self._replay, self._excess
        if replay is None:
            pairs = zip(healed, transfers, strict=False)
            return [
                int((self._faster(each.sum(axis=2)) + self._sooner * with_).sum())
                for each, with_ in pairs
            ]
        played = self.played
        changes, scales, most = [], [], []
        for each, usual in zip(healed, transfers, strict=False):
            amount = each.sum(axis=2)
            work = replay.placed(excess.ranks, excess.numbers, amount)
            changes.append(Healing(work, self.transfer if usual else None))
            scales.append(1.0 if played.all() else self._scale(amount, usual, played))
            most.append(self.above_hosts(amount, usual))
        gains = replay.gains_ns(changes, excess.numbers[played].tolist())
        scaled = (round(gain * scale) for gain, scale in zip(gains, scales, strict=True))
        return [int(each) for each in map(min, scaled, most)]

    def above_hosts(self, amount: Floats, transfers: bool = False) -> float:
        """What healed iterations exceed the need of the slowest host or device by, ns.

        While a rank waits, its host launches ahead, and its device needs less than without waits.
        Hosts of healed ranks need what is usual. Infinite where all hosts need less than devices.

        Args:
            amount: what is healed: rank by iteration, ns.
            transfers: whether transfers are healed as well, in any iteration.
        """
        excess = self._excess
        if not np.isfinite(excess.need).any():
            return math.inf
        when = np.asarray(amount.any(axis=0) | transfers)
        is_healed = np.asarray(amount.any(axis=1))
        needs = np.where(is_healed[:, None], excess.usual_need, excess.need)
        host = np.fmax.reduce(needs, axis=0)[when]
        device = np.fmax.reduce(excess.value - amount, axis=0)[when]
        if not (host > device).any():
            return math.inf
        left = excess.lengths[when] - np.fmax(host, device)
        return float(np.fmax(left, 0.0).sum())

    def most(self, healed: Floats, gain_ns: int) -> int:
        """The gain of a healing, or its upper bound where gains are bounds.

        Ranks may wait for each other many times in an iteration. A path through the run may pass
        through every role, as through the stages of a pipeline. In each phase of a role it gets
        shorter by no more than what is taken out of the rank that is healed most, and in all by no
        more than the iteration.

        Args:
            healed: rank by iteration by phase in ns.
            gain_ns: as `of` gives it.
        """
        if self.why_bound is None:
            return gain_ns
        excess = self._excess
        of_roles = (healed[excess.roles == role] for role in np.unique(excess.roles))
        path = sum(np.nansum(of_role.max(axis=0), axis=1) for of_role in of_roles)
        return max(gain_ns, round(float(np.fmin(path, excess.lengths).sum())))

    def _faster(self, amount: Floats) -> Floats:
        """How much faster the slowest rank of each iteration would be without `amount`."""
        value = np.nan_to_num(self._excess.value)
        return np.asarray(value.max(axis=0) - (value - amount).max(axis=0))

    @cached_property
    def _sooner(self) -> Floats:
        """The most that usual transfers save in each iteration, ns, where none is replayed.

        No iteration gets shorter than the work of any rank.
        """
        excess = self._excess
        if self.slow is None:
            return np.zeros(len(excess.numbers))
        work = np.nan_to_num(excess.value).max(axis=0)
        idle = np.nan_to_num(excess.lengths) - work
        return np.asarray(np.clip(idle, 0.0, self.slow.most))

    def _scale(self, amount: Floats, transfers: bool, played: Flags) -> float:
        """Gain in all iterations / gain in those that were played."""
        faster = self._faster(amount)
        if transfers and self.slow is not None:
            faster += self.slow.most
        faster = faster if faster[played].sum() > 0 else np.ones(len(played))
        return float(faster.sum() / faster[played].sum())


def iterations_to_play(excess: Excess, most: int) -> tuple[list[int], list[int]]:
    """At most `most` iterations: half of them spread evenly, and those with most excess.

    Args:
        excess: of all ranks.
        most: how many; at least `LEAST_PLAYED`.

    Returns:
        These iterations, and those that are spread: they stand for all.
    """
    numbers, most = excess.numbers, max(most, LEAST_PLAYED)
    if len(numbers) <= most:
        return numbers.tolist(), numbers.tolist()
    spread = np.linspace(0, len(numbers) - 1, most - most // 2).astype(np.int64)
    costly = np.argsort(-excess.share.max(axis=0), kind="stable")[: most // 2]
    return numbers[np.union1d(spread, costly)].tolist(), numbers[spread].tolist()
