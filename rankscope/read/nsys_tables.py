"""Tables of Nsight Systems exports (schemas 2.9 of 2020 to 3.25 of 2026) → `Trace`.

Tables are found by name and column, since exports leave out empty tables and versions differ.
Row order means nothing. The string pool holds environments of unrelated processes: only the
strings that an event refers to are ever looked at.
"""

from __future__ import annotations

import polars as pl

from rankscope.errors import UnreadableReport
from rankscope.events import Held
from rankscope.read.device_kinds import device_kinds
from rankscope.read.environment import claims_of, first_printable, local_rank_of
from rankscope.read.nsys_columns import PROCESS, RANGE_TYPES, Columns, require, strings
from rankscope.read.nsys_device import device_work
from rankscope.records import CaptureFacts, Loss, Trace
from rankscope.schema import RANGES, conform

THREAD_NAME, DOMAIN = 39, 75
"""NVTX event types that name things (ENUM_NSYS_EVENT_TYPE)."""

WARNING, ERROR = 2, 3
"""Severities of diagnostics (ENUM_DIAGNOSTIC_SEVERITY_LEVEL)."""

LOST = r"(?i)\bnot all\b.*\bevents\b|\bdropped\b|\blost\b"
"""How nsys puts it that events are missing."""

MOST_LOSSES, LONGEST_LOSS = 20, 200

MPI_TABLES = (
    "MPI_COLLECTIVES_EVENTS",
    "MPI_P2P_EVENTS",
    "MPI_START_WAIT_EVENTS",
    "MPI_OTHER_EVENTS",
)

MPI_THREAD = r"^MPI Rank (\d{1,9})$"
"""Names of threads by nsys's own MPI trace."""

JAX_THREAD = r"^XlaLauncher:#global=\d+,local=\d+,process=(\d{1,7}),"
"""Names that XLA gives the threads which launch work, one a device.

openxla/xla: xla/pjrt/gpu/se_gpu_pjrt_client.cc, NameDeviceAndLauncherThread. NVIDIA/JAX-Toolbox
looks for them in `ThreadNames` (nsys_jax/data_loaders.py and scripts/nsys_jax.py).
"""

SIGNS = ("TARGET_INFO_SYSTEM_ENV", "ANALYSIS_DETAILS", "StringIds", "NVTX_EVENTS")
"""An export of any age has one of these tables."""


def trace(file: Columns) -> Trace:
    """The whole export as a trace; raises `UnreadableReport` where it is none."""
    known = facts(file)
    pool = strings(file)
    nvtx, broken = _nvtx(file, pool)
    mpi = [_mpi(file, table, pool) for table in MPI_TABLES if file.has(table, "start", "textId")]
    process_ranks = _told_by_threads(file, nvtx, pool, MPI_THREAD) | _mpi_ranks(file)
    jax_processes = _told_by_threads(file, nvtx, pool, JAX_THREAD)
    events = nvtx.height + sum(map(len, mpi))
    ranges = pl.concat([_ranges(nvtx), *mpi]).sort("start", "end", descending=[False, True])
    del nvtx, mpi  # as large as the ranges, and no longer needed while the rest is read
    work = device_work(file, pool)
    return Trace(
        facts=known,
        broken_rows=broken + work.broken,
        ranges=Held(ranges),
        device_work=Held(work.frame),
        device_kinds=device_kinds(work.frame),
        process_ranks=process_ranks,
        jax_processes=jax_processes,
        events=events + work.frame.height + work.launches,
        unread=work.unread,
    )


def facts(file: Columns) -> CaptureFacts:
    """Host, times and rank evidence; raises `UnreadableReport` where it is no export."""
    if not any(file.has(table) for table in SIGNS):
        raise UnreadableReport(
            f"{file.path}: holds tables, but is not an Nsight Systems export",
            hint="name the reports themselves, or what `nsys export` wrote of them",
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
    )


def _losses(file: Columns) -> tuple[Loss, ...]:
    """What nsys says it lost; what it says of anything else is not looked at."""
    if not file.has("DIAGNOSTIC_EVENT", "severity", "text"):
        return ()
    severe = ("severity", [WARNING, ERROR])
    said = file.read("DIAGNOSTIC_EVENT", ["severity", "globalPid"], ["text"], only=severe)
    losses = (
        said.filter(pl.col("text").str.contains(LOST))
        .select(pl.col("globalPid") // PROCESS, pl.col("text").str.slice(0, LONGEST_LOSS))
        .unique(maintain_order=True)
        .head(MOST_LOSSES)
    )
    return tuple(Loss(process, text) for process, text in losses.iter_rows())


def _pairs(file: Columns, table: str) -> dict[str, list[str]]:
    """A table of names and values, values of one name in their order."""
    if not file.has(table, "name", "value"):
        return {}
    pairs: dict[str, list[str]] = {}
    for name, value in file.read(table, [], ["name", "value"]).iter_rows():
        if name is not None and value is not None:
            pairs.setdefault(name, []).append(value)
    return pairs


def _single(file: Columns, table: str, column: str) -> int | None:
    if not file.has(table, column):
        return None
    return next(iter(file.read(table, [column])[column].drop_nulls()), None)


def _nvtx(file: Columns, pool: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """NVTX events with their names looked up, and how many rows were broken."""
    columns = ["start", "end", "eventType", "globalTid", "domainId", "textId"]
    payloads = ["int64Value", "uint64Value", "int32Value", "uint32Value"]
    if not file.has("NVTX_EVENTS"):
        schema = dict.fromkeys([*columns, "payload"], pl.Int64) | {"text": pl.String}
        return pl.DataFrame(schema=schema), 0
    require(file, "NVTX_EVENTS", "start", "end", "eventType", "globalTid")
    kinds = ("eventType", [*RANGE_TYPES, THREAD_NAME, DOMAIN])
    broken = 0
    parts: list[pl.DataFrame] = []
    for piece in file.pieces("NVTX_EVENTS", columns + payloads, ["text"], only=kinds):
        whole = piece.drop_nulls(["start", "globalTid"])
        broken += piece.height - whole.height
        # A payload column without a value, as most are, takes no room while the rest is read.
        blank = [name for name in payloads if whole[name].null_count() == whole.height]
        parts.append(
            whole.drop(blank)
            .join(pool, on="textId", how="left")
            .with_columns(_plain_name(), domainId=pl.col("domainId").fill_null(0))
            .drop("string", "textId")
        )
    told = [name for name in payloads if any(_tells(part, name) for part in parts)]
    return pl.concat(_with_payload(part, payloads, told) for part in parts), broken


def _tells(part: pl.DataFrame, payload: str) -> bool:
    """Whether a payload column has a value: the oldest exports write 0 throughout for "none"."""
    return payload in part.columns and bool((part[payload] != 0).any())


def _with_payload(part: pl.DataFrame, payloads: list[str], told: list[str]) -> pl.DataFrame:
    """Events with the first of the payload columns that tell something."""
    values = [pl.col(name) for name in told if name in part.columns]
    payload = pl.coalesce(*values, pl.lit(None, pl.Int64)).alias("payload")
    return part.with_columns(payload).drop(payloads, strict=False)


def _ranges(nvtx: pl.DataFrame) -> pl.DataFrame:
    """Push/pop and start/end ranges; domain numbers are private to a process."""
    ranges = (
        nvtx.lazy()
        .filter(
            pl.col("eventType").is_in(RANGE_TYPES)
            & pl.col("end").is_not_null()
            & (pl.col("end") >= pl.col("start"))
        )
        .select(
            "start",
            "end",
            "domainId",
            "payload",
            process=pl.col("globalTid") // PROCESS,
            thread="globalTid",
            name=pl.col("text").fill_null(""),
        )
        .collect()
    )
    same = ["process", "domainId"]
    domains = (
        nvtx.filter(pl.col("eventType") == DOMAIN)
        .select(process=pl.col("globalTid") // PROCESS, domainId="domainId", domain="text")
        .unique(same, keep="first", maintain_order=True)
    )
    if domains.is_empty() and not (ranges["domainId"] != 0).any():
        return conform(ranges.with_columns(domain=pl.lit("")), RANGES)
    known = _unnamed_domains(ranges).join(domains, on=same, how="left")
    domain = ranges.select(same).join(
        known.select(*same, domain=pl.coalesce("domain", "told")),
        on=same,
        how="left",
        maintain_order="left",
    )
    return conform(ranges.with_columns(domain["domain"]), RANGES)


def _unnamed_domains(ranges: pl.DataFrame) -> pl.DataFrame:
    """What each domain is where its creation came before the capture began: its names tell."""
    own = pl.col("domainId") != 0
    return ranges.group_by("process", "domainId").agg(
        told=pl.when(own.any() & pl.col("name").str.contains("^nccl[A-Z]").all())
        .then(pl.lit("NCCL"))
        .when(own.any() & pl.col("name").str.contains("^MPI_[A-Z]").all())
        .then(pl.lit("MPI"))
        .otherwise(pl.lit(""))
    )


def _plain_name() -> pl.Expr:
    """Texts of events; those of ranges without what torch's emit_nvtx makes unique to a call."""
    details = r", (seq|op_id|sizes|input_op_ids) = .*$"
    text = pl.coalesce("text", "string")
    named = pl.col("eventType").is_in(RANGE_TYPES)
    return pl.when(named).then(text.str.replace(details, "")).otherwise(text).alias("text")


def _mpi(file: Columns, table: str, pool: pl.DataFrame) -> pl.DataFrame:
    """MPI calls of newer captures, as ranges of the domain `MPI` like older ones have them."""
    calls = file.read(table, ["start", "end", "globalTid", "textId"])
    ranges = (
        calls.drop_nulls(["start", "end", "globalTid"])
        .join(pool, on="textId", how="left")
        .select(
            "start",
            "end",
            process=pl.col("globalTid") // PROCESS,
            thread="globalTid",
            domain=pl.lit("MPI"),
            name=pl.col("string").fill_null(""),
        )
    )
    return conform(ranges, RANGES)


def _mpi_ranks(file: Columns) -> dict[int, int]:
    """Process → rank by the table MPI_RANKS."""
    if not file.has("MPI_RANKS", "globalTid", "rank"):
        return {}
    table = file.read("MPI_RANKS", ["globalTid", "rank"]).drop_nulls()
    ranks = table.select(pl.col("globalTid") // PROCESS, "rank").unique("globalTid", keep="first")
    return dict(ranks.iter_rows())


def _told_by_threads(
    file: Columns, nvtx: pl.DataFrame, pool: pl.DataFrame, pattern: str
) -> dict[int, int]:
    """Process → number in its threads' names, where all that have one agree.

    Names given through NVTX stand in events of their own, and among the system's names.
    """
    names = nvtx.filter(pl.col("eventType") == THREAD_NAME).select("globalTid", "text")
    if file.has("ThreadNames", "globalTid", "nameId"):
        system = file.read("ThreadNames", ["globalTid", "nameId"]).join(
            pool, left_on="nameId", right_on="textId"
        )
        names = pl.concat([names, system.select("globalTid", text="string")])
    told = (
        names.select(
            process=pl.col("globalTid") // PROCESS,
            number=pl.col("text").str.extract(pattern).cast(pl.Int64),
        )
        .drop_nulls()
        .unique()
        .filter(pl.len().over("process") == 1)
    )
    return dict(told.iter_rows())
