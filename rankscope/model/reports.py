"""A report from its file to its rows in the database: the file, its facts, its trace, its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rankscope.model.kinds import EvidenceKind
from rankscope.util.meaning import says

if TYPE_CHECKING:
    import polars as pl

    from rankscope.model.device_work import DeviceWork
    from rankscope.model.host_events import CounterEvents, HostEvents
    from rankscope.model.ranges import Ranges


def to_bytes(frame: pl.DataFrame) -> bytes:
    """A frame as a stream of Arrow, for another process.

    Reading one takes a tenth of unpickling it: its columns stay where they are in the bytes.
    """
    import polars as pl
    import pyarrow as pa

    table = frame.to_arrow(compat_level=pl.CompatLevel.newest())
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    content: bytes = stream.getvalue().to_pybytes()
    return content


def from_bytes(stream: bytes) -> pl.DataFrame:
    """The frame that `to_bytes` was given; it keeps `stream` in memory."""
    import polars as pl
    import pyarrow as pa

    return pl.DataFrame(pa.ipc.open_stream(stream))


class ReportFile(Struct, frozen=True):
    """A report on disk as `discover` found it, before it is read."""

    path: Path
    kind: str  # name of its format: nsys-sqlite, kineto …
    bytes: int
    modified_ns: int
    folder: Path | None = None  # start of a relative path, if not the working folder
    numbers: Claim | None = None  # by its name beside the others'
    pattern: str | None = None  # for the numbers that may tell it
    more: tuple[Path, ...] = ()  # further windows of the same process, read together with it

    @property
    def places(self) -> tuple[Path, ...]:
        """The paths to open: of the report, and of its further windows."""
        paths = (self.path, *self.more)
        return paths if self.folder is None else tuple(self.folder / each for each in paths)

    @property
    def place(self) -> Path:
        """The path to open."""
        return self.places[0]

    def joined(self, more: Sequence[ReportFile]) -> ReportFile:
        """The report together with further windows of the same process."""
        return replace(
            self,
            bytes=sum(each.bytes for each in (self, *more)),
            modified_ns=max(each.modified_ns for each in (self, *more)),
            more=tuple(each.path for each in more),
        )


class RankEvidence(Struct, frozen=True):
    """A source that says which rank a report or a process is; its text is its name."""

    name: str  # as users and databases see it: "environment RANK", "file name"
    kind: EvidenceKind
    own: bool = False  # it speaks of this rank alone, not also of the launcher that started it

    def __str__(self) -> str:
        return self.name


class Claim(Struct, frozen=True):
    """A rank that one source claims, and the world size if the source gives it."""

    rank: int
    world_size: int | None
    evidence: RankEvidence


class Loss(Struct, frozen=True):
    """The profiler's own message that it lost events."""

    pid: int | None  # of the process; None: any
    text: str


class Gpu(Struct, frozen=True):
    """A GPU that a process used, and what identifies it in other runs; None is unknown."""

    pid: int | None  # of the process; None: any
    device: int | None  # the number by which the process calls it; None: any
    uuid: str | None
    name: str | None  # of the model
    bus: str | None  # the slot that it is in


class Hardware(Struct, frozen=True):
    """What a report says about the machine that it was captured on; None is unknown."""

    cpu: str | None = None  # model
    adapters: tuple[str, ...] = ()  # GUIDs of the network's
    software: str | None = None  # versions of driver, CUDA and NCCL
    gpus: tuple[Gpu, ...] = ()

    def gpu_of(self, pid: int, devices: Iterable[int]) -> Gpu | None:
        """The GPU of a process; None if it is unknown, or if the process used several."""
        used = {*devices}
        matching = [
            gpu
            for gpu in self.gpus
            if gpu.pid in (None, pid) and (gpu.device is None or gpu.device in used)
        ]
        return matching[0] if len(used) == 1 and len(matching) == 1 else None


class CaptureFacts(Struct, frozen=True):
    """Facts that a report states about its capture as a whole.

    Only rank, world size, local rank and host are ever taken from an environment.
    """

    host: str | None
    utc_start_ns: int | None  # UTC of the report's time 0
    duration_ns: int | None  # on the report's axis; ranges open at a kill end exactly here
    environment: tuple[Claim, ...]
    local_rank: int | None
    exporter: str | None  # version of the program that wrote the file
    losses: tuple[Loss, ...] = ()
    hardware: Hardware = Hardware()


class Process(Struct, frozen=True):
    """A process as the operating system numbers it."""

    pid: int  # in the namespace that the profiler ran in
    main_thread: int  # key of its first thread


def plain_process(key: int) -> Process:
    """The process of a reader whose keys of processes and threads are their ids."""
    return Process(key, key)


class Trace(Struct, frozen=True):
    """One report, read: frames of `schema`, and the ranks that it states for its processes."""

    facts: CaptureFacts
    ranges: Ranges
    device_work: DeviceWork
    process_ranks: dict[int, int] = {}  # process key → rank in MPI's trace
    event_ranks: dict[int, int] = {}  # process key → rank its events state
    cut_ns: int | None = None  # the report ends amid its events: until then it is whole
    pauses: tuple[tuple[int, int], ...] = ()  # start and end of times that were not recorded
    jax_processes: dict[int, int] = {}  # process key → JAX's process
    host_events: int = 0  # rows of the host that were read
    broken_ranges: int = 0  # left out because they have no possible time or no owner
    process_of: Callable[[int], Process] = plain_process  # by process key
    # without ranges: the process with most calls → start of its first, end of its last
    busiest: dict[int, tuple[int, int]] = {}
    host_of: HostEvents | None = None  # reads what threads did; None: the format has nothing of it
    counters_of: CounterEvents | None = None  # reads counters; None: the report has none

    def states_ranks(self, processes: Iterable[int]) -> bool:
        """Whether it states the rank of each of these processes, in any one way."""
        wanted = {*processes}
        stated = (self.process_ranks, self.jax_processes, self.event_ranks)
        return any(wanted <= each.keys() for each in stated)

    @property
    def events(self) -> int:
        """The number of rows that were read."""
        return self.host_events + self.device_work.rows

    @property
    def broken_rows(self) -> int:
        """The number of rows left out because they have no time or no owner."""
        return self.broken_ranges + self.device_work.broken


class RankIdentity(Struct, frozen=True):
    """The rank of a process, and the evidence for it."""

    rank: int
    pid: int  # in the namespace that the profiler ran in
    local_rank: int | None
    world_size: int | None
    host: str | None
    evidence: RankEvidence


TIMES_UNSURE = "times-unsure"
"""The code of the warning that times of the device are not exact."""


ENDS_ALONE = "iterations-assumed"
"""The code of the warning that only the ends of iterations are recorded."""


class RunWarning(Struct, frozen=True):
    """Missing or weak evidence."""

    code: Annotated[str, says("the name of the warning: `rankscope explain CODE` has more")]
    message: Annotated[str, says("what is missing or weak, in words")]
    ranks: Annotated[tuple[int, ...], says("the ranks that it is about; empty: the run")] = ()


class CheckWarning(Struct, frozen=True):
    """What is wrong with a report, and how to capture it better."""

    code: Annotated[str, says("the name of the warning")]
    message: Annotated[str, says("what is wrong")]
    hint: Annotated[str, says("what to do")]
    fatal: Annotated[bool, says("whether the report cannot be used")] = False


class Abilities(Struct, frozen=True):
    """What a report can answer."""

    iterations: Annotated[bool, says("whether it has steps")] = False
    phases: Annotated[bool, says("whether it has named parts of them")] = False
    gpu: Annotated[bool, says("whether phases can be timed on the device")] = False
    collectives: Annotated[bool, says("whether waiting can be separated from working")] = False
    clocks: Annotated[bool, says("whether its times can be compared with those of other ranks")] = (
        False
    )


class CauseAbility(Struct, frozen=True):
    """Whether a report holds what identifies a cause."""

    cause: Annotated[str, says("a cause, as `verdict.findings[].kind` of imbalance")]
    identifiable: Annotated[bool, says("whether the report holds what identifies the cause")] = (
        msgspec.field(name="told")
    )
    capture: Annotated[str | None, says("how to record what it rests on; null where it can")]


class CheckedReport(Struct, frozen=True):
    """A report's ranks, what it can answer, and what is wrong with it."""

    path: Path
    kind: str
    ranks: tuple[int, ...]
    iterations: int
    can: Abilities
    problems: tuple[CheckWarning, ...]
    causes: tuple[CauseAbility, ...] = ()  # of a report that cannot be read: none
    work_known: bool = False  # waits are visible on the host, too
    clock: str | None = None  # that its run is compared on: gpu | host
    run: int = 1  # number of its run, as `ingest` counts them

    @property
    def usable(self) -> bool:
        """Whether ingest takes it."""
        return not any(problem.fatal for problem in self.problems)


class RankRecord(Struct, frozen=True):
    """A rank's identity with what was learned of its iterations."""

    identity: RankIdentity
    numbered: bool  # iteration numbers come from names or payloads, not from counting
    convention: str
    has_device: bool
    clock_gpu: bool  # at least 90 % of iterations have device work in some phase
    work_known: bool  # waits are visible, so that `work` means something
    gpu: Gpu | None = None


class RankRows(Struct, frozen=True):
    """The rows of one rank in the database."""

    rank: RankRecord
    iterations: pl.DataFrame  # RANK_ITERATIONS
    measures: pl.DataFrame  # MEASURES
    collectives: pl.DataFrame  # COLLECTIVES
    exposed: pl.DataFrame  # EXPOSED
    activities: pl.DataFrame  # ACTIVITIES
    host_states: pl.DataFrame  # HOST_STATES
    file_accesses: pl.DataFrame  # FILE_ACCESSES
    counters: pl.DataFrame  # COUNTERS
    problems: tuple[RunWarning, ...]

    def __reduce__(self) -> tuple[object, ...]:
        """How it is pickled: the process that stores reports unpickles those of all workers."""
        names = [each for each in self.__struct_fields__ if each not in ("rank", "problems")]
        frames = {name: to_bytes(getattr(self, name)) for name in names}
        return _unpickled, (self.rank, frames, self.problems)


def _unpickled(
    rank: RankRecord, frames: dict[str, bytes], problems: tuple[RunWarning, ...]
) -> RankRows:
    read = {name: from_bytes(stream) for name, stream in frames.items()}
    return RankRows(rank=rank, problems=problems, **read)


class ReportRows(Struct, frozen=True):
    """The rows of one report in the database, as a worker returns them."""

    file: ReportFile
    facts: CaptureFacts
    ranks: tuple[RankRows, ...]
    problems: tuple[RunWarning, ...]
    events: int
    windows: tuple[int, ...] = ()  # start of each further window on the report's axis, ns
    taken: str | None = None  # the `--iteration` that gives the same; None: conventions' names


class ReportOutcome(Struct, frozen=True):
    """What ingest did with one report."""

    path: Path
    kind: str
    ranks: tuple[int, ...]
    rank_evidence: str | None
    iterations: int
    bytes: int
    status: str  # read | unchanged | skipped
    reason: str | None = None
