"""What every export has whatever ran (host, environment, session, enums), and the file itself."""

import sqlite3
import uuid
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from tests.forge.job import Schema
from tests.forge.record import RankRecord
from tests.forge.schema import create

Rows = list[tuple[object, ...]]

GLOBAL_VM = 1 << 48

POOL = (
    *("QnxKernelTrace", "GpuMetrics", "SocMetrics", "mm_", "task_submit", "class_id", "syncpt_id"),
    *("syncpt_thresh", "pid", "tid", "FTrace", "ETW", "bash", "nsys", "nsys-launcher", "[NSys]"),
)
"""Strings that exports hold before any of their own."""

ENUMS: dict[str, tuple[str, Rows]] = {
    "ENUM_NSYS_EVENT_TYPE": (
        "Nsys event type labels",
        [
            (number, name, name)
            for number, name in (
                (0, "Unknown"),
                (33, "NvtxCategory"),
                (34, "NvtxMark"),
                (39, "NvtxThread"),
                (59, "NvtxPushPopRange"),
                (60, "NvtxStartEndRange"),
                (75, "NvtxDomainCreate"),
                (76, "NvtxDomainDestroy"),
            )
        ],
    ),
    "ENUM_NSYS_EVENT_CLASS": (
        "Nsys event class labels",
        [
            (0, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
            (1, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
        ],
    ),
    "ENUM_CUDA_MEMCPY_OPER": (
        "CUDA memcpy operation labels",
        [
            (0, "CUDA_MEMCPY_KIND_UNKNOWN", "Unknown"),
            (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
            (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"),
            (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"),
            (10, "CUDA_MEMCPY_KIND_PTOP", "Peer-to-Peer"),
        ],
    ),
    "ENUM_CUDA_MEM_KIND": (
        "CUDA memory kind labels",
        [
            (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"),
            (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
            (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"),
        ],
    ),
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE": (
        "CUDA kernel launch type labels",
        [
            (0, "CUDA_KERNEL_LAUNCH_TYPE_UNKNOWN", "Unknown"),
            (1, "CUDA_KERNEL_LAUNCH_TYPE_REGULAR", "Regular"),
        ],
    ),
}


def enums(schema: Schema) -> dict[str, tuple[str, Rows]]:
    """Enum tables with comment and rows; 2022.4 misspells one of them."""
    older = schema == "2022.4"
    return {
        name.replace("KERNEL", "KRENEL") if older else name: content
        for name, content in ENUMS.items()
    }


def environment(record: RankRecord, rank_in_environment: bool) -> dict[str, str]:
    """The environment of the profiled command: what torchrun sets, or nothing of it."""
    who = record.identity
    if not rank_in_environment:
        return {}
    return {
        "RANK": str(who.rank),
        "LOCAL_RANK": str(who.local_rank),
        "WORLD_SIZE": str(who.world_size),
    }


def system_environment(record: RankRecord, schema: Schema, env: dict[str, str], gpu: bool) -> Rows:
    """TARGET_INFO_SYSTEM_ENV; the environment is joined by NUL in 2022.4, by `;` in 2023.4."""
    joined = ("\0" if schema == "2022.4" else ";").join(f"{k}={v}" for k, v in env.items())
    facts = (
        ("CpuCores", 1, "64"),
        ("CpuArchitecture", 3, "x86_64"),
        ("HasDiscreteGpu", 203, "1" if gpu else "0"),
        ("DeviceEnvironment", 610, joined),
        ("CudaDriverVersion", 611, "12.2" if gpu else "0.0"),
        ("Hostname", 619, record.identity.host),
    )
    return [(GLOBAL_VM, "Local (CLI)", name, number, value) for name, number, value in facts]


def capture_meta_data(record: RankRecord, env: dict[str, str], gpu: bool) -> Rows:
    """META_DATA_CAPTURE of 2023.4: one row per variable of the environment."""
    who = record.identity
    session = uuid.UUID(int=who.pid << 64 | who.rank + 1)
    rows: Rows = [("DEVICE_ID", "Local (CLI)"), ("CAPTURE_EVENT_TYPE", "NvtxEvents")]
    rows += [("CAPTURE_EVENT_TYPE", "Cuda")] if gpu else []
    rows += [("DEVICE_DISPLAY_NAME", who.host), ("PROCESS_0:COMMAND", "python3.11")]
    rows += [("PROCESS_0:ENVIRONMENT_VARIABLE", f'{key}="{value}"') for key, value in env.items()]
    return [*rows, ("PROFILING_SESSION_UUID", str(session))]


def export_meta_data(file_name: str, schema: Schema) -> Rows:
    """EXPORT_META_DATA of 2022.4, META_DATA_EXPORT of 2023.4."""
    older = schema == "2022.4"
    version = "3.0.0" if older else "3.7.2"
    prefix = "EXPORT_" if older else "EXPORT_PARAM_"
    source = file_name.removesuffix(".sqlite") + ".nsys-rep"
    rows: Rows = [
        ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
        ("EXPORT_PRODUCT_VERSION", "2022.4.2.1" if older else "2023.4.4.54"),
        ("EXPORT_PRODUCT_DATE", schema),
        ("EXPORT_SCHEMA_VERSION", version),
    ]
    parts = zip(("MAJOR", "MINOR", "MICRO"), version.split("."), strict=True)
    rows += [(f"EXPORT_SCHEMA_VERSION_{part}", number) for part, number in parts]
    rows += [("EXPORT_PLATFORM", "linux-desktop"), ("EXPORT_ARCH", "x64")]
    rows += [(f"{prefix}INPUT_FILE", source), (f"{prefix}OUTUPT_FILE", file_name)]
    rows += [(f"{prefix}OVERWRITE", "true"), (f"{prefix}LAZY", "true")]
    if not older:
        rows += [("EXPORT_PARAM_TIME_NORMALIZE", "false"), ("EXPORT_PARAM_TIME_SHIFT", "0")]
        rows += [("EXPORT_CONFIG_TIME_SHIFT", "0")]
    return rows


def session_start(record: RankRecord) -> Rows:
    """TARGET_INFO_SESSION_START_TIME: when the session began, as the host's clock tells it."""
    epoch = record.clock.utc_epoch()
    text = datetime.fromtimestamp(epoch // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return [(epoch, text, text)]


class StringPool:
    """The strings of one report and their ids."""

    def __init__(self) -> None:
        self.ids = {text: number for number, text in enumerate(POOL)}

    def __getitem__(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids))


def general_tables(
    record: RankRecord, name: str, schema: Schema, *, gpu: bool = True, with_rank: bool = True
) -> dict[str, Rows]:
    """The tables that say where, when and how a report called `name` was recorded."""
    env = environment(record, with_rank)
    older = schema == "2022.4"
    tables = {
        "TARGET_INFO_SYSTEM_ENV": system_environment(record, schema, env, gpu),
        "TARGET_INFO_SESSION_START_TIME": session_start(record),
        "EXPORT_META_DATA" if older else "META_DATA_EXPORT": export_meta_data(name, schema),
    }
    return tables if older else tables | {"META_DATA_CAPTURE": capture_meta_data(record, env, gpu)}


def write_export(
    path: Path,
    schema: Schema,
    tables: dict[str, Rows],
    pool: StringPool,
    layouts: Mapping[str, str] = {},
) -> Path:
    """Write tables, their strings and the enums; a file of that name is replaced.

    `layouts` has the CREATE TABLE statements of tables that `schema` does not describe.
    """
    path.unlink(missing_ok=True)
    strings = {"StringIds": [(number, text) for text, number in pool.ids.items()]}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = OFF")
        with connection:
            for table, rows in (tables | strings).items():
                if rows:  # a lazy export has no empty tables
                    _fill(connection, table, layouts.get(table) or create(table, schema), rows)
            for table, (comment, rows) in enums(schema).items():
                _fill(connection, table, create(table, schema, comment), rows)
    return path


def _fill(connection: sqlite3.Connection, table: str, sql: str, rows: Rows) -> None:
    connection.execute(sql)
    marks = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
