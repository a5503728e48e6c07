"""A copy of an SQLite export without what may be about people and machines.

Lists say what stays: tables, columns, and of strings those of ranges, kernels, calls and functions.
Whatever is on no list is left out, so that what a future version of nsys adds is left out too.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from rankscope.errors import UnreadableReport, UsageError
from rankscope.sources.environment import LOCAL_RANK_VARIABLES, RANK_VARIABLES
from rankscope.util.atomic_io import check_writable

STRINGS = "StringIds"

NUMBERS = {
    "ANALYSIS_DETAILS": "duration startTime stopTime",
    "COMPOSITE_EVENTS": "id start cpu threadState globalTid cpuCycles",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId contextId streamId correlationId "
    "globalPid graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId contextId streamId correlationId globalPid "
    "gridX gridY gridZ blockX blockY blockZ graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId contextId streamId correlationId globalPid "
    "bytes copyKind srcKind dstKind graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId streamId correlationId globalPid "
    "bytes memKind graphNodeId",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "start end globalTid overheadKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId returnValue",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start end deviceId contextId streamId correlationId "
    "globalPid syncType",
    "MPI_COLLECTIVES_EVENTS": "start end globalTid size rootRank",
    "MPI_OTHER_EVENTS": "start end globalTid",
    "MPI_P2P_EVENTS": "start end globalTid size remoteRank tag",
    "MPI_RANKS": "globalTid rank",
    "MPI_START_WAIT_EVENTS": "start end globalTid",
    "NVTX_EVENTS": "start end eventType rangeId category globalTid endGlobalTid domainId "
    "uint64Value int64Value doubleValue uint32Value int32Value floatValue",
    "OSRT_API": "start end globalTid returnValue nestingLevel",
    "PROFILER_OVERHEAD": "start end globalTid",
    "SAMPLING_CALLCHAINS": "id kernelMode unresolved stackDepth",
    "SCHED_EVENTS": "start cpu isSchedIn globalTid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
}
"""Table → its columns whose numbers stay. Any other table is dropped, but those below."""

DECLARED = {"text": "TEXT", "doubleValue": "REAL", "floatValue": "REAL"}
"""Column → its declared type; of others INTEGER."""

NAMED_RANGES = "eventType in (33, 59, 60, 75)"
"""Rows of NVTX_EVENTS whose text stays: categories, ranges and domains, no marks."""

STRING_IDS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "shortName demangledName",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "nameId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "nameId",
    "MPI_COLLECTIVES_EVENTS": "textId",
    "MPI_OTHER_EVENTS": "textId",
    "MPI_P2P_EVENTS": "textId",
    "MPI_START_WAIT_EVENTS": "textId",
    "OSRT_API": "nameId",
    "SAMPLING_CALLCHAINS": "symbol module",
}
"""Table → columns with ids of strings that stay; paths among them lose their folders."""

PAIRS = {
    "EXPORT_META_DATA": ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"),
    "META_DATA_EXPORT": (
        "EXPORT_PRODUCT_VERSION",
        "EXPORT_SCHEMA_VERSION",
        "EXPORT_CONFIG_TIME_SHIFT",
    ),
}
"""Table of names and values → the names whose values stay, if they are versions or numbers."""

VARIABLES = {name for rank, size, _ in RANK_VARIABLES for name in (rank, size)} | {
    *LOCAL_RANK_VARIABLES
}
"""Environment variables that stay where they are numbers: of ranks and the world's size."""

ENVIRONMENTS = (
    ("META_DATA_CAPTURE", "PROCESS_0:ENVIRONMENT_VARIABLE"),
    ("TARGET_INFO_SYSTEM_ENV", "DeviceEnvironment"),
)
"""Tables of names and values, and the name of the rows with the environment."""


def scrub(report: Path, target: Path, host: str | None = None) -> None:
    """Write the copy of an SQLite export that can be given to others.

    It holds no environment but the variables of ranks, no command lines, no user and host names,
    no paths, and no text but names of ranges, domains, kernels, calls and functions.

    Args:
        report: the export; it is not changed.
        target: where to; what was there is replaced, once the copy is whole.
        host: the name to write in place of the host's; None: none.

    Raises:
        UnreadableReport: it is no SQLite export, or damaged.
        UsageError: the copy cannot be written there, or would replace the report.
    """
    check_writable(target)
    if not report.is_file():
        raise UnreadableReport(f"{report}: no such file", hint="name one .sqlite export")
    if target.exists() and target.samefile(report):
        raise UsageError(f"{target}: is the report itself", hint="name another file with -o")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            uri = f"file:{quote(os.fsencode(report.resolve()))}?mode=ro"
            copy.execute("attach ? as report", [uri])
            copy.execute("pragma main.journal_mode = off")
            _copy(copy, host)
        os.replace(partial, target)
    except sqlite3.Error as error:
        raise UnreadableReport(
            f"{report}: cannot be read as an SQLite export",
            hint="is it complete? export it again: nsys export -t sqlite REPORT.nsys-rep",
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _copy(copy: sqlite3.Connection, host: str | None) -> None:
    copy.text_factory = bytes
    tables = copy.execute("select name from report.sqlite_master where type = 'table'")
    have = {name.decode("utf-8", "replace") for (name,) in tables}
    if not have & {"NVTX_EVENTS", STRINGS, "ANALYSIS_DETAILS", "TARGET_INFO_SYSTEM_ENV"}:
        raise sqlite3.DatabaseError("not an export")
    copy.create_function("without_folders", 1, _without_folders, deterministic=True)
    copy.execute("begin")
    references = [_copy_numbers(copy, table) for table in NUMBERS if table in have]
    if STRINGS in have:
        _copy_strings(copy, [each for some in references for each in some])
    for table, names in PAIRS.items():
        if table in have:
            _copy_pairs(copy, table, names)
    for table, name in ENVIRONMENTS:
        if table in have:
            _copy_environment(copy, table, name)
    if host is not None:
        copy.execute('create table if not exists "TARGET_INFO_SYSTEM_ENV" (name TEXT, value TEXT)')
        copy.execute("insert into TARGET_INFO_SYSTEM_ENV values ('Hostname', ?)", [host])
    copy.execute("commit")


def _copy_numbers(copy: sqlite3.Connection, table: str) -> list[tuple[str, str]]:
    """Copy a table; gives it with each of its columns of ids of strings."""
    found = copy.execute("select name from pragma_table_info(?, 'report')", [table])
    have = {name.decode("utf-8", "replace") for (name,) in found}
    numbers = [name for name in NUMBERS[table].split() if name in have]
    ids = [name for name in STRING_IDS.get(table, "").split() if name in have]
    values = {name: _number(name) for name in [*numbers, *ids]}
    if table == "NVTX_EVENTS":
        # The ids of other rows lead to marks and threads; their numbers alone tell nothing.
        if "textId" in have:
            ids.append("textId")
            values["textId"] = f"iif({NAMED_RANGES}, {_number('textId')}, null)"
        if "text" in have:
            values["text"] = f"iif({NAMED_RANGES}, cast(text as text), {MPI_THREAD})"
    columns = ", ".join(f'"{name}" {DECLARED.get(name, "INTEGER")}' for name in values)
    copy.execute(f'create table main."{table}" ({columns})')
    copy.execute(
        f'insert into main."{table}" select {", ".join(values.values())} from report."{table}"'
    )
    return [(table, name) for name in ids]


MPI_THREAD = (
    "iif(eventType = 39 and text glob 'MPI Rank [0-9]*' and not text glob 'MPI Rank *[^0-9]*', "
    "text, null)"
)
"""The name of a thread stays only if it is nsys's own word for a rank."""


def _number(name: str) -> str:
    return f"iif(typeof(\"{name}\") in ('integer', 'real'), \"{name}\", null)"


def _copy_strings(copy: sqlite3.Connection, references: list[tuple[str, str]]) -> None:
    copy.execute(f"create table main.{STRINGS} (id INTEGER, value TEXT)")
    if not references:
        return
    used = " union ".join(f'select "{column}" from main."{table}"' for table, column in references)
    copy.execute(
        f"insert into main.{STRINGS} select id, without_folders(cast(value as blob)) "
        f"from report.{STRINGS} where typeof(id) = 'integer' and id in ({used})"
    )


def _without_folders(value: bytes | None) -> str | None:
    """A string; of a path only the file's name."""
    if value is None:
        return None
    text = value.decode("utf-8", "replace")
    is_path = text.startswith(("/", "~", "\\\\")) or text[1:3] in (":\\", ":/")
    return text.replace("\\", "/").rpartition("/")[2] if is_path else text


def _copy_pairs(copy: sqlite3.Connection, table: str, names: tuple[str, ...]) -> None:
    copy.execute(f'create table main."{table}" (name TEXT, value TEXT)')
    marks = ", ".join("?" * len(names))
    copy.execute(
        f'insert into main."{table}" select name, value from report."{table}" '
        f"where name in ({marks}) and length(value) < 60 and not value glob '*[^0-9.a-zA-Z-]*'",
        names,
    )


def _copy_environment(copy: sqlite3.Connection, table: str, name: str) -> None:
    copy.execute(f'create table main."{table}" (name TEXT, value TEXT)')
    rows = copy.execute(
        f'select cast(value as blob) from report."{table}" where name = ?', [name]
    ).fetchall()
    for (value,) in rows:
        text = (value or b"").decode("utf-8", "replace")
        split = "\x00" if "\x00" in text else ";"
        parts = [part.replace('"', "").partition("=") for part in text.split(split)]
        kept = [
            f"{key}={number}"
            for key, _, number in parts
            if key in VARIABLES and number.isascii() and number.isdigit() and len(number) < 10
        ]
        if kept:
            copy.execute(f'insert into main."{table}" values (?, ?)', [name, ";".join(kept)])
