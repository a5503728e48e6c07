"""`nsys export` of a report into the cache: never into the user's folders, and only once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import polars as pl

from rankscope.errors import RankscopeError, ToolError, UnreadableReport
from rankscope.sources.columns.sqlite import SQLiteColumns
from rankscope.sources.nsys.header import head_facts
from rankscope.util.atomic_io import cache_home

SOURCE = "source.json"
"""File in each cache entry that names the exported report."""

PARQUET, SQLITE = "export_pqtdir", "export.sqlite"

BLOBS = "--include-blobs"
"""Option of nsys 2026 without which it leaves out NCCL's description of its calls."""

NEWER = re.compile(
    r"Version number is invalid(?:: ([\d@.]*\d))?"
    r"|Report was created (?:in|by|with|using) (?:a newer version|[^.;]*?(\d{4}(?:[.@]\d+)+))?"
    r"|created (?:in|by|with|using) a newer version"
    r"|newer version of (?:NVIDIA )?Nsight Systems",
    re.IGNORECASE,
)
"""What versions of nsys say about reports of a newer one, with its version if they name it."""

VERSION = re.compile(r"\d{4}(\.\d+)+")
"""The version in the answer of `nsys --version`."""

LEAST_FREE = 2**20
"""If less disk space (bytes) than this is left, a failed export is reported as 'disk full'."""


def exported(report: Path) -> Path:
    """A folder of Parquet files, or a SQLite file, with the contents of `report`.

    Raises:
        ToolError: nsys is missing, too old for the report, or out of room.
        UnreadableReport: nsys finds the report broken.
    """
    entry = _entry(report)
    for name in (PARQUET, SQLITE):
        if (entry / name).exists():
            return entry / name
    nsys = find_nsys()
    check_age(report, nsys)
    name = PARQUET if _knows(nsys, "parquetdir") else SQLITE
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", dir=entry.parent))
    except OSError as error:
        raise _no_room(entry.parent, error.strerror or "") from error
    try:
        _export(nsys, report, making / name)
        (making / SOURCE).write_text(json.dumps(_source(report)), "utf-8")
        try:
            making.rename(entry)
        except OSError:  # another ingest was faster
            shutil.rmtree(making, ignore_errors=True)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return entry / name


def find_nsys() -> str:
    """The nsys to use: `RANKSCOPE_NSYS`, else the one on PATH.

    Raises:
        ToolError: there is none.
    """
    wanted = os.environ.get("RANKSCOPE_NSYS", "nsys")
    found = shutil.which(wanted)
    if found is None:
        where = f"RANKSCOPE_NSYS={wanted}" if "RANKSCOPE_NSYS" in os.environ else "nsys"
        raise ToolError(
            f"{where}: not found, and .nsys-rep files are read through it",
            hint="load its module or set RANKSCOPE_NSYS=/path/to/nsys; or export elsewhere: "
            "nsys export -t sqlite REPORT.nsys-rep",
        )
    return found


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
    """Remove the exports of `reports`, and those whose report is gone or has changed."""
    unwanted = {str(report.resolve()) for report in reports}
    for entry in cache_folder().glob("*"):
        try:
            source = json.loads((entry / SOURCE).read_text("utf-8"))
            path = Path(source["path"])
            keep = str(path) not in unwanted and _source(path) == source
        except (OSError, ValueError, KeyError, TypeError):
            keep = False
        if not keep:
            shutil.rmtree(entry, ignore_errors=True)


def _entry(report: Path) -> Path:
    source = json.dumps(_source(report), sort_keys=True)
    return cache_folder() / hashlib.sha256(source.encode()).hexdigest()[:24]


def _source(report: Path) -> dict[str, object]:
    status = report.stat()
    return {
        "path": str(report.resolve()),
        "bytes": status.st_size,
        "modified_ns": status.st_mtime_ns,
    }


@cache
def _knows(nsys: str, word: str) -> bool:
    """Whether the help of this nsys names an export type or option."""
    return word in _run([nsys, "export", "--help"]).stdout


def _export(nsys: str, report: Path, target: Path) -> None:
    kind = "parquetdir" if target.name == PARQUET else "sqlite"
    options = ["-t", kind, "-q", "true", "-o", str(target)]
    if _knows(nsys, BLOBS):
        options.append(f"{BLOBS}=true")
    done = _run([nsys, "export", *options, str(report.resolve())])
    if done.returncode == 0 and _is_whole(target):
        return
    said = " ".join((done.stdout + done.stderr).split())
    if shutil.disk_usage(target.parent).free < LEAST_FREE:
        raise _no_room(target.parent.parent, "no space left")
    if named := NEWER.search(said):
        version = next((each for each in named.groups() if each), None)
        raise _too_new(report, nsys, f"nsys {version}" if version else "a newer nsys")
    raise UnreadableReport(
        f"{report}: nsys cannot export it ({_reason(said)})",
        hint="is it complete? Open it in the GUI, or copy it again from where it was captured",
    )


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
    found = VERSION.search(_run([nsys, "--version"]).stdout)
    return None if found is None else found[0]


def _release(version: str) -> tuple[int, ...]:
    """Year and number: (2023, 4) of `2023.4.4.54`."""
    return tuple(int(part) for part in version.split(".")[:2])


def _is_whole(export: Path) -> bool:
    """Whether the export can be read: on a full disk nsys writes a part and reports success."""
    try:
        if export.name == SQLITE:
            SQLiteColumns(export).close()
            return True
        tables = [*export.glob("*.parquet")]
        return bool(tables) and all(pl.read_parquet_schema(table) for table in tables)
    except (UnreadableReport, pl.exceptions.PolarsError, OSError):
        return False


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise ToolError(
            f"{command[0]}: cannot be run ({error.strerror})", hint="set RANKSCOPE_NSYS"
        ) from error


def _reason(said: str) -> str:
    return said.rpartition("rror:")[2].strip()[:160] or "it says nothing"


def _no_room(folder: Path, why: str) -> RankscopeError:
    return ToolError(
        f"{folder}: exports cannot be written there ({why})",
        hint="set XDG_CACHE_HOME to a folder with room; an export is about as large as its report",
    )
