"""`nsys export` of a report into the cache: never into the user's folders, and only once."""

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import polars as pl

from rankscope.errors import RankscopeError, ToolError, UnreadableReport, UsageError
from rankscope.sources.columns.folders import tables_apart
from rankscope.sources.columns.sqlite import SQLiteColumns
from rankscope.sources.nsys import python_samples
from rankscope.sources.nsys.header import head_facts
from rankscope.util.atomic_io import cache_home
from rankscope.util.bounded import Ended, Stopped, run_bounded
from rankscope.util.private import closed_folder
from rankscope.util.scratch import remove_abandoned, scratch_beside
from rankscope.util.supervisor import CANNOT_RUN

TABLES = (
    "ANALYSIS_DETAILS",
    "COMPOSITE_EVENTS",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_OVERHEAD",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "DIAGNOSTIC_EVENT",
    "EXPORT_META_DATA",
    "GPU_METRICS",
    "META_DATA_CAPTURE",
    "META_DATA_EXPORT",
    "MPI_COLLECTIVES_EVENTS",
    "MPI_OTHER_EVENTS",
    "MPI_P2P_EVENTS",
    "MPI_RANKS",
    "MPI_START_WAIT_EVENTS",
    "NET_NIC_METRIC",
    "NIC_ID_MAP",
    "NVTX_EVENTS",
    "NVTX_PAYLOAD_SCHEMAS",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
    "OSRT_API",
    "OSRT_FILE_ACCESS_DESCRIPTORS",
    "OSRT_FILE_ACCESS_EVENTS",
    "PROFILER_OVERHEAD",
    "SAMPLING_CALLCHAINS",
    "SCHED_EVENTS",
    "StringIds",
    "TARGET_INFO_CUDA_DEVICE",
    "TARGET_INFO_GPU",
    "TARGET_INFO_GPU_METRICS",
    "TARGET_INFO_NETWORK_METRICS",
    "TARGET_INFO_NIC_INFO",
    "TARGET_INFO_SESSION_START_TIME",
    "TARGET_INFO_SYSTEM_ENV",
    "ThreadNames",
)
"""The tables that rankscope reads; it asks nsys for no others. A full export has about 60 more, and
as many files in a folder of Parquet files. Most are names of enumerations, but stacks of calls may
be larger than all that is read."""


SOURCE = "source.json"
"""File in each cache entry that names the exported report."""

PARQUET, ARROW, SQLITE = "export_pqtdir", "export_arwdir", "export.sqlite"
"""What a cache entry may hold."""

STREAMS = "export.arrow"
"""What becomes `ARROW`."""

TYPES = {"parquetdir": PARQUET, "arrow": STREAMS, "sqlite": SQLITE}
"""Types of exports, the first that nsys knows is taken: 2022.4 writes Arrow in half the time of
SQLite, and the same tables; newer ones write Parquet as fast, in a fifth of the bytes."""

BLOBS = "--include-blobs"
"""Option of nsys 2026 without which it leaves out NCCL's description of its calls."""

ONLY_TABLES = "--tables"
"""Option of nsys 2023 and later: names of the tables to export."""

NEWER = re.compile(r"Version number is invalid: ([\d@.]*\d)")
"""What nsys says of a report of a newer one, with its version."""

VERSION = re.compile(r"\d{4}(\.\d+)+")
"""The version in the answer of `nsys --version`."""

TIMEOUT = "RANKSCOPE_EXPORT_TIMEOUT"
"""Environment variable: seconds that one export may take."""

LEAST_S, SLOWEST = 600.0, 10**5
"""Without it, an export may take `LEAST_S` s, and 1 s more per `SLOWEST` bytes of its report."""

LONGEST_S = 10**6
"""Most seconds that the variable may allow."""

HELP_S = 60.0
"""Seconds that the help of nsys may take."""

MOST_TIMES, MOST_BYTES = 100, 2**30
"""An export may have `MOST_TIMES` times the bytes of its report, and `MOST_BYTES` more."""

PROGRESS_S = 10.0
"""Seconds between two log messages about an export."""

FULL = "no space left"

LOG = logging.getLogger("rankscope.sources")

LEAST_FREE = 2**20
"""If less disk space (bytes) than this is left, a failed export is reported as 'disk full'."""


def exported(report: Path, most_bytes: int = MOST_BYTES) -> Path:
    """A folder of Parquet or Arrow files, or a SQLite file, with the contents of `report`.

    Args:
        most_bytes: bytes that it may take in addition to `MOST_TIMES` the size of the report.

    Raises:
        ToolError: nsys is missing, too old for the report, or out of room.
        UnreadableReport: nsys finds the report broken.
    """
    source = json.dumps(_source(report), sort_keys=True)
    entry = cache_folder() / hashlib.sha256(source.encode()).hexdigest()[:24]
    for name in (PARQUET, ARROW, SQLITE):
        if (entry / name).exists():
            return entry / name
    nsys = find_nsys()
    check_age(report, nsys)
    kind = next((each for each in TYPES if _knows(nsys, each)), "sqlite")
    try:
        closed_folder(entry.parent, cache_home())
        with scratch_beside(entry) as making:
            making.mkdir()
            name = _export(nsys, report, kind, making, most_bytes)
            if name == PARQUET and python_samples.are_in(making / name):
                _add_python_samples(nsys, report, making, most_bytes)
            (making / SOURCE).write_text(json.dumps(_source(report)), "utf-8")
            with suppress(OSError):  # another ingest was faster
                making.rename(entry)
    except OSError as error:
        raise _no_room(entry.parent, error.strerror or str(error)) from error
    return entry / name


def find_nsys() -> str:
    """The nsys to use: `RANKSCOPE_NSYS`, else the one on PATH.

    Raises:
        ToolError: there is none.
    """
    wanted = os.environ.get("RANKSCOPE_NSYS", "nsys")
    path = shutil.which(wanted)
    if path is None:
        where = f"RANKSCOPE_NSYS={wanted}" if "RANKSCOPE_NSYS" in os.environ else "nsys"
        raise ToolError(
            f"{where}: not found, and .nsys-rep files are read through it",
            hint="load its module or set RANKSCOPE_NSYS=/path/to/nsys; or export elsewhere: "
            "nsys export -t sqlite REPORT.nsys-rep",
        )
    return path


def check_age(report: Path, nsys: str) -> None:
    """Raises `ToolError` if the report's head states a newer version than `nsys` has.

    Versions are compared by year and number: later builds of one release read each other's reports.
    """
    written, own = head_facts(report).exporter, _version(nsys)
    if written is None or own is None or _release(written) <= _release(own):
        return
    raise _too_new(report, nsys, f"nsys {written}")


def cache_folder() -> Path:
    """The folder of the cache."""
    return cache_home() / "exports"


def cache_bytes() -> int:
    """The size of all exports, in bytes."""
    return sum(
        (Path(folder) / name).lstat().st_size
        for folder, _, names in os.walk(cache_folder())
        for name in names
    )


def clear(reports: Iterable[Path]) -> None:
    """Remove the exports of `reports`, and those whose report is gone or has changed.

    What another process writes right now stays; what killed ones left goes.
    """
    unwanted = {str(report.resolve()) for report in reports}
    remove_abandoned(cache_folder())
    for entry in cache_folder().glob("[!.]*"):
        try:
            source = json.loads((entry / SOURCE).read_text("utf-8"))
            path = Path(source["path"])
            keep = str(path) not in unwanted and _source(path) == source
        except (OSError, ValueError, KeyError, TypeError):
            keep = False
        if not keep:
            shutil.rmtree(entry, ignore_errors=True)


def _source(report: Path) -> dict[str, object]:
    status = report.stat()
    return {
        "path": str(report.resolve()),
        "bytes": status.st_size,
        "modified_ns": status.st_mtime_ns,
        "tables": [*TABLES],
    }


@cache
def _knows(nsys: str, word: str) -> bool:
    """Whether the help of this nsys names an export type or option."""
    return word in _run([nsys, "export", "--help"], HELP_S).said


def _export(nsys: str, report: Path, kind: str, making: Path, most_bytes: int) -> str:
    """Export a report into a folder; the name of the export there."""
    target = making / TYPES[kind]
    options = ["-t", kind, "-q", "true", "-o", str(target)]
    if _knows(nsys, BLOBS):
        options.append(f"{BLOBS}=true")
    if _knows(nsys, ONLY_TABLES):
        options.append(f"{ONLY_TABLES}={','.join(TABLES)}")
    watch = _Watch(report, target, most_bytes)
    command = [nsys, "export", *options, str(report.resolve())]
    done = _run(command, time_limit(report), watch.problem, report)
    if done.code == 0:
        if _made_readable(target):
            return ARROW if kind == "arrow" else target.name
        if kind == "arrow":  # versions that nobody has tried may write it otherwise
            shutil.rmtree(making / ARROW, ignore_errors=True)
            target.unlink(missing_ok=True)
            return _export(nsys, report, "sqlite", making, most_bytes)
    output = " ".join(done.said.split())
    if shutil.disk_usage(target.parent).free < LEAST_FREE:
        raise _no_room(target.parent.parent, "no space left")
    if named := NEWER.search(output):
        raise _too_new(report, nsys, f"nsys {named[1]}")
    reason = output.rpartition("rror:")[2].strip()[:160]
    raise UnreadableReport(
        f"{report}: nsys cannot export it ({reason or 'it says nothing'})",
        hint="is it complete? Open it in the GUI, or copy it again from where it was captured",
    )


def _add_python_samples(nsys: str, report: Path, making: Path, most_bytes: int) -> None:
    """Add the Python samples to a Parquet export; without them, the log says why."""
    events = making / "events.json"
    command = [nsys, "export", "-t", "json", "-q", "true", "-o", str(events)]
    try:
        done = _run(
            [*command, str(report.resolve())],
            time_limit(report),
            _Watch(report, events, most_bytes).problem,
            report,
        )
        if done.code:
            LOG.warning("%s: its Python samples are left out: %s", report, done.said.strip())
            return
        python_samples.convert(events, making / PARQUET)
    except (ToolError, UnreadableReport) as error:
        LOG.warning("%s: its Python samples are left out: %s", report, error)
    finally:
        events.unlink(missing_ok=True)


def _too_new(report: Path, nsys: str, written: str) -> ToolError:
    own = _version(nsys)
    return ToolError(
        f"{report}: was written by {written.replace('@', '.')}, and {nsys} is "
        f"{own or 'older'}, which cannot read it",
        hint="load the module of a newer nsys, or set RANKSCOPE_NSYS to one, as the one that "
        "captured it; or export there: nsys export -t sqlite REPORT.nsys-rep",
    )


@cache
def _version(nsys: str) -> str | None:
    """The version that a program names; None if it names none."""
    match = VERSION.search(_run([nsys, "--version"], HELP_S).said)
    return None if match is None else match[0]


def _release(version: str) -> tuple[int, ...]:
    """Year and number: (2023, 4) of `2023.4.4.54`."""
    return tuple(int(part) for part in version.split(".")[:2])


def _made_readable(export: Path) -> bool:
    """Whether the export can be read: on a full disk nsys writes a part and reports success.

    `STREAMS` become `ARROW`.
    """
    try:
        if export.name == STREAMS:
            tables_apart(export, folder := export.with_name(ARROW), TABLES)
            export.unlink()
            return any(folder.iterdir())
        if export.name == SQLITE:
            SQLiteColumns(export).close()
            return True
        tables = [*export.glob("*.parquet")]
        return bool(tables) and all(pl.read_parquet_schema(table) for table in tables)
    except (UnreadableReport, pl.exceptions.PolarsError, OSError, ValueError):
        return False


def time_limit(report: Path) -> float:
    """Seconds that the export of a report may take: `RANKSCOPE_EXPORT_TIMEOUT`, else by its size.

    Raises:
        UsageError: the variable is no positive number.
    """
    text = os.environ.get(TIMEOUT)
    if not text:
        return LEAST_S + report.stat().st_size / SLOWEST
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_S:
        raise UsageError(f"{TIMEOUT}: is no number of seconds", hint=f"{TIMEOUT}=3600")
    return seconds


class _Watch:
    """Looks at an export while it is made."""

    def __init__(self, report: Path, target: Path, most_bytes: int) -> None:
        self._report, self._target = report, target
        self._most = most_bytes + MOST_TIMES * report.stat().st_size
        self._begin = self._said = time.monotonic()

    def problem(self) -> str | None:
        """Why it must end; None while all is well."""
        size = _size(self._target)
        if shutil.disk_usage(self._target.parent).free < LEAST_FREE:
            return FULL
        if size > self._most:
            return f"it wrote more than {self._most / 1e9:.1f} GB"
        now = time.monotonic()
        if now - self._said > PROGRESS_S:
            self._said = now
            LOG.info(
                "export of %s: %.0f MB after %.0f s", self._report, size / 1e6, now - self._begin
            )
        return None


def _size(path: Path) -> int:
    """Bytes of a file or of the files in a folder; 0 if there is none."""
    try:
        if path.is_dir():
            return sum(entry.stat().st_size for entry in os.scandir(path))
        return path.stat().st_size
    except OSError:
        return 0


def _run(
    command: list[str],
    seconds: float,
    check: Callable[[], str | None] = lambda: None,
    report: Path | None = None,
) -> Ended:
    try:
        done = run_bounded(command, seconds, check)
        if done.code == CANNOT_RUN:
            why = " ".join(done.said.split())[:160]
            raise ToolError(f"{command[0]}: cannot be run ({why})", hint="set RANKSCOPE_NSYS")
        return done
    except Stopped as stopped:
        if str(stopped) == FULL:
            raise _no_room(cache_folder(), FULL) from stopped
        raise ToolError(
            f"{report or command[0]}: nsys was stopped: {stopped}",
            hint=f"allow it more seconds with {TIMEOUT}, or export the report elsewhere: "
            "nsys export -t sqlite REPORT.nsys-rep",
        ) from stopped


def _no_room(folder: Path, why: str) -> RankscopeError:
    return ToolError(
        f"{folder}: exports cannot be written there ({why})",
        hint="set XDG_CACHE_HOME to a folder with room; an export is about as large as its report",
    )
