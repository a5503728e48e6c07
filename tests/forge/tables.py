"""What every export has whatever ran (host, environment, session), and the file itself."""

import sqlite3
import uuid
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from tests.forge.job import Schema
from tests.forge.record import RankRecord
from tests.forge.schema import create

Rows = list[tuple[object, ...]]

GLOBAL_VM = 1 << 48


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


def export_meta_data(schema: Schema) -> Rows:
    """EXPORT_META_DATA of 2022.4, META_DATA_EXPORT of 2023.4."""
    older = schema == "2022.4"
    return [
        ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
        ("EXPORT_PRODUCT_VERSION", "2022.4.2.1" if older else "2023.4.4.54"),
        ("EXPORT_SCHEMA_VERSION", "3.0.0" if older else "3.7.2"),
    ]


def session_start(record: RankRecord) -> Rows:
    """TARGET_INFO_SESSION_START_TIME: when the session began, as the host's clock tells it."""
    epoch = record.clock.utc_epoch()
    text = datetime.fromtimestamp(epoch // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return [(epoch, text, text)]


class StringPool:
    """The strings of one report and their ids."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids))


def general_tables(
    record: RankRecord, schema: Schema, *, gpu: bool, with_rank: bool
) -> dict[str, Rows]:
    """The tables that say where, when and how a report was recorded."""
    env = environment(record, with_rank)
    older = schema == "2022.4"
    tables = {
        "TARGET_INFO_SYSTEM_ENV": system_environment(record, schema, env, gpu),
        "TARGET_INFO_SESSION_START_TIME": session_start(record),
        "EXPORT_META_DATA" if older else "META_DATA_EXPORT": export_meta_data(schema),
    }
    return tables if older else tables | {"META_DATA_CAPTURE": capture_meta_data(record, env, gpu)}


def write_export(path: Path, schema: Schema, tables: dict[str, Rows], pool: StringPool) -> Path:
    """Write tables and their strings; a file of that name is replaced."""
    path.unlink(missing_ok=True)
    strings = {"StringIds": [(number, text) for text, number in pool.ids.items()]}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = OFF")
        with connection:
            for table, rows in (tables | strings).items():
                if rows:  # a lazy export has no empty tables
                    _fill(connection, table, create(table, schema), rows)
    return path


def _fill(connection: sqlite3.Connection, table: str, sql: str, rows: Rows) -> None:
    connection.execute(sql)
    marks = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
