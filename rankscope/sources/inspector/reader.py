"""Verbose dumps of NCCL Inspector and RCCL Inspector, `HOST-pidPID.log`: one file a process.

The plugin of NCCL writes a JSON object per line and operation (NVIDIA/nccl:
plugins/profiler/inspector/README.md). Up to version 4.2 of its format each has a `header`
(communicator, and rank in it) and `metadata` (host, process); from 4.3 on a line with `dump_stats`
has them for the lines that follow.

With `NCCL_INSPECTOR_DUMP_VERBOSE=1` an operation says when a thread of NCCL noticed the end of its
kernel, by the clock of the host. How long the kernel ran is measured by the GPU. So a kernel ends
when its end was noticed, and begins so much earlier. Without these times nothing says which
operations belong to one step: the dump is refused.

Computation is not recorded. It goes on beside collectives, so a rank's work is unknown; what the
dumps tell is who comes last, and how long the others wait.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.errors import UnreadableReport
from rankscope.model.device_work import InMemoryWork
from rankscope.model.kinds import EvidenceKind
from rankscope.model.ranges import Ranges
from rankscope.model.reports import CaptureFacts, Claim, Loss, RankEvidence, Trace
from rankscope.model.schema import DEVICE_WORK, RANGES, conform, empty
from rankscope.sources.conventions import stated_operations
from rankscope.sources.environment import first_printable
from rankscope.sources.report_format import not_opened
from rankscope.util.rank_list import MOST_RANKS
from rankscope.util.wording import counted

LARGEST_LINE = 2**20
"""Most bytes of a line; real ones have some hundred, and a hundred more for each channel."""

LARGEST_US = 2**52
"""Larger numbers are no times: in ns they would not fit."""

Length = Annotated[float, msgspec.Meta(ge=0, lt=LARGEST_US)]
"""How long an operation took, µs."""

LARGEST_COMMUNICATOR = RankEvidence("largest communicator", EvidenceKind.PROFILER, own=True)
"""The rank in the communicator with the most ranks, which is usually that of all."""

FROM_ENQUEUED = "collective_cpu"
"""The source of a length that begins when the call is queued, so that no wait can be seen."""

VERBOSE = "record with NCCL_INSPECTOR_DUMP_VERBOSE=1, which adds times"

ROWS = pl.Schema(
    {
        "communicator": pl.String,
        "name": pl.String,
        "sequence": pl.Int64,
        "bytes": pl.Int64,
        "start": pl.Int64,
        "end": pl.Int64,
    }
)
"""Operations; times in µs since the epoch."""

FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Header(msgspec.Struct):
    """A communicator, and the rank in it."""

    id: Annotated[str, msgspec.Meta(max_length=64)]
    rank: int
    n_ranks: int


class Metadata(msgspec.Struct):
    """The process that wrote the line."""

    pid: Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
    hostname: str | None = None
    inspector_output_format_version: str | None = None


class Stats(msgspec.Struct):
    """How many operations of a communicator were overwritten before they were written."""

    coll_dropped_total: int = 0
    p2p_dropped_total: int = 0


class Channel(msgspec.Struct):
    """Times at which a channel of a kernel was noticed, µs since the epoch; 0 is unknown."""

    kernel_stop_ts: int = 0


class Times(msgspec.Struct):
    """Times of an operation, µs since the epoch; 0 is unknown."""

    kernel_events: list[Channel] = []


class Collective(msgspec.Struct):
    """`coll_perf`."""

    coll: Annotated[str, msgspec.Meta(max_length=64)]
    coll_sn: int
    coll_msg_size_bytes: int
    coll_exec_time_us: Length
    coll_timing_source: str | None = None
    event_trace_ts: Times | None = None


class Message(msgspec.Struct):
    """`p2p_perf`."""

    p2p: Annotated[str, msgspec.Meta(max_length=64)]
    p2p_msg_size_bytes: int
    p2p_exec_time_us: Length
    event_trace_ts: Times | None = None


class Head(msgspec.Struct):
    """The fields of a line that say whose it is."""

    header: Header | None = None
    metadata: Metadata | None = None
    dump_stats: Stats | None = None


class Line(Head):
    """The fields of a line that are used."""

    coll_perf: Collective | None = None
    p2p_perf: Message | None = None


class Owner(Struct):
    """What the lines say of the process and its communicators."""

    process: Metadata | None = None
    communicators: dict[str, Header] = {}
    dropped: dict[str, int] = {}  # communicator → operations

    def add(self, line: Head) -> None:
        """Add what a line says."""
        if line.metadata is not None:
            self.process = line.metadata
        if line.header is None:
            return
        self.communicators[line.header.id] = line.header
        if line.dump_stats is not None:
            lost = line.dump_stats.coll_dropped_total + line.dump_stats.p2p_dropped_total
            self.dropped[line.header.id] = lost

    def facts(self, path: Path) -> CaptureFacts:
        """Host, rank and losses; times are unknown.

        Raises:
            UnreadableReport: no line says which process it is.
        """
        if self.process is None or not self.communicators:
            raise _no_dump(path)
        world = max(each.n_ranks for each in self.communicators.values())
        ranks = {each.rank for each in self.communicators.values() if each.n_ranks == world}
        claims = [
            Claim(rank, world, LARGEST_COMMUNICATOR)
            for rank in ranks
            if len(ranks) == 1 and 0 <= rank < world <= MOST_RANKS
        ]
        lost = sum(self.dropped.values())
        text = f"NCCL Inspector: {counted(lost, 'operation')} overwritten before they were written"
        return CaptureFacts(
            host=first_printable([self.process.hostname] if self.process.hostname else []),
            utc_start_ns=None,
            duration_ns=None,
            environment=tuple(claims),
            local_rank=None,
            exporter=first_printable(
                [f"Inspector {self.process.inspector_output_format_version}"]
                if self.process.inspector_output_format_version
                else []
            ),
            losses=(Loss(self.process.pid, text),) if lost > 0 else (),
        )


def facts(path: Path) -> CaptureFacts:
    """Rank, host and losses; times are unknown until the operations are read.

    Raises:
        UnreadableReport: it is not a dump.
    """
    owner = Owner()
    decoder = msgspec.json.Decoder(Head)
    for text in _lines(path):
        try:
            owner.add(decoder.decode(text))
        except FAULTS:
            continue
    return owner.facts(path)


def read(path: Path) -> Trace:
    """The whole dump.

    Raises:
        UnreadableReport: it is not a dump, or none of its operations has times.
    """
    owner, rows, untimed, broken = Owner(), list[tuple[str | int | None, ...]](), 0, 0
    decoder = msgspec.json.Decoder(Line)
    current: Header | None = None
    for text in _lines(path):
        try:
            line = decoder.decode(text)
        except FAULTS:
            broken += 1
            continue
        owner.add(line)
        current = line.header or current
        operation = line.coll_perf or line.p2p_perf
        if current is None or operation is None:
            continue
        row = _row(current, operation)
        untimed += row is None
        rows += [] if row is None else [row]
    stated = owner.facts(path)
    if not rows or owner.process is None:
        raise UnreadableReport(
            f"{path}: none of its {counted(untimed, 'operation')} says when it ran"
            if untimed
            else f"{path}: holds no operation",
            hint=VERBOSE,
        )
    frame = pl.DataFrame(rows, schema=ROWS, orient="row")
    zero = int(frame["start"].to_numpy().min())
    work = _device_work(frame, zero, owner.process.pid)
    return Trace(
        facts=replace(
            stated, utc_start_ns=zero * 1000, duration_ns=int(work["end"].to_numpy().max())
        ),
        ranges=Ranges.of(empty(RANGES)),
        device_work=InMemoryWork(work, rows=work.height, broken=broken + untimed),
    )


def _lines(path: Path) -> Iterator[bytes]:
    """The lines that are not empty.

    Raises:
        UnreadableReport: it cannot be read, or has a line that no dump has.
    """
    try:
        with path.open("rb") as file:
            while line := file.readline(LARGEST_LINE):
                if len(line) == LARGEST_LINE:
                    raise _no_dump(path)
                if line.strip():
                    yield line
    except OSError as error:
        raise not_opened(path, error) from error


def _no_dump(path: Path) -> UnreadableReport:
    return UnreadableReport(
        f"{path}: is no dump of NCCL Inspector",
        hint="name a file that NCCL Inspector wrote as JSON, not for Prometheus",
    )


def _row(
    communicator: Header, operation: Collective | Message
) -> tuple[str | int | None, ...] | None:
    """A row of ROWS; None without times."""
    times = operation.event_trace_ts
    if times is None:
        return None
    if isinstance(operation, Collective):
        if operation.coll_timing_source == FROM_ENQUEUED:
            return None
        name, sequence = operation.coll, operation.coll_sn
        size, length = operation.coll_msg_size_bytes, operation.coll_exec_time_us
    else:
        name, sequence = operation.p2p, None
        size, length = operation.p2p_msg_size_bytes, operation.p2p_exec_time_us
    end = max((each.kernel_stop_ts for each in times.kernel_events), default=0)
    start = end - round(length)
    numbers = (size, 0 if sequence is None else sequence)
    if not 0 < start <= end < LARGEST_US or not all(0 <= each < LARGEST_US for each in numbers):
        return None
    return communicator.id, name, sequence, size, start, end


def _device_work(frame: pl.DataFrame, zero: int, process: int) -> pl.DataFrame:
    """DEVICE_WORK of ROWS.

    NCCL counts the calls of each operation of a communicator separately. So a number identifies a
    call of the communicator only where all calls are of one operation.
    """
    alone = pl.col("name").n_unique().over("communicator") == 1
    work = frame.with_columns(
        *((pl.col(moment) - zero) * 1000 for moment in ("start", "end")),
        process=pl.lit(process),
        device=pl.lit(0),
        context=pl.lit(0),
        stream=pl.col("communicator").rank("dense"),
        kind=pl.lit("kernel"),
        operation=stated_operations(frame["name"]),
        grid=pl.lit(None),
        sequence=pl.when(alone).then("sequence"),
        graph=pl.lit(False),
        launch=pl.lit(None, pl.Int64),
        launch_thread=pl.lit(None, pl.Int64),
    )
    return conform(work.sort("start", "end"), DEVICE_WORK)
