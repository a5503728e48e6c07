"""Frozen records that pass between stages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from rankscope.device_work import DeviceWork
    from rankscope.ranges import Ranges


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A report on disk: what `discover` found, before anything in it was read."""

    path: Path
    kind: str  # a format of `read`: nsys-sqlite, kineto …
    bytes: int
    modified_ns: int
    folder: Path | None = None  # where a relative path starts, if not in the working folder

    @property
    def place(self) -> Path:
        """The path to open."""
        return self.path if self.folder is None else self.folder / self.path


@dataclass(frozen=True, slots=True)
class Claim:
    """One piece of evidence for a rank: the number, and the world size told with it."""

    rank: int
    world_size: int | None
    source: str  # e.g. "environment RANK", "file name"


@dataclass(frozen=True, slots=True)
class Loss:
    """Events that the profiler itself says it lost, in its own words."""

    process: int | None  # key of the process; None: any
    text: str


@dataclass(frozen=True, slots=True)
class CaptureFacts:
    """What a report says about its capture as a whole.

    Of the environment only rank, world size, local rank and host are ever taken.
    """

    host: str | None
    utc_start_ns: int | None  # UTC of the report's time 0
    duration_ns: int | None  # on the report's axis; ranges open at a kill end exactly here
    environment: tuple[Claim, ...]
    local_rank: int | None
    exporter: str | None  # version of the program that wrote the file
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """One report, read: frames of `schema`, and the ranks its processes state themselves."""

    facts: CaptureFacts
    ranges: Ranges
    device_work: DeviceWork
    process_ranks: dict[int, int] = field(default_factory=dict)  # by process, of MPI's trace
    jax_processes: dict[int, int] = field(default_factory=dict)  # process key → JAX's process
    host_events: int = 0  # rows of the host that were read
    broken_ranges: int = 0  # left out, for they had no time or no owner

    @property
    def events(self) -> int:
        """How many rows were read."""
        return self.host_events + self.device_work.rows

    @property
    def broken_rows(self) -> int:
        """How many were left out, for they had no time or no owner."""
        return self.broken_ranges + self.device_work.broken


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """Whose rank a process is, and why we believe it."""

    rank: int
    process: int
    local_rank: int | None
    world_size: int | None
    host: str | None
    evidence: str

    @property
    def pid(self) -> int:
        """Process id in the namespace the profiler ran in."""
        return self.process & 0xFFFFFF


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a reader of the numbers must know, shown beside them."""

    code: str
    message: str
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a report, and how to capture it better."""

    code: str
    message: str
    hint: str
    fatal: bool = False  # the report cannot be used with it


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a report can answer."""

    iterations: bool = False  # it has steps
    phases: bool = False  # named parts of them
    gpu: bool = False  # work of the device, so that phases can be timed there
    collectives: bool = False  # communication, so that waiting can be told from working
    clocks: bool = False  # its times can be set beside those of other ranks


@dataclass(frozen=True, slots=True)
class CheckedReport:
    """A report's ranks, what it can answer, and what is wrong with it."""

    path: Path
    kind: str
    ranks: tuple[int, ...]
    iterations: int
    can: Abilities
    problems: tuple[Fault, ...]

    @property
    def usable(self) -> bool:
        """Whether ingest takes it."""
        return not any(problem.fatal for problem in self.problems)


@dataclass(frozen=True, slots=True)
class RankRecord:
    """A rank's identity with what was learned of its iterations."""

    identity: RankIdentity
    numbered: bool  # iteration numbers come from names or payloads, not from counting
    convention: str
    has_device: bool
    clock_gpu: bool  # at least 90 % of iterations have device work in some phase
    work_known: bool  # waits are visible, so that `work` means something


@dataclass(frozen=True, slots=True)
class RankRows:
    """All that is kept of one rank."""

    rank: RankRecord
    iterations: pl.DataFrame  # RANK_ITERATIONS
    measures: pl.DataFrame  # MEASURES
    collectives: pl.DataFrame  # COLLECTIVES
    exposed: pl.DataFrame  # EXPOSED
    activities: pl.DataFrame  # ACTIVITIES
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ReportRows:
    """All that is kept of one report: what a worker sends back."""

    file: ReportFile
    facts: CaptureFacts
    ranks: tuple[RankRows, ...]
    problems: tuple[Problem, ...]
    events: int


@dataclass(frozen=True, slots=True)
class ShapingOptions:
    """Options that decide which rows a report becomes; a change of them means reading again."""

    iteration: str | None = None
    phases: tuple[tuple[str, str], ...] = ()
    rank_pattern: str | None = None

    def to_json(self) -> str:
        """As text that is the same for the same options."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ShapingOptions:
        """The options that `to_json` wrote."""
        told = json.loads(text)
        return cls(**(told | {"phases": tuple((name, names) for name, names in told["phases"])}))


@dataclass(frozen=True, slots=True)
class ReportOutcome:
    """What ingest did with one report."""

    path: Path
    kind: str
    ranks: tuple[int, ...]
    rank_evidence: str | None
    iterations: int
    bytes: int
    status: str  # read | unchanged | skipped
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """A rank and its score."""

    rank: int
    value_ns: int


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric compared across ranks, None where it is unknown.

    `median` is the lower-middle rank's own value.
    """

    metric: str
    mean: float | None
    min: Score | None
    median: Score | None
    max: Score | None
    imbalance: float | None  # max / mean - 1
    lost_ns: int | None  # sum over ranks and iterations of (max - x)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that took longer than on the role's median rank, in the flagged iterations."""

    kind: str  # kernel | kernels (several, each with little) | copy | set | idle | range
    name: str
    excess_ns: int  # mean per flagged iteration
    share: float  # of the rank's excess
    suspect: str  # device | data | contention | starving | loader | copies | garbage collection | …


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who is slow, in what, when, and what it costs; `sentence` says it in words."""

    kind: str  # the contract's `class`
    ranks: tuple[int, ...]
    roles: tuple[str, ...]
    hosts: tuple[str, ...]
    cause: str | None
    cause_share: float | None
    excess_ns: int | None
    excess: float | None
    iterations: tuple[int, ...]
    iterations_share: float | None
    period: int | None
    gain_ns: int | None
    gain: float | None
    sentence: str
    next: str
    since: int | None = None  # the iteration from which on the rank is slow
    interval: tuple[float, float] | None = None  # 95 % bootstrap interval of `excess`
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of one report to look at, as the GUI shows it.

    `start_ns`, `end_ns` on the report's own axis; `shared_…` on the axis of the first picked
    report, which is that of a timeline of several. None where a session's UTC start is unknown.
    """

    iteration: int
    start_ns: int
    end_ns: int
    shared_start_ns: int | None
    shared_end_ns: int | None


@dataclass(frozen=True, slots=True)
class Pick:
    """One report to open, and where to look in it."""

    label: str  # min | median | max | culprit
    rank: int
    report: Path  # as ingested
    file: Path | None  # what the GUI opens of it
    host: str | None
    pid: int
    value_ns: int | None
    worst: Window
    typical: Window


@dataclass(frozen=True, slots=True)
class Options:
    """How to look at a run; the defaults are those of the command line."""

    iter_range: slice | None = None
    clock: str = "auto"
    statistic: str = "mean"
    include_warmup: bool = False
    roles: str | None = None  # as the option --roles


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What stands above every number of a run."""

    name: str
    ranks: tuple[int, ...]
    world_size: int | None
    missing_ranks: tuple[int, ...]
    reports: int
    clock: str
    clock_reason: str
    iterations: tuple[int, ...]  # the chosen ones
    warmup: tuple[int, ...]  # left out of them
    matched_by: str
    clocks_aligned: bool  # all ranks' clocks are tied together
    clock_method: str  # by what
    roles: str  # given | inferred | none
    residual_ns: int | None  # the largest of those that are tied; None if none are
    offsets_ns: dict[int, int]
    drift_ppm: dict[int, float]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """POP's parallel efficiency and its factors, of `work` instead of useful computation."""

    load_balance: float  # mean work / longest work, over ranks
    communication: float  # longest work / time
    parallel: float  # their product


@dataclass(frozen=True, slots=True)
class Timeline:
    """Some ranks in some iterations, in detail, on one axis.

    All times are ns since the earliest window's start by the lowest rank's clock; a rank's
    `axis` says whether they may be compared with those of other ranks.
    """

    clock: str  # gpu | host: the one the run's numbers are on
    iterations: tuple[int, ...]
    origin_utc_ns: int | None  # UTC of time 0 by the lowest rank's clock; None where unknown
    ranks: pl.DataFrame  # TIMELINE_RANKS, in the order asked for
    windows: pl.DataFrame  # TIMELINE_WINDOWS
    phases: pl.DataFrame  # TIMELINE_PHASES
    operations: pl.DataFrame  # TIMELINE_OPERATIONS
    collectives: pl.DataFrame  # TIMELINE_COLLECTIVES
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The answer to `rankscope imbalance`.

    `ranks`: rank, host, role, report, `<metric>_ns`, `<metric>_z`, last_arriver_share, cost_ns,
    gain_ns. `iterations`: iteration, spread_ns, slowest_rank, cause, cluster.
    """

    metrics: tuple[MetricSummary, ...]
    ranks: pl.DataFrame
    iterations: pl.DataFrame
    verdict: Verdict
    rows: Callable[[], pl.DataFrame]
    course: Callable[[str], pl.DataFrame]  # rank, iteration and one metric of the chosen iterations
    statistic: str = "mean"
    wait_error_ns: int | None = None  # waits below it cannot be told from none
    efficiency: Efficiency | None = None  # where work is known
    what_if: pl.DataFrame | None = None  # kind, name, time_ns, gain_ns, gain; by replay
    chained: bool = False  # some collectives are of some ranks: who comes last may have waited

    @property
    def wide(self) -> pl.DataFrame:
        """The chosen rows of `Analysis.wide`."""
        return self.rows()
