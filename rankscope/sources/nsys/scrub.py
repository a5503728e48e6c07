"""A copy of an SQLite export without what may be about people and machines.

Lists say what stays: tables, columns, and of strings those of ranges, kernels, calls and functions.
Whatever is on no list is left out, so that what a future version of nsys adds is left out too.
"""

import errno
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from rankscope.errors import UnreadableReport, UsageError
from rankscope.sources.columns.request import export_again
from rankscope.sources.environment import LOCAL_RANK_VARIABLES, RANK_VARIABLES
from rankscope.util.atomic_io import unwritable, written_whole

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
"""Table → columns with ids of strings that stay; paths in them lose their folders."""

MODULES = ("SAMPLING_CALLCHAINS", "module")
"""The column with ids of the files that functions are in: libraries and programs."""

PAIRS = {
    "EXPORT_META_DATA": ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"),
    "META_DATA_EXPORT": (
        "EXPORT_PRODUCT_VERSION",
        "EXPORT_SCHEMA_VERSION",
        "EXPORT_CONFIG_TIME_SHIFT",
    ),
}
"""Table of names and values → the names whose values stay, if they are versions or numbers."""

AFTER_PATH = re.compile(r"(:\d+(?![\w.]*[\\/])|\n)")
"""What ends a path within a text, besides the text's end: the number of a line, as in
`lambda at /folder/file.cu:12:3`."""

PATH = re.compile(
    r"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/]*/?"  # an address
    r"|(?<!\w)[A-Za-z]:[\\/]"
    r"|\\\\(?=\w)"
    r"|(?<!\w)~[\w.-]{0,64}[\\/]"
    r"|(?<![\w.])\.\.?[\\/]"
    r"|/(?:home|Users|root)/"  # wherever, as in `-I/home/somebody`
    r"|(?<![\w.)\]}>/])/+(?=[^\s/])"
)
"""Where a path begins that leads from a root, a home or the folder of the program. Names of ranges
as `block/attention` and `3/100` are none."""

LIBRARY = re.compile(r"\.so(\.[\d.]+)?$|\.dll$|\.dylib$|^python[\d.]*$|^\[.*\]$", re.IGNORECASE)
"""Modules that are no programs of the user: libraries, the interpreter, the kernel."""

PACKAGES = re.compile(r"/(site-packages|dist-packages|lib(64)?/python[\d.]+)/")
"""Folders of installed Python packages."""

PROGRAM = "program"
"""The name that other modules get."""

UNWRITTEN = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
}
"""Codes of errors of the copy: the report is only read."""

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

    It holds no environment but the variables of ranks, no command lines, no names of users, hosts
    and programs, no paths, and no text but names of ranges, domains, kernels, calls, functions and
    libraries.

    Args:
        report: the export; it is not changed.
        target: where to; what was there is replaced, once the copy is whole.
        host: the name to write in place of the host's; None: none.

    Raises:
        UnreadableReport: it is no SQLite export, or damaged.
        UsageError: the copy cannot be written there, or would replace the report.
    """
    if not report.is_file():
        raise UnreadableReport(f"{report}: no such file", hint="name one .sqlite export")
    if target.exists() and target.samefile(report):
        raise UsageError(f"{target}: is the report itself", hint="name another file with -o")
    with written_whole(target) as partial:
        try:
            _write(report, partial, host)
        except sqlite3.Error as error:
            raise _blamed(error, report, target) from error


def _blamed(error: sqlite3.Error, report: Path, target: Path) -> Exception:
    """The error of a file that could not be written or read."""
    code = getattr(error, "sqlite_errorcode", 0)  # none where the report is no export
    if code == sqlite3.SQLITE_FULL:
        return unwritable(target, os.strerror(errno.ENOSPC))
    if code in UNWRITTEN:
        return unwritable(target, str(error))
    return UnreadableReport(
        f"{report}: cannot be read as an SQLite export",
        hint=f"only SQLite exports of nsys are scrubbed; {export_again('sqlite')}",
    )


def _write(report: Path, copy_at: Path, host: str | None) -> None:
    with closing(sqlite3.connect(copy_at, isolation_level=None)) as copy:
        uri = f"file:{quote(os.fsencode(report.resolve()))}?mode=ro"
        copy.execute("attach ? as report", [uri])
        copy.execute("pragma main.journal_mode = off")
        _copy(copy, host)


def _copy(copy: sqlite3.Connection, host: str | None) -> None:
    copy.text_factory = bytes
    tables = copy.execute("select name from report.sqlite_master where type = 'table'")
    have = {name.decode("utf-8", "replace") for (name,) in tables}
    if not have & {"NVTX_EVENTS", STRINGS, "ANALYSIS_DETAILS", "TARGET_INFO_SYSTEM_ENV"}:
        raise sqlite3.DatabaseError("not an export")
    copy.create_function("without_folders", 1, _without_folders, deterministic=True)
    copy.create_function("without_program", 1, _without_program, deterministic=True)
    copy.execute("begin")
    references = [_copy_numbers(copy, table) for table in NUMBERS if table in have]
    if STRINGS in have:
        _copy_strings(copy, [each for columns in references for each in columns])
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
    declared = copy.execute("select name from pragma_table_info(?, 'report')", [table])
    have = {name.decode("utf-8", "replace") for (name,) in declared}
    numbers = [name for name in NUMBERS[table].split() if name in have]
    ids = [name for name in STRING_IDS.get(table, "").split() if name in have]
    values = {name: _number(name) for name in [*numbers, *ids]}
    if table == "NVTX_EVENTS":
        # The ids of other rows lead to marks and threads; their numbers alone tell nothing.
        if "textId" in have:
            ids.append("textId")
            values["textId"] = f"iif({NAMED_RANGES}, {_number('textId')}, null)"
        if "text" in have:
            named = "without_folders(cast(text as blob))"
            values["text"] = f"iif({NAMED_RANGES}, {named}, {MPI_THREAD})"
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
    used = {each: f'select "{each[1]}" from main."{each[0]}"' for each in references}
    copy.execute(
        f"insert into main.{STRINGS} select id, iif(id in ({used.get(MODULES, '')}), "
        "without_program(cast(value as blob)), without_folders(cast(value as blob))) "
        f"from report.{STRINGS} "
        f"where typeof(id) = 'integer' and id in ({' union '.join(used.values())})"
    )


def _without_folders(value: bytes | None) -> str | None:
    """A text; of the paths in it only the files' names."""
    if value is None:
        return None
    text = value.decode("utf-8", "replace")
    return "".join(map(_without_folder, AFTER_PATH.split(text)))


def _without_folder(text: str) -> str:
    """A text without all from the beginning of a path to the last separator of folders.

    Folders may have any name, with blanks, too. So what stands between two paths goes as well.
    """
    path = PATH.search(text)
    if path is None:
        return text
    end = max(path.end(), text.rfind("/") + 1, text.rfind("\\") + 1)
    return text[: path.start()] + text[end:]


def _without_program(value: bytes | None) -> str | None:
    """The file's name of a module; of a program that is in no package only its kind."""
    if value is None:
        return None
    path = value.decode("utf-8", "replace").replace("\\", "/")
    name = path.rpartition("/")[2]
    if LIBRARY.search(name) or PACKAGES.search(path):
        return name
    return f"{PROGRAM}{Path(name).suffix if name.endswith(('.py', '.pyx')) else ''}"


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
