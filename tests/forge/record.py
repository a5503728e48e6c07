"""What one rank's profiler saw, on that rank's own clock."""

from dataclasses import dataclass, field

EPOCH_NS = 1_795_249_000_000_000_000
"""True UTC of the simulation's time 0."""

Range = tuple[int, int, str, int, int]
"""start, end, name, thread, NVTX domain (0 = default)."""

Call = tuple[int, int, str, int, int]
"""start, end, API name, thread, correlation id."""

DeviceOp = tuple[int, int, str, int, int, int | None, int, float]
"""start, end, name, stream, correlation id, graph node, bytes, grid relative to its kernel's."""


@dataclass(frozen=True, slots=True)
class RankClock:
    """A rank's clock: zero is the start of its profiling session.

    The host believes it is `offset_ns` later than it is, and runs `drift_ppb` parts in 1e9 fast.
    """

    session_start: int
    offset_ns: int
    drift_ppb: int

    def local(self, time: int) -> int:
        """A true time as a timestamp of this rank's report."""
        drift = time * self.drift_ppb // 10**9 - self.session_start * self.drift_ppb // 10**9
        return time - self.session_start + drift

    def utc(self, time: int) -> int:
        """What this host believes UTC to be at a true time."""
        return self.utc_epoch() + self.local(time)

    def utc_epoch(self) -> int:
        """UTC of the session's start as this host believes it."""
        drift = self.session_start * self.drift_ppb // 10**9
        return EPOCH_NS + self.session_start + self.offset_ns + drift


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a rank is: process, threads, machine, device."""

    rank: int
    local_rank: int
    world_size: int
    host: str
    pid: int
    main_tid: int
    autograd_tid: int
    loader_tid: int

    def global_tid(self, tid: int) -> int:
        """The id as exports write it: virtual machine 1, process, thread."""
        return 1 << 48 | self.pid << 24 | tid

    def global_pid(self) -> int:
        """The process's id in the same form."""
        return 1 << 48 | self.pid << 24


@dataclass(slots=True)
class RankRecord:
    """Rows of one rank in rank-local ns, in no particular order."""

    identity: Identity
    clock: RankClock
    ranges: list[Range] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    kernels: list[DeviceOp] = field(default_factory=list)
    copies: list[DeviceOp] = field(default_factory=list)
