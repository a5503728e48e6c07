"""What a job is: its ranks, its model, its noise, and what is planted in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

from tests.jobs.state import Costs

if TYPE_CHECKING:
    from tests.jobs.script import Script

US, MS = 1_000, 1_000_000

What = Literal["device", "host", "launch", "load", "stall", "tokens", "link", "produce"]


@dataclass(frozen=True, slots=True)
class Plant:
    """Something that makes ranks slow, and which a job can also be played without.

    Attributes:
        what: `device`: all kernels take `factor` times as long. `host`: all host work and API
            calls do. `load`: the host needs `extra_ns` more to load. `produce`: a loader's worker
            does, which hides it as long as batches are in stock. `stall`: the host stands still
            for `extra_ns` in the middle of `phase`. `tokens`: forward and backward have `factor`
            times as much to do, and grids are larger. `link`: transfers of `comm` take `factor`
            times as long where one of the ranks takes part.
        ranks: Who is hit.
        factor: See `what`; in a hit iteration.
        extra_ns: See `what`; in a hit iteration.
        iterations: The hit iterations; None means all.
        phase: Where a `stall` falls.
        comm: First letters of the communicators of a slow `link`.
        amounts: `(rank, iteration)` → a factor (`tokens`, `device`, `host`) or ns (else) of its
            own, in place of the attributes above.
    """

    what: What
    ranks: tuple[int, ...] = ()
    factor: float = 1.0
    extra_ns: int = 0
    iterations: frozenset[int] | None = None
    phase: str = "forward"
    comm: str = ""
    amounts: dict[tuple[int, int], float] | None = None

    def hits(self, rank: int, iteration: int) -> bool:
        """Whether a rank is hit in an iteration."""
        if self.amounts is not None:
            return (rank, iteration) in self.amounts
        here = self.iterations is None or iteration in self.iterations
        return here and rank in self.ranks

    def factor_of(self, rank: int, iteration: int) -> float:
        """The factor of a hit."""
        return self.amounts[rank, iteration] if self.amounts is not None else self.factor

    def extra_of(self, rank: int, iteration: int) -> int:
        """The ns of a hit."""
        if self.amounts is not None:
            return round(self.amounts[rank, iteration])
        return self.extra_ns

    def without(self, ranks: frozenset[int]) -> Plant | None:
        """What is left of the plant when some ranks are healed."""
        if self.amounts is not None:
            left = {key: each for key, each in self.amounts.items() if key[0] not in ranks}
            return replace(self, amounts=left) if left else None
        kept = tuple(rank for rank in self.ranks if rank not in ranks)
        return replace(self, ranks=kept) if kept else None


@dataclass(frozen=True, slots=True)
class Noise:
    """Random variation in a healthy job; relative spreads.

    Attributes:
        kernel: Of each kernel.
        step: Of a rank's device in an iteration.
        static: Of devices, once and for all.
        walk: Bound of a slow random walk of a device's speed.
        host: Of each piece of host work.
        tail: Student's t of 3 degrees of freedom instead of a normal distribution, for `step`.
        pause_share: Share of a rank's iterations with a short pause of the host.
        pause_ns: Mean of these pauses, which are distributed exponentially.
        transfer: Of each transfer.
    """

    kernel: float = 0.015
    step: float = 0.006
    static: float = 0.003
    walk: float = 0.0
    host: float = 0.12
    tail: bool = False
    pause_share: float = 0.0
    pause_ns: int = 0
    transfer: float = 0.03


@dataclass(frozen=True, slots=True)
class Network:
    """What transfers take: a latency, and bytes over a bandwidth (GB/s)."""

    latency_ns: int = 18 * US
    within_host: float = 150.0
    between_hosts: float = 40.0
    skew_ns: int = 1_500


@dataclass(frozen=True, slots=True)
class Report:
    """What reports hold and how.

    Attributes:
        payload: NCCL's own NVTX ranges with communicator and message size.
        schema: Whose tables.
        ranks: Ranks with a report; None means all.
    """

    payload: bool = False
    schema: Literal["2022.4", "2023.4"] = "2023.4"
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A training job to play.

    Attributes:
        step: Writes one iteration of a rank's program.
        model: Parameters of `step`.
        groups: Communicators by name → their ranks.
        contention: How much slower kernels are while a collective is resident.
        roles: The layout, as a user would tell it.
    """

    name: str
    ranks: int
    iterations: int
    seed: int
    step: Callable[[Script, int], None]
    model: Any
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    plants: tuple[Plant, ...] = ()
    noise: Noise = Noise()
    network: Network = Network()
    report: Report = Report()
    costs: Costs = field(default_factory=Costs)
    contention: float = 1.0
    ranks_per_host: int = 8
    roles: str | None = None

    def host_of(self, rank: int) -> str:
        """Name of a rank's machine."""
        return f"node{rank // self.ranks_per_host:02d}"

    def on_host(self, host: str) -> tuple[int, ...]:
        """The ranks of a machine."""
        return tuple(rank for rank in range(self.ranks) if self.host_of(rank) == host)

    @property
    def fingerprint(self) -> int:
        """A number that differs when anything in the job does, but the code that plays it."""
        parts = [getattr(self, each.name) for each in fields(self) if each.name != "step"]
        return crc32(repr((self.step.__module__, parts)).encode())

    def healed(self, ranks: frozenset[int] | None = None) -> Job:
        """The same job with the same noise, without plants on some ranks, or on any."""
        if ranks is None:
            return replace(self, plants=())
        left = (plant.without(ranks) for plant in self.plants)
        return replace(self, plants=tuple(plant for plant in left if plant is not None))
