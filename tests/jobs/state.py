"""What the engine keeps of ranks, streams and operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.jobs.program import Instruction

UNKNOWN = -1
"""A time that is not known yet."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What the launch path costs, ns, and how many launches a stream's queue holds."""

    launch_latency: int = 2_200
    stream_gap: int = 900
    event_gap: int = 1_600
    event_call: int = 900
    sync_return: int = 6_000
    handoff: int = 15_000
    marker: int = 400
    depth: int = 1_024


class Op:
    """An operation of a stream; `begin` and `end` are `UNKNOWN` until they are known."""

    __slots__ = (
        "begin",
        "correlation",
        "end",
        "followers",
        "iteration",
        "launch",
        "left",
        "meeting",
        "name",
        "next",
        "pending",
        "rank",
        "rate",
        "ready",
        "shape",
        "since",
        "stream",
        "version",
        "waiters",
    )

    def __init__(
        self, rank: Rank, stream: Stream, name: str, work: float, shape: int, meeting: Any
    ) -> None:
        self.rank, self.stream, self.name, self.left, self.shape = rank, stream, name, work, shape
        self.meeting = meeting
        self.iteration = rank.iteration
        self.begin = self.end = UNKNOWN
        self.pending = self.ready = self.launch = self.correlation = self.version = self.since = 0
        self.rate = 1.0
        self.next: Op | None = None
        self.followers: list[Op] = []
        self.waiters: list[Rank] = []


class Stream:
    """A queue of one device; `depth` counts its operations that have not begun."""

    __slots__ = ("blocked", "depth", "edges", "index", "tail")

    def __init__(self, index: int) -> None:
        self.index = index
        self.depth = 0
        self.tail: Op | None = None
        self.edges: list[Op] = []
        self.blocked: Rank | None = None


class Collective:
    """One instance of a collective call: who has come, and what the transfer takes."""

    __slots__ = ("came", "latest", "ops", "size", "skews", "transfer")

    def __init__(self, size: int, transfer: int, skews: dict[int, int]) -> None:
        self.size, self.transfer, self.skews = size, transfer, skews
        self.ops: list[Op] = []
        self.came = self.latest = 0


class Exchange:
    """A group of sends and receives that one kernel does; it ends with the last of them."""

    __slots__ = ("done", "keys", "missing")

    def __init__(self, keys: list[tuple[Any, ...]]) -> None:
        self.keys, self.missing, self.done = keys, len(keys), 0


class Rank:
    """A rank's host program and device."""

    __slots__ = (
        "awaited",
        "blocked_since",
        "calls",
        "copies",
        "correlation",
        "iteration",
        "kernels",
        "made",
        "messages",
        "notes",
        "number",
        "place",
        "program",
        "ranges",
        "resident",
        "running",
        "stack",
        "steps",
        "streams",
        "syncs",
        "taken",
        "thread",
        "time",
        "waiting_since",
    )

    def __init__(self, number: int, program: Iterator[list[Instruction]], start: int) -> None:
        self.number = number
        self.steps = program
        self.program: list[Instruction] = []
        self.place = 0
        self.time = start
        self.iteration = -1
        self.thread = 0
        self.streams: dict[int, Stream] = {}
        self.running: list[Op] = []
        self.resident = 0
        self.awaited = 0
        self.blocked_since = UNKNOWN
        self.waiting_since = UNKNOWN
        self.correlation = 1_000 + 13 * number
        self.stack: list[tuple[str, int, int]] = []
        self.ranges: list[tuple[int, int, str, int, str | None]] = []
        self.calls: list[tuple[int, int, str, int, int]] = []
        self.kernels: list[tuple[int, int, str, int, int, int]] = []
        self.copies: list[tuple[int, int, str, int, int, int]] = []
        self.syncs: list[tuple[int, int, int, int]] = []
        self.messages: dict[tuple[Any, ...], int] = {}
        self.notes: dict[str, Op | None] = {}
        self.taken: list[int] = []
        self.made = 0

    def stream(self, index: int) -> Stream:
        """The stream of a number, made when it is first used."""
        found = self.streams.get(index)
        if found is None:
            found = self.streams[index] = Stream(index)
        return found


@dataclass(slots=True)
class Played:
    """What happened: each rank's rows, and when each iteration was over on host and device."""

    ranks: list[Rank]
    ends: list[int] = field(default_factory=list)
