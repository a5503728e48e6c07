"""Makes the reduced captures of this folder from whole ones.

`python -m tests.captures.reduce ORIGINALS [OUT]` reads the folder that holds the whole captures and
writes what `CAPTURES` lists. Everything that may be about a person or a machine goes: only the
tables and rows named here stay.
"""

import gzip
import lzma
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from rankscope.sources.environment import LOCAL_RANK_VARIABLES, RANK_VARIABLES

HERE = Path(__file__).parent

CAPTURES = (
    "captured/2022.4/ddp_a",
    "captured/2022.4/ddp_b",
    "captured/2022.4/killed",
    "captured/2022.4/mpi",
    "captured/2022.4/one_report",
    "captured/2023.4/ddp_a",
    "captured/2023.4/why_fsync",
    "captured/2023.4/why_gc",
    "captured/2023.4/why_hot",
    "captured/2023.4/why_preempted",
    "captured/torch/ddp_overlapped",
    "public/nsys/mfu_2gpu_before.sqlite",
    "public/kineto/astrasim_2ranks",
    "public/kineto/hta_gpu_user_annotation.json.gz",
    "public/kineto/hta_nccl_metadata_rank0.json.gz",
)
"""Files, and folders whose exports and traces are taken, by their path below the originals."""

EVENTS = (
    "NVTX_EVENTS",
    "NVTX_PAYLOAD_SCHEMAS",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
)
"""Tables that stay as they are."""

OF_THREADS = ("SCHED_EVENTS", "OSRT_API", "COMPOSITE_EVENTS", "PROFILER_OVERHEAD")
"""Tables of which the rows of threads with ranges stay, with the stacks of their samples."""

STACKS, PYTHON = "SAMPLING_CALLCHAINS", "PYTHON_SAMPLES"

OTHERS = ("ANALYSIS_DETAILS", "TARGET_INFO_SESSION_START_TIME", "StringIds", "ThreadNames")
"""Tables that stay; of strings and thread names only those that an event refers to."""

PAIRS = {
    "TARGET_INFO_SYSTEM_ENV": ("Hostname", "DeviceEnvironment"),
    "META_DATA_CAPTURE": ("PROCESS_0:ENVIRONMENT_VARIABLE",),
    "EXPORT_META_DATA": ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"),
    "META_DATA_EXPORT": ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"),
}
"""Tables of names and values, and the names that stay in them."""

STRING_COLUMNS = (
    "symbol",
    "module",
    "textId",
    "nameId",
    "jsonTextId",
    "demangledName",
    "shortName",
    "mangledName",
    "function",
    "file",
    "outermost",
)
"""Columns that hold ids of strings."""

VARIABLES = {name for pair in RANK_VARIABLES for name in pair} | {*LOCAL_RANK_VARIABLES}
"""Environment variables that stay: ranks and the size of the world."""

HOSTS = ("node0", "node1")
"""Host names that stay, since the tests compare hosts; any other becomes `host`."""

TRACE_KEYS = ("schema", "schemaVersion", "distributedInfo", "baseTimeNanoseconds")
"""What stays of a trace beside its events."""


DROPPED_EVENTS = (b'"python_function"', b'"ac2g"', b'"fwdbwd"')
"""Categories of trace events that go: names of source files, and arrows."""


def reduce_export(export: Path, into: Path) -> None:
    """Writes the reduced copy of an SQLite export, compressed."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "export.sqlite"
        shutil.copyfile(export, work)
        with closing(sqlite3.connect(work, isolation_level=None)) as file:
            file.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            _drop(file)
            for table, names in PAIRS.items():
                _keep_pairs(file, table, names)
            _keep_threads(file)
            _keep_referenced(file)
            file.execute("vacuum")
        into.write_bytes(lzma.compress(work.read_bytes(), preset=9 | lzma.PRESET_EXTREME))


def reduce_trace(trace: Path, into: Path) -> None:
    """Writes the reduced copy of a trace of the PyTorch profiler; numbers keep all their digits."""
    document = msgspec.json.decode(gzip.decompress(trace.read_bytes()), type=dict[str, msgspec.Raw])
    kept: dict[str, Any] = {key: document[key] for key in TRACE_KEYS if key in document}
    if "nodes" in document:  # an execution trace, which rankscope refuses: the first nodes will do
        kept["nodes"] = msgspec.json.decode(document["nodes"], type=list[msgspec.Raw])[:20]
    else:
        events = msgspec.json.decode(document["traceEvents"], type=list[dict[str, msgspec.Raw]])
        kept["traceEvents"] = [
            event for event in events if bytes(event.get("cat", b"")) not in DROPPED_EVENTS
        ]
    into.write_bytes(gzip.compress(msgspec.json.encode(kept), mtime=0))


def _drop(file: sqlite3.Connection) -> None:
    for (table,) in file.execute("select name from sqlite_master where type = 'table'").fetchall():
        if table not in (*EVENTS, *OTHERS, *PAIRS, *OF_THREADS, STACKS, PYTHON):
            file.execute(f'drop table "{table}"')


def _tables(file: sqlite3.Connection) -> set[str]:
    return {name for (name,) in file.execute("select name from sqlite_master where type = 'table'")}


def _keep_threads(file: sqlite3.Connection) -> None:
    """Keeps what the threads with ranges did while they had some; modules without their folders."""
    tables = _tables(file)
    [(begin, end)] = file.execute(
        "select min(start), max(end) from NVTX_EVENTS where eventType = 59"
    ).fetchall() or [(0, 0)]
    ranged = "select globalTid from NVTX_EVENTS where eventType in (59, 60)"
    for table in OF_THREADS:
        if table in tables:
            file.execute(f"delete from {table} where globalTid not in ({ranged})")
            file.execute(f"delete from {table} where start not between ? and ?", [begin, end])
    if STACKS in tables:
        file.execute(f"delete from {STACKS} where id not in (select id from COMPOSITE_EVENTS)")
        file.execute(f"update {STACKS} set originalIP = null")
        _drop_folders(file, STACKS, "module")
    if PYTHON in tables:
        file.execute(f"delete from {PYTHON} where start not between ? and ?", [begin, end])
        _drop_folders(file, PYTHON, "file")


def _drop_folders(file: sqlite3.Connection, table: str, column: str) -> None:
    """Leave the last part of the paths that a column refers to."""
    used = f"select distinct {column} from {table}"
    for number, text in file.execute(
        f"select id, value from StringIds where id in ({used})"
    ).fetchall():
        name = text.rpartition("/")[2]
        file.execute("update StringIds set value = ? where id = ?", [name, number])


def _keep_pairs(file: sqlite3.Connection, table: str, names: tuple[str, ...]) -> None:
    if table not in _tables(file):
        return
    for row, name, value in file.execute(f"select rowid, name, value from {table}").fetchall():
        kept = _reduced(name, value or "") if name in names else None
        if kept is None:
            file.execute(f"delete from {table} where rowid = ?", [row])
        else:
            file.execute(f"update {table} set value = ? where rowid = ?", [kept, row])


def _reduced(name: str, value: str) -> str | None:
    if name == "Hostname":
        return value if value in HOSTS else "host"
    if name == "DeviceEnvironment":
        separator = "\x00" if "\x00" in value else ";"
        parts = value.split(separator)
        return separator.join(part for part in parts if part.partition("=")[0] in VARIABLES)
    if name == "PROCESS_0:ENVIRONMENT_VARIABLE":
        return value if value.replace('"', "").partition("=")[0] in VARIABLES else None
    return value


def _keep_referenced(file: sqlite3.Connection) -> None:
    tables = _tables(file)
    threads = " union ".join(
        f"select globalTid from {table}"
        for table in ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME")
        if table in tables
    )
    if "ThreadNames" in tables:
        file.execute(f"delete from ThreadNames where globalTid not in ({threads})")
    columns = [
        (table, column)
        for table in tables
        for (column,) in file.execute("select name from pragma_table_info(?)", [table])
        if column in STRING_COLUMNS
    ]
    strings = " union ".join(f'select "{column}" as id from {table}' for table, column in columns)
    file.execute(
        f"delete from StringIds where id not in (select id from ({strings}) where id is not null)"
    )


def main(originals: Path, out: Path) -> None:
    """Reduces everything that `CAPTURES` lists."""
    for name in CAPTURES:
        source = originals / name
        for path in sorted(source.iterdir()) if source.is_dir() else [source]:
            target = out / path.relative_to(originals)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.name.endswith(".json.gz"):
                reduce_trace(path, target)
            elif path.suffix == ".sqlite":
                reduce_export(path, target.with_name(f"{target.name}.xz"))
            elif path.name.endswith(".sqlite.xz"):
                with tempfile.TemporaryDirectory() as folder:
                    whole = Path(folder) / path.stem
                    whole.write_bytes(lzma.decompress(path.read_bytes()))
                    reduce_export(whole, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else HERE)
