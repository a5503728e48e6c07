"""Streams, events and collectives: when every operation starts and ends.

No two operations compete for anything in order of time: streams are queues, events are edges, and
a collective ends once all its members run. So times follow from the order of enqueueing alone, and
operations are resolved as soon as their predecessors are, whichever rank is simulated first. The
result is that of a simulation ordered by time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Op:
    """One operation of a device stream, or a blocking collective of a host (`stream` < 0).

    Times are true ns since the job's origin; `end` < 0 means not yet known.
    """

    rank: int
    iteration: int
    phase: str
    kind: str  # kernel | copy | collective
    name: str
    stream: int
    api_start: int
    api_end: int
    correlation: int
    duration: int = 0
    nbytes: int = 0
    scale: float = 1.0
    graph_node: int | None = None
    recorded: bool = True
    background: bool = False
    collective: Collective | None = None
    earliest: int = 0
    pending: int = 0
    start: int = -1
    end: int = -1
    awaited: bool = False
    followers: list[tuple[Op, int | None]] = field(default_factory=list)
    rivals: tuple[Op, ...] = ()
    slowdown: float = 1.0

    def after(self, other: Op, gap: int) -> None:
        """Let this operation start no sooner than `gap` after another one ends."""
        if other.end >= 0:
            self.earliest = max(self.earliest, other.end + gap)
        else:
            other.followers.append((self, gap))
            self.pending += 1

    def beside(self, rivals: tuple[Op, ...], slowdown: float) -> None:
        """Let this operation run slower while any of the others does.

        They may not depend on it; their times must be known before its own end is.
        """
        self.rivals, self.slowdown = rivals, slowdown
        for other in rivals:
            if other.end < 0:
                other.followers.append((self, None))
                self.pending += 1

    def needed(self) -> int:
        """How long this operation runs from its start, its rivals' times being known."""
        at, left = float(self.start), float(self.duration)
        for start, end in sorted((r.start, r.end) for r in self.rivals if r.end > self.start):
            alone = min(max(0, start - at), left)
            at, left = at + alone, left - alone
            shared = min(max(0, end - at), left * self.slowdown)
            at, left = at + shared, left - shared / self.slowdown
        return round(at + left) - self.start


@dataclass(slots=True, eq=False)
class Collective:
    """One instance of a communication call: what its members share."""

    communicator: str
    op: str
    purpose: str  # gradient | activation | parameters | loss | buffers
    iteration: int
    ordinal: int
    nbytes: int
    members: tuple[int, ...]
    transfer_ns: int
    skews_ns: tuple[int, ...]
    ops: dict[int, Op] = field(default_factory=dict)


class Engine:
    """Resolves operations; `woken` collects the ranks whose awaited operation got its times."""

    def __init__(self, seed: int) -> None:
        self.woken: list[int] = []
        self._seed = seed
        self._open: dict[tuple[str, str, int, int], Collective] = {}

    def collective(
        self,
        communicator: str,
        op: str,
        *,
        purpose: str,
        iteration: int,
        ordinal: int,
        nbytes: int,
        members: tuple[int, ...],
        transfer: tuple[int, int],
        factor: float,
        skew: int,
    ) -> Collective:
        """The instance that a rank joins, created by whoever comes first.

        Its random numbers depend on its identity only, so plants elsewhere do not change them.
        """
        key = (communicator, op, iteration, ordinal)
        found = self._open.get(key)
        if found is None:
            rng = random.Random(f"{self._seed}/{communicator}/{op}/{iteration}/{ordinal}")
            found = Collective(
                communicator,
                op,
                purpose,
                iteration,
                ordinal,
                nbytes,
                members,
                round(factor * rng.randint(*transfer)),
                tuple(rng.randint(0, skew) for _ in members),
            )
            self._open[key] = found
        return found

    def take_collectives(self) -> list[Collective]:
        """Instances since the last call; all of them must be complete."""
        done = list(self._open.values())
        self._open.clear()
        for one in done:
            if len(one.ops) != len(one.members):
                missing = sorted(set(one.members) - set(one.ops))
                raise RuntimeError(f"{one.op} on {one.communicator}: ranks {missing} never came")
        return done

    def submit(self, op: Op) -> None:
        """Enqueue an operation whose predecessors have been named."""
        if op.pending == 0:
            self._resolve(op)

    def _resolve(self, first: Op) -> None:
        ready = [first]
        while ready:
            op = ready.pop()
            op.start = op.earliest
            if op.collective is None:
                needed = op.needed() if op.rivals else op.duration
                self._finish(op, op.start + needed, ready)
                continue
            shared = op.collective
            shared.ops[op.rank] = op
            if shared.op == "rooted":
                self._pass_on(shared, ready)
            elif len(shared.ops) == len(shared.members):
                # The last member starts the transfer; nobody leaves before it is through.
                done = max(one.start for one in shared.ops.values()) + shared.transfer_ns
                for member, skew in zip(shared.members, shared.skews_ns, strict=True):
                    self._finish(shared.ops[member], done + skew, ready)

    def _pass_on(self, shared: Collective, ready: list[Op]) -> None:
        """A broadcast from member to member: each leaves once it has the data and passed it on."""
        reached = 0
        for member in shared.members:
            op = shared.ops.get(member)
            if op is None:
                return
            if op.end < 0:
                self._finish(op, max(op.start, reached) + shared.transfer_ns, ready)
            reached = op.end

    def _finish(self, op: Op, end: int, ready: list[Op]) -> None:
        op.end = end
        if op.awaited:
            self.woken.append(op.rank)
        for follower, gap in op.followers:
            if gap is not None:
                follower.earliest = max(follower.earliest, end + gap)
            follower.pending -= 1
            if follower.pending == 0:
                ready.append(follower)
        op.followers.clear()
