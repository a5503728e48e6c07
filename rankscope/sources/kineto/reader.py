"""PyTorch profiler (Kineto) traces, `.json` and `.json.gz`: one file a process.

Device work finds its launch by `correlation`, or else the operator that it ran for by
`External id`. Time 0 is the earliest event, as chrome://tracing and Perfetto show it.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from msgspec.structs import replace

from rankscope.errors import UnreadableReport
from rankscope.model.device_work import SYNC_CALLS, UNRECORDED, InMemoryWork
from rankscope.model.frames import with_series
from rankscope.model.kinds import EvidenceKind
from rankscope.model.options import ShapingOptions
from rankscope.model.ranges import Ranges
from rankscope.model.reports import (
    CaptureFacts,
    Claim,
    Gpu,
    Hardware,
    RankEvidence,
    Trace,
    plain_process,
)
from rankscope.model.schema import DEVICE_WORK, RANGES, conform, empty
from rankscope.sources.conventions import Vocabulary, known, vocabulary
from rankscope.sources.device_faults import latest, moved_by, outside_captures, wrong_clocks
from rankscope.sources.environment import first_printable
from rankscope.sources.kineto.columns import (
    LAUNCH,
    NAMED,
    NEEDED,
    RANGE,
    SCHEMAS,
    SPAN,
    WORK,
    finished,
    frames,
)
from rankscope.sources.kineto.gloo import waits_on_callers
from rankscope.sources.kineto.json_stream import FAULTS, About, EventFile
from rankscope.sources.kineto.limits import LIMITS, Limits
from rankscope.sources.kineto.merged import Owners, apart, owners, rank_of, without_rank
from rankscope.sources.kineto.peers import with_peers
from rankscope.sources.kineto.windows import Frames, base_time, complete_until, in_one
from rankscope.util.rank_list import MOST_RANKS
from rankscope.util.wording import and_more, counted

DISTRIBUTED_INFO = RankEvidence("distributedInfo", EvidenceKind.PROFILER, own=True)
"""The profiler's own record of the job."""

OLDEST_UTC_NS = 10**18
"""Times before 2001 are not UTC: they count from the start of the machine."""

WORKER_NAME = re.compile(r"^(.{1,64})_(\d{1,8})\.\d{10,}\.pt\.trace\.json")
"""File names of tensorboard_trace_handler: host, pid, time."""


class Distributed(msgspec.Struct):
    """The fields of `distributedInfo` that are used."""

    rank: int | None = None
    world_size: int | None = None
    nccl_version: Any = None


class Device(msgspec.Struct):
    """The fields of `deviceProperties` that are used."""

    id: int
    name: str


def facts(path: Path) -> CaptureFacts:
    """Rank and host from the fields before the events; times are unknown until those are read.

    Raises:
        UnreadableReport: it is not a trace.
    """
    return facts_of(EventFile(path).head())


def read(
    path: Path,
    words: Vocabulary | None = None,
    more: Sequence[Path] = (),
    limits: Limits = LIMITS,
) -> Trace:
    """The whole trace.

    Args:
        path: the file.
        words: the vocabulary that names operations; None: that of no options.
        more: files of further windows of the same process, in the order of their steps.
        limits: of each file.

    Raises:
        UnreadableReport: it is not a trace, is truncated or damaged, or holds no profiler events.
    """
    file, events, pauses = in_one([_decoded(each, limits) for each in (path, *more)])
    _check(path, file, events, limits)
    whole, incomplete = _whole(events)
    nonempty = [each for nature, each in whole.items() if nature != NAMED and each.height]
    if file.is_cut and not nonempty:
        raise file.truncated()
    zero = min((each.select(pl.col("start").min()).item() for each in nonempty), default=0)
    ranges, launches, work, span = (
        whole[nature].with_columns(pl.col("start", "end") - zero)
        for nature in (RANGE, LAUNCH, WORK, SPAN)
    )
    host = pl.concat([ranges["start"], launches["start"]])
    until = latest(span["end"].max(), host.to_numpy())  # type: ignore[arg-type]
    known = ((ranges, "end"), (launches, "start"), (work, "end"))
    possible = [each.filter(pl.col(moment) <= until) for each, moment in known]
    incomplete += sum(each.height for each, _ in known) - sum(each.height for each in possible)
    ranges, launches, work = apart(possible)
    process = _process(ranges, launches)
    owned = owners(ranges, launches, work, whole[NAMED])
    ranks = owned.ranks
    if not owned.process_of and (rank := rank_of(ranges, launches, work)) is not None:
        ranks = {process: rank}
    stated = facts_of(file.about)
    utc_start_ns = _utc(file.about, zero)
    words = words or vocabulary(ShapingOptions())
    work, calls = _communicating(work, words), _nth_calls(launches, owned.within)
    device_work = with_peers(_device_work(work, calls, ranges, process, owned), ranges)
    sync_calls = conform(launches.filter("waits"), SYNC_CALLS, drop_others=True)
    lost = outside_captures(
        _without_record(calls, device_work), launches.filter(pl.col("captures") != 0)
    )
    # the start of an operator is no launch
    with_calls = device_work.with_columns(launch=pl.when("called").then("launch"))
    recorded = device_work.filter("called", kind="kernel").height
    moved = wrong_clocks(with_calls, sync_calls, recorded + lost.height)
    device_work = moved_by(device_work, moved)
    return Trace(
        facts=replace(
            stated,
            host=stated.host or _host_in_name(path, process),
            utc_start_ns=utc_start_ns,
            duration_ns=span.select(pl.col("end").max()).item(),
        ),
        ranges=Ranges.of(
            conform(
                waits_on_callers(ranges).sort("start", "end", descending=[False, True]),
                RANGES,
                optional=("payload",),  # ranges of PyTorch carry a name alone
                drop_others=True,
            )
        ),
        device_work=InMemoryWork(
            conform(device_work, DEVICE_WORK, drop_others=True),
            unrecorded=lost,
            unread=_strange(file),
            moved=moved,
            sync_calls=sync_calls,
        ),
        event_ranks=ranks,
        process_of=without_rank if owned.ranks else plain_process,
        cut_ns=complete_until(launches, device_work) if file.is_cut else None,
        pauses=tuple((begin - zero, end - zero) for begin, end in pauses),
        host_events=sum(events[nature].height for nature in (RANGE, LAUNCH, WORK, SPAN)),
        broken_ranges=incomplete + file.broken,
    )


def _decoded(path: Path, limits: Limits) -> tuple[EventFile, Frames]:
    """A file, and its events: nature → frame of SCHEMAS."""
    file = EventFile(path, limits)
    parts: dict[str, list[pl.DataFrame]] = {nature: [] for nature in SCHEMAS}
    for batch in file:
        for nature, frame in frames(batch, file).items():
            parts[nature].append(frame)
    return file, {nature: finished(nature, parts.pop(nature)) for nature in SCHEMAS}


def _strange(file: EventFile) -> tuple[str, ...]:
    """The message about events of a device whose kind is unknown."""
    if not file.strange:
        return ()
    kinds = and_more(
        [
            f"{first_printable([name]) or 'none'} ({count:,})"
            for name, count in file.strange.most_common()
        ],
        3,
    )
    return (f"events of a device whose categories are not known are left out: {kinds}",)


def _check(path: Path, file: EventFile, events: Frames, limits: Limits) -> None:
    """Refuse a file with too many names, or without events of the profiler."""
    if max(frame["name"].n_unique() for frame in (events[RANGE], events[WORK])) > limits.most_names:
        raise UnreadableReport(
            f"{path}: has more than {limits.most_names:,} different names of ranges or kernels",
            hint="do names of ranges contain numbers? Record them without",
        )
    if events[RANGE].is_empty() and events[WORK].is_empty():
        if file.is_cut:
            raise file.truncated()
        raise UnreadableReport(
            f"{path}: holds {counted(file.events, 'event')}, but no range and no work of a device",
            hint="name a trace of torch.profiler, recorded with ProfilerActivity.CPU and .CUDA",
        )


def _whole(events: Frames) -> tuple[Frames, int]:
    """The events that have all required columns, and the number of the others."""
    whole = {nature: frame.drop_nulls(NEEDED[nature]) for nature, frame in events.items()}
    incomplete = sum(
        frame.height - whole[nature].height for nature, frame in events.items() if nature != NAMED
    )
    host = pl.concat(whole[each].select("start") for each in (RANGE, LAUNCH))
    if (host["start"] > 0).all():  # records of kernels that lack their times have time 0
        whole[WORK] = whole[WORK].filter(pl.col("start") > 0)
    return whole, incomplete


def facts_of(about: list[About]) -> CaptureFacts:
    """Rank, host, GPU models and versions; no other field beside the events is kept."""
    claims: list[Claim] = []
    versions = [
        f"CUDA {each.cuda // 1000}.{each.cuda % 1000 // 10}"
        for each in about
        if isinstance(each.cuda, int) and 0 < each.cuda < MOST_RANKS
    ]
    for each in about:
        try:
            info = msgspec.json.decode(each.distributed, type=Distributed)
        except FAULTS:
            continue
        if isinstance(info.nccl_version, str):
            versions.append(f"NCCL {info.nccl_version}")
        if info.rank is not None and 0 <= info.rank < MOST_RANKS:
            world = info.world_size or 0  # 0 and what no job has are unknown
            claims.append(
                Claim(info.rank, world if 0 < world <= MOST_RANKS else None, DISTRIBUTED_INFO)
            )
    hosts = [each.host for each in about if isinstance(each.host, str) and each.host]
    return CaptureFacts(
        host=first_printable(hosts),
        utc_start_ns=None,
        duration_ns=None,
        environment=tuple(claims[:1]),
        local_rank=None,
        exporter=None,
        hardware=Hardware(
            software=first_printable([", ".join(versions)] if versions else []),
            gpus=tuple(gpu for each in about for gpu in _gpus(each)),
        ),
    )


def _gpus(about: About) -> list[Gpu]:
    """The devices by their models: a trace has neither their UUIDs nor their slots."""
    try:
        devices = msgspec.json.decode(about.devices, type=list[Device])
    except FAULTS:
        return []
    return [Gpu(None, each.id, None, first_printable([each.name]), None) for each in devices]


def _host_in_name(path: Path, process: int) -> str | None:
    """The host in the file's name, if the name also has the pid of the file's process."""
    match = WORKER_NAME.match(path.name)
    return first_printable([match[1]]) if match and int(match[2]) == process else None


def _utc(about: list[About], zero: int) -> int | None:
    """UTC of the file's time `zero`; older versions write UTC itself."""
    utc = zero + (base_time(about) or 0)
    return utc if OLDEST_UTC_NS < utc < 2**63 else None


def _without_record(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """The process and launch of the launches of kernels that no work has.

    A call within another one (of the driver's API, within one of the runtime's) is the same launch.
    """
    of_work, thread = ["process", "correlation", "nth"], ["process", "thread"]
    launches = calls.filter("kernel")
    if launches.join(work, on=of_work, how="anti").is_empty():
        return empty(UNRECORDED)
    is_outer = (pl.col("start") >= pl.col("end").cum_max().shift(1).over(thread)).fill_null(True)
    launches = launches.with_columns(outer=is_outer.cum_sum().over(thread))
    found = launches.join(work, on=of_work, how="semi")
    lost = launches.join(found, on=[*thread, "outer"], how="anti")
    return lost.unique([*thread, "outer"], keep="first").select("process", launch="start")


def _process(ranges: pl.DataFrame, launches: pl.DataFrame) -> int:
    """The process of the file: the one with the most host events."""
    counts = pl.concat([ranges["process"], launches["process"]]).value_counts()
    busiest = counts.sort("count", "process", descending=True)["process"]
    return int(busiest[0]) if len(busiest) else 0


def _communicating(work: pl.DataFrame, words: Vocabulary) -> pl.DataFrame:
    """Work with the `operation` that the user states, else the trace, else the kernel's name."""
    operations = words.operations(work)
    named = with_series(work, operations["operation"].alias("named"), operations["own"])
    return named.with_columns(operation=known("operation", "named", "own"))


def _device_work(
    work: pl.DataFrame,
    calls: pl.DataFrame,
    ranges: pl.DataFrame,
    process: int,
    owned: Owners,
) -> pl.DataFrame:
    """DEVICE_WORK and correlation, with the launch by a call, else by the operator it ran for.

    `called` says which it is.
    """
    within = owned.within
    if owned.process_of:
        owner_process = pl.col("owner").replace_strict(
            owned.process_of, default=None, return_dtype=pl.Int64
        )
        work = work.with_columns(process=owner_process)
    called = calls.select(
        "correlation", "process", "nth", "graph", launch="start", launch_thread="thread"
    )
    work = _numbered(work, calls, ["correlation", *within])
    joined = work.join(called, on=["correlation", "nth", *within], how="left")
    joined = joined.with_columns(called=pl.col("launch").is_not_null())
    if not joined["launch"].has_nulls():
        return _in_order(joined, process)
    ran_for = (
        ranges.filter(pl.col("external") != 0)
        .sort("start")
        .unique(["external", *within], keep="first", maintain_order=True)
        .select("external", *within, started="start", by="thread")
    )
    unlaunched = pl.col("launch").is_null() & (pl.col("started") <= pl.col("start"))
    joined = joined.join(ran_for, on=["external", *within], how="left").with_columns(
        launch=pl.when(unlaunched).then("started").otherwise("launch"),
        launch_thread=pl.when(unlaunched).then("by").otherwise("launch_thread"),
    )
    return _in_order(joined, process)


def _nth_calls(launches: pl.DataFrame, within: list[str]) -> pl.DataFrame:
    """API calls by start, with `nth`: how many earlier calls had the same number.

    A call within another one of its number is left out: an API that calls another one passes its
    number on.
    """
    key = ["correlation", *within]
    calls = launches.filter(pl.col("correlation") != 0).sort("start")
    if calls.height == calls.n_unique(key):
        return calls.with_columns(nth=pl.lit(0, pl.Int64))
    outer = (pl.col("start") >= pl.col("end").cum_max().shift(1).over(key)).fill_null(True)
    return calls.filter(outer).with_columns(nth=pl.int_range(pl.len()).over(key))


def _numbered(work: pl.DataFrame, calls: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Work with `nth`: which of the calls of its number launched it; null where that is unknown.

    Operations of a number that was used again are in the order of its calls, if none is missing.
    """
    if not calls["nth"].max():
        return work.with_columns(nth=pl.lit(0, pl.Int64))
    counted = calls.group_by(key).agg(calls=pl.len())
    nth, works = pl.int_range(pl.len()).over(key), pl.len().over(key)
    return (
        work.sort("start")
        .join(counted, on=key, how="left", maintain_order="left")
        .with_columns(
            nth=pl.when(pl.col("calls") == 1).then(0).when(pl.col("calls") == works).then(nth)
        )
        .drop("calls")
    )


def _in_order(work: pl.DataFrame, process: int) -> pl.DataFrame:
    """Device work by start; work that no call launched belongs to `process`, and to no graph."""
    whole = work.with_columns(
        pl.col("process").fill_null(process), pl.col("graph").fill_null(False)
    )
    return whole.sort("start").cast({"kind": DEVICE_WORK["kind"]})
