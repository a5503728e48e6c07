"""Tables of Nsight Systems exports (schemas 2.9 of 2020 to 3.25 of 2026) → `Trace`.

Tables are found by name and column, since exports leave out empty tables and versions differ.
Row order has no meaning. The string pool holds environments of unrelated processes, so only the
strings that events refer to are ever read.
"""

import hashlib
from itertools import chain

import numpy as np
import polars as pl

from rankscope.errors import UnreadableReport
from rankscope.model.events import Events, InMemoryEvents, StreamedEvents
from rankscope.model.frames import framed, stacked, with_series
from rankscope.model.options import ShapingOptions
from rankscope.model.ranges import Ranges
from rankscope.model.reports import CaptureFacts, Loss, Trace
from rankscope.model.schema import RANGES, conform, empty
from rankscope.sources.columns.request import Columns
from rankscope.sources.columns.sqlite_pages import loader
from rankscope.sources.conventions import Vocabulary, vocabulary
from rankscope.sources.environment import claims_of, first_printable, local_rank_of
from rankscope.sources.nsys.common import PROCESS, Strings, process_of
from rankscope.sources.nsys.counters import counters
from rankscope.sources.nsys.device import device_work
from rankscope.sources.nsys.hardware import hardware
from rankscope.sources.nsys.host_calls import busiest
from rankscope.sources.nsys.host_events import host_events
from rankscope.sources.nsys.launches import Launches
from rankscope.sources.nsys.nvtx import Nvtx, nvtx
from rankscope.sources.nsys.session_time import on_session_axis
from rankscope.util.grouping import grouped

WARNING, ERROR = 2, 3
"""Severities of diagnostics (ENUM_DIAGNOSTIC_SEVERITY_LEVEL)."""

LOST = r"(?i)\bnot all\b.*\bevents\b|\bdropped\b|\blost\b"
"""Matches nsys's messages about missing events."""

MOST_LOSSES, LONGEST_LOSS = 20, 200

MPI_TABLES = (
    "MPI_COLLECTIVES_EVENTS",
    "MPI_P2P_EVENTS",
    "MPI_START_WAIT_EVENTS",
    "MPI_OTHER_EVENTS",
)

MPI_THREAD = r"^MPI Rank ([0-9]{1,9})$"
"""Names that nsys's own MPI trace gives threads."""

JAX_THREAD = r"^XlaLauncher:#global=[0-9]+,local=[0-9]+,process=([0-9]{1,7}),"
"""Names that XLA gives its launching threads, one for each device.

openxla/xla: xla/pjrt/gpu/se_gpu_pjrt_client.cc, NameDeviceAndLauncherThread. NVIDIA/JAX-Toolbox
looks for them in `ThreadNames` (nsys_jax/data_loaders.py and scripts/nsys_jax.py).
"""

SIGNS = ("TARGET_INFO_SYSTEM_ENV", "ANALYSIS_DETAILS", "StringIds", "NVTX_EVENTS")
"""An export of any age has one of these tables."""


def trace(file: Columns, words: Vocabulary | None = None) -> Trace:
    """The whole export as a trace; raises `UnreadableReport` if it is not a valid export."""
    known = facts(file)
    file = on_session_axis(file)
    loader.amount.expect(file.bytes)
    pool = Strings.read(file)
    nvtx_events = nvtx(file, pool, words)
    mpi = [_mpi(file, table, pool) for table in MPI_TABLES if file.has(table, "start", "textId")]
    ranges = _together(nvtx_events.ranges, mpi)
    launches = Launches(file, pool)
    threads = _thread_names(file, nvtx_events, pool)
    return Trace(
        facts=known,
        broken_ranges=nvtx_events.broken,
        ranges=ranges,
        device_work=device_work(
            file,
            pool,
            nvtx_events,
            launches,
            words or vocabulary(ShapingOptions()),
            known.duration_ns,
        ),
        process_ranks=_numbers(threads, MPI_THREAD) | _mpi_ranks(file),
        jax_processes=_numbers(threads, JAX_THREAD),
        host_events=nvtx_events.events + sum(map(len, mpi)),
        process_of=process_of,
        busiest=busiest(file) if ranges.signatures.is_empty() else {},
        host_of=host_events(file, pool, launches.pieces),
        counters_of=counters(file),
    )


def _together(ranges: Ranges, tables: list[pl.DataFrame]) -> Ranges:
    """Ranges together with RANGES of other tables, outer ranges first if they are in memory."""
    more = Ranges.of(stacked([empty(RANGES), *tables]))
    others = more.moments.whole
    others = with_series(others, others["signature"] + ranges.signatures.height)
    held = None
    if ranges.of_note is not None:
        held = InMemoryEvents(_outer_first(stacked([ranges.of_note.whole, others])))
    together: Events = StreamedEvents(lambda: chain(ranges.moments.parts(), [others]))
    if isinstance(ranges.moments, InMemoryEvents) and held is not None:
        together = held
    return Ranges(together, stacked([ranges.signatures, more.signatures]), held)


def _outer_first(moments: pl.DataFrame) -> pl.DataFrame:
    """MOMENTS by start, the longest of one start first; themselves where they are so already."""
    later, longer = (np.diff(moments[name].to_numpy()) for name in ("start", "end"))
    if ((later > 0) | (later == 0) & (longer <= 0)).all():
        return moments
    return moments.sort("start", "end", descending=[False, True])


def facts(file: Columns) -> CaptureFacts:
    """Host, times and rank evidence; raises `UnreadableReport` if it is not a valid export."""
    if not any(file.has(table) for table in SIGNS):
        raise UnreadableReport(
            f"{file.path}: holds tables, but is not an Nsight Systems export",
            hint="name the reports themselves, or the files that `nsys export` wrote",
        )
    system = _pairs(file, "TARGET_INFO_SYSTEM_ENV")
    capture = _pairs(file, "META_DATA_CAPTURE")
    exported = {**_pairs(file, "EXPORT_META_DATA"), **_pairs(file, "META_DATA_EXPORT")}
    # One variable a row in newer exports; else all of them in one string, joined by NUL or ";".
    own = [
        variable.replace('"', "") for variable in capture.get("PROCESS_0:ENVIRONMENT_VARIABLE", [])
    ]
    joined = "".join(system.get("DeviceEnvironment", [])[:1])
    command = joined.split("\x00" if "\x00" in joined else ";")
    return CaptureFacts(
        host=first_printable(system.get("Hostname", []) + capture.get("DEVICE_DISPLAY_NAME", [])),
        utc_start_ns=_single(file, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs"),
        duration_ns=_single(file, "ANALYSIS_DETAILS", "duration"),
        environment=claims_of(own) or claims_of(command),
        local_rank=local_rank_of(own or command),
        exporter=next(iter(exported.get("EXPORT_PRODUCT_VERSION", [])), None),
        losses=_losses(file),
        hardware=hardware(file, system, own + command),
    )


def session(file: Columns) -> str | None:
    """Text that windows of one session share: its id, else where and how it was started.

    None where that names no rank.
    """
    known = _pairs(file, "META_DATA_CAPTURE").get("PROFILING_SESSION_UUID")
    if known:
        return known[0]
    if not facts(file).environment:
        return None
    system = _pairs(file, "TARGET_INFO_SYSTEM_ENV")
    started = [*system.get("Hostname", []), *system.get("DeviceEnvironment", [])]
    return hashlib.sha256("\0".join(started).encode()).hexdigest()


def _losses(file: Columns) -> tuple[Loss, ...]:
    """nsys's messages about lost events; its other messages are not read."""
    if not file.has("DIAGNOSTIC_EVENT", "severity", "text"):
        return ()
    severe = ("severity", [WARNING, ERROR])
    messages = file.read("DIAGNOSTIC_EVENT", ["severity", "globalPid"], ["text"], only=severe)
    losses = (
        messages.filter(pl.col("text").str.contains(LOST))
        .select(pl.col("globalPid") // PROCESS, pl.col("text").str.slice(0, LONGEST_LOSS))
        .unique(maintain_order=True)
        .head(MOST_LOSSES)
    )
    return tuple(
        Loss(None if process is None else process_of(process).pid, text)
        for process, text in losses.iter_rows()
    )


def _pairs(file: Columns, table: str) -> dict[str, list[str]]:
    """A table of names and values: name → its values in their order."""
    if not file.has(table, "name", "value"):
        return {}
    pairs = file.read(table, [], ["name", "value"]).iter_rows()
    return grouped(pair for pair in pairs if None not in pair)


def _single(file: Columns, table: str, column: str) -> int | None:
    if not file.has(table, column):
        return None
    known = (value for value in file.read(table, [column])[column] if value is not None)
    return next(known, None)


def _mpi(file: Columns, table: str, pool: Strings) -> pl.DataFrame:
    """MPI calls of newer captures, as ranges of the domain `MPI`, as in older captures."""
    calls = file.read(table, ["start", "end", "globalTid", "textId"])
    whole = calls.drop_nulls(["start", "end", "globalTid"])
    ranges = whole.select(
        "start",
        "end",
        process=pl.col("globalTid") // PROCESS,
        thread="globalTid",
        domain=pl.lit("MPI"),
        name=pool.of(whole["textId"]).fill_null(""),
    )
    return conform(ranges, RANGES, optional=("payload",))  # calls of MPI have none


def _mpi_ranks(file: Columns) -> dict[int, int]:
    """Process → rank by the table MPI_RANKS."""
    if not file.has("MPI_RANKS", "globalTid", "rank"):
        return {}
    table = file.read("MPI_RANKS", ["globalTid", "rank"]).drop_nulls()
    ranks = table.select(pl.col("globalTid") // PROCESS, "rank").unique("globalTid", keep="first")
    return dict(ranks.iter_rows())


def _thread_names(file: Columns, nvtx: Nvtx, pool: Strings) -> pl.DataFrame:
    """`globalTid` and `text`: names given through NVTX, and the system's names."""
    if not file.has("ThreadNames", "globalTid", "nameId"):
        return nvtx.thread_names
    system = file.read("ThreadNames", ["globalTid", "nameId"])
    named = framed({"globalTid": system["globalTid"], "text": pool.of(system["nameId"])})
    return stacked([nvtx.thread_names, named])


def _numbers(names: pl.DataFrame, pattern: str) -> dict[int, int]:
    """Process → number in its threads' names, if all names with a number agree."""
    if not names["text"].str.contains(pattern).any():
        return {}
    ranks = (
        names.select(
            process=pl.col("globalTid") // PROCESS,
            number=pl.col("text").str.extract(pattern).cast(pl.Int64, strict=False),
        )
        .drop_nulls()
        .unique()
        .filter(pl.len().over("process") == 1)
    )
    return dict(ranks.iter_rows())
