"""Plays all ranks of a job against each other, event by event.

A host runs ahead of its device until a launch queue is full or it synchronises. A stream runs its
operations in order. A collective starts moving when it is at the head of the stream of its last
member, and ends on all members together. Kernels are slower while a collective is resident on
their device, whether it waits or moves. Times are true ns since the job's origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any

from tests.jobs.program import Code, Instruction
from tests.jobs.state import UNKNOWN, Collective, Costs, Exchange, Op, Played, Rank, Stream

LAUNCH, LAUNCH_NCCL = "cudaLaunchKernel_v7000", "cudaLaunchKernelExC_v11060"
COPY = "cudaMemcpyAsync_v3020"
RECORD, WAIT = "cudaEventRecordWithFlags_v11010", "cudaStreamWaitEvent_v3020"
SYNC_STREAM, SYNC_DEVICE = "cudaStreamSynchronize_v3020", "cudaDeviceSynchronize_v3020"
SYNC_EVENT = "cudaEventSynchronize_v3020"

Transfers = Callable[[str, str, int, int, int], tuple[int, dict[int, int]]]
"""communicator, operation, bytes, iteration, ordinal → transfer and the skew of each member, ns."""

Messages = Callable[[str, int, int, int, int], int]
"""communicator, sender, receiver, bytes, ordinal → what a message takes, ns."""


class Engine:
    """All ranks of a job; `play` runs them to their ends."""

    def __init__(
        self,
        programs: list[Iterator[list[Instruction]]],
        groups: dict[str, tuple[int, ...]],
        transfers: Transfers,
        messages: Messages,
        *,
        starts: list[int],
        contention: float,
        costs: Costs,
        iterations: int,
        record: bool = True,
    ) -> None:
        self.ranks = [
            Rank(number, program, start)
            for number, (program, start) in enumerate(zip(programs, starts, strict=True))
        ]
        self.groups, self.transfers, self.message_ns = groups, transfers, messages
        self.contention, self.costs, self.record = contention, costs, record
        self.ends = [0] * iterations
        self.heap: list[tuple[int, int, int, int, Op]] = []
        self.sequence = 0
        self.open: dict[tuple[str, int], Collective] = {}
        self.calls: dict[tuple[str, int], int] = {}
        self.letters: dict[tuple[Any, ...], Op] = {}

    def play(self) -> Played:
        """Run every rank to its end.

        Raises:
            RuntimeError: Ranks wait for each other forever.
        """
        for rank in self.ranks:
            self.run(rank)
        heap = self.heap
        while heap:
            now, _, what, version, op = heappop(heap)
            if what == 0:
                if version == op.version:
                    self.finish(op, now)
            else:
                self.crowd(op.rank, now, what)
        stuck = [rank.number for rank in self.ranks if rank.place < len(rank.program)]
        if stuck:
            raise RuntimeError(f"ranks {stuck[:8]} wait for each other")
        return Played(self.ranks, self.ends)

    def push(self, time: int, what: int, op: Op) -> None:
        """Note an event: 0 = the end of an operation, 1 and -1 = a collective comes and goes."""
        self.sequence += 1
        heappush(self.heap, (time, self.sequence, what, op.version, op))

    # ------------------------------------------------------------------ the host

    def run(self, rank: Rank) -> None:
        """Run a host until it ends, blocks in a launch, or waits for its device."""
        costs, record = self.costs, self.record
        while True:
            if rank.place == len(rank.program):
                following = next(rank.steps, None)
                if following is None:
                    return
                rank.program, rank.place = following, 0
                continue
            step = rank.program[rank.place]
            code = step[0]
            if code == Code.KERNEL:
                _, name, work, grid, index, python, launch = step
                rank.time += python if rank.blocked_since < 0 else 0
                stream = rank.stream(index)
                if stream.depth >= costs.depth:
                    self.block(rank, stream)
                    return
                op = Op(rank, stream, name, work, grid, None)
                self.submit(rank, stream, op, LAUNCH, launch)
            elif code == Code.EDGE:
                _, source, target = step
                tail = rank.stream(source).tail
                for name in (RECORD, WAIT):
                    self.call(rank, name, costs.event_call)
                if tail is not None and tail.end < 0:
                    rank.stream(target).edges.append(tail)
            elif code == Code.COLLECTIVE:
                _, comm, name, operation, nbytes, index, python, launch = step
                rank.time += python if rank.blocked_since < 0 else 0
                stream = rank.stream(index)
                if stream.depth >= costs.depth:
                    self.block(rank, stream)
                    return
                meeting = self.meeting(rank, comm, operation, nbytes)
                op = Op(rank, stream, name, 0, nbytes, meeting)
                self.submit(rank, stream, op, LAUNCH_NCCL, launch)
            elif code == Code.EXCHANGE:
                _, comm, name, parts, index, python, launch = step
                rank.time += python if rank.blocked_since < 0 else 0
                stream = rank.stream(index)
                keys = [self.letter(rank, comm, *part) for part in parts]
                op = Op(rank, stream, name, 0, sum(part[2] for part in parts), Exchange(keys))
                self.submit(rank, stream, op, LAUNCH_NCCL, launch)
            elif code == Code.COPY:
                _, kind, nbytes, work, index, python, launch = step
                rank.time += python if rank.blocked_since < 0 else 0
                stream = rank.stream(index)
                if stream.depth >= costs.depth:
                    self.block(rank, stream)
                    return
                op = Op(rank, stream, kind, work, nbytes, None)
                self.submit(rank, stream, op, COPY, launch)
            elif code == Code.WORK:
                rank.time += step[1]
            elif code == Code.PUSH:
                rank.time += costs.marker
                rank.stack.append((step[1], rank.time, rank.thread))
            elif code == Code.POP:
                name, since, thread = rank.stack.pop()
                if record:
                    rank.ranges.append((since, rank.time, name, thread, step[1]))
                rank.time += costs.marker
            elif code == Code.THREAD:
                rank.thread = step[1]
                rank.time += costs.handoff
            elif code == Code.SYNC:
                if step[1] is None:
                    streams, name = list(rank.streams.values()), SYNC_DEVICE
                else:
                    streams, name = [rank.stream(step[1])], SYNC_STREAM
                held = tuple(op for stream in streams for op in (stream.tail, *stream.edges))
                if not self.synchronised(rank, name, step[1] or 0, held):
                    return
            elif code == Code.ITERATION:
                self.ended(rank.iteration, rank.time)
                rank.iteration = step[1]
            elif code == Code.NOTE:
                self.call(rank, RECORD, costs.event_call)
                rank.notes[step[1]] = rank.stream(step[2]).tail
            elif code == Code.AFTER:
                self.call(rank, WAIT, costs.event_call)
                noted = rank.notes.get(step[1])
                if noted is not None and noted.end < 0:
                    rank.stream(step[2]).edges.append(noted)
            elif code == Code.AWAIT:
                noted = rank.notes.get(step[1])
                if not self.synchronised(rank, SYNC_EVENT, 0, (noted,)):
                    return
            elif code == Code.FETCH:
                self.fetch(rank, step[1], step[2])
            rank.place += 1
            if rank.place == len(rank.program):
                self.ended(rank.iteration, rank.time)

    def fetch(self, rank: Rank, produce: int, ahead: int) -> None:
        """Take the next batch, which workers make `ahead` batches in advance, one after another."""
        taken, made = rank.taken, rank.made
        free = taken[-ahead] if len(taken) >= ahead else 0
        rank.made = max(made, free) + produce
        rank.time = max(rank.time, rank.made)
        taken.append(rank.time)

    def ended(self, iteration: int, time: int) -> None:
        """Something of an iteration was over at a time."""
        if iteration >= 0 and self.ends[iteration] < time:
            self.ends[iteration] = time

    def block(self, rank: Rank, stream: Stream) -> None:
        """Leave a host inside its launch call, which began now."""
        if rank.blocked_since < 0:
            rank.blocked_since = rank.time
        stream.blocked = rank

    def call(self, rank: Rank, name: str, lasts: int) -> int:
        """One API call, and its correlation id."""
        since = rank.time if rank.blocked_since < 0 else rank.blocked_since
        rank.blocked_since = UNKNOWN
        rank.time += lasts
        rank.correlation += 1
        if self.record:
            rank.calls.append((since, rank.time, name, rank.thread, rank.correlation))
        return rank.correlation

    def synchronised(self, rank: Rank, name: str, stream: int, held: tuple[Op | None, ...]) -> bool:
        """Whether a host may go on behind a call that waits for operations; else it is woken."""
        if rank.waiting_since < 0:
            rank.waiting_since = rank.time
            awaited = {id(op): op for op in held if op is not None and op.end < 0}
            rank.awaited = len(awaited)
            for op in awaited.values():
                op.waiters.append(rank)
        if rank.awaited:
            return False
        since = rank.blocked_since = rank.waiting_since
        rank.waiting_since = UNKNOWN
        correlation = self.call(rank, name, self.costs.sync_return)
        if self.record:
            rank.syncs.append((since, rank.time, stream, correlation))
        return True

    # ------------------------------------------------------------------ the device

    def submit(self, rank: Rank, stream: Stream, op: Op, api: str, launch: int) -> None:
        """Launch an operation onto a stream."""
        costs = self.costs
        op.launch = rank.time
        op.correlation = self.call(rank, api, launch)
        op.ready = rank.time + costs.launch_latency
        stream.depth += 1
        tail = stream.tail
        if tail is not None:
            if tail.end < 0:
                tail.next = op
                op.pending += 1
            elif tail.end + costs.stream_gap > op.ready:
                op.ready = tail.end + costs.stream_gap
        if stream.edges:
            for other in stream.edges:
                if other.end < 0:
                    other.followers.append(op)
                    op.pending += 1
                else:
                    op.ready = max(op.ready, other.end + costs.event_gap)
            stream.edges = []
        stream.tail = op
        if not op.pending:
            self.begin(op)

    def begin(self, op: Op) -> None:
        """An operation is at the head of its stream and starts when it is ready."""
        op.begin = op.since = op.ready
        stream, rank, meeting = op.stream, op.rank, op.meeting
        stream.depth -= 1
        if meeting is None:
            if op.name in ("HtoD", "DtoH"):
                self.push(op.begin + round(op.left), 0, op)
            else:
                op.rate = self.contention if rank.resident else 1.0
                rank.running.append(op)
                self.push(op.begin + round(op.left * op.rate), 0, op)
        else:
            self.push(op.begin, 1, op)
            if type(meeting) is Collective:
                self.gather(op, meeting)
            else:
                self.deliver(op, meeting)
        waiting = stream.blocked
        if waiting is not None:
            stream.blocked = None
            waiting.time = max(waiting.time, op.begin)
            self.run(waiting)

    def gather(self, op: Op, shared: Collective) -> None:
        """A member has come to a collective; the last one starts the transfer."""
        shared.ops.append(op)
        shared.latest = max(shared.latest, op.begin)
        if len(shared.ops) == shared.size:
            done = shared.latest + shared.transfer
            for member in shared.ops:
                self.push(done + shared.skews[member.rank.number], 0, member)

    def deliver(self, op: Op, exchange: Exchange) -> None:
        """A kernel that sends and receives has come; what its partners brought moves."""
        for key in exchange.keys:
            partner = self.letters.pop(key, None)
            if partner is None:
                self.letters[key] = op
                continue
            comm, sender, receiver, nbytes, ordinal = key
            done = max(op.begin, partner.begin)
            done += self.message_ns(comm, sender, receiver, nbytes, ordinal)
            for each in (op, partner):
                theirs = each.meeting
                theirs.missing -= 1
                theirs.done = max(theirs.done, done)
                if not theirs.missing:
                    self.push(theirs.done, 0, each)

    def crowd(self, rank: Rank, now: int, change: int) -> None:
        """A collective comes to a device or leaves it: its kernels get slower or faster."""
        before = rank.resident > 0
        rank.resident += change
        after = rank.resident > 0
        if before == after:
            return
        rate = self.contention if after else 1.0
        for op in rank.running:
            if now > op.since:
                op.left = max(0.0, op.left - (now - op.since) / op.rate)
                op.since = now
            op.rate = rate
            op.version += 1
            self.push(op.since + round(op.left * rate), 0, op)

    def finish(self, op: Op, now: int) -> None:
        """An operation is over: the next of its stream and whoever waits for it may go on."""
        op.end = now
        rank, costs = op.rank, self.costs
        self.ends[op.iteration] = max(self.ends[op.iteration], now)
        row = (op.begin, now, op.name, op.stream.index, op.correlation, op.shape)
        if op.meeting is not None:
            self.crowd(rank, now, -1)
            if self.record:
                rank.kernels.append(row)
        elif op.name in ("HtoD", "DtoH"):
            if self.record:
                rank.copies.append(row)
        else:
            rank.running.remove(op)
            if self.record:
                rank.kernels.append(row)
        following = op.next
        if following is not None:
            op.next = None
            following.ready = max(following.ready, now + costs.stream_gap)
            following.pending -= 1
            if not following.pending:
                self.begin(following)
        for other in op.followers:
            other.ready = max(other.ready, now + costs.event_gap)
            other.pending -= 1
            if not other.pending:
                self.begin(other)
        op.followers = []
        for host in op.waiters:
            host.time = max(host.time, now)
            host.awaited -= 1
            if not host.awaited:
                self.run(host)
        op.waiters = []

    # ------------------------------------------------------------------ who meets whom

    def meeting(self, rank: Rank, comm: str, operation: str, nbytes: int) -> Collective:
        """The instance of a collective that a rank's next call on a communicator joins."""
        key = (comm, rank.number)
        ordinal = self.calls.get(key, 0)
        self.calls[key] = ordinal + 1
        found = self.open.get((comm, ordinal))
        if found is None:
            transfer, skews = self.transfers(comm, operation, nbytes, rank.iteration, ordinal)
            found = Collective(len(self.groups[comm]), transfer, skews)
            self.open[comm, ordinal] = found
        found.came += 1
        if found.came == found.size:
            del self.open[comm, ordinal]
        return found

    def letter(
        self, rank: Rank, comm: str, direction: str, peer: int, nbytes: int
    ) -> tuple[Any, ...]:
        """What both ends of the next message between two ranks call it."""
        ends = (rank.number, peer) if direction == "send" else (peer, rank.number)
        counted = (comm, *ends)
        ordinal = rank.messages.get(counted, 0)
        rank.messages[counted] = ordinal + 1
        return (comm, *ends, nbytes, ordinal)
