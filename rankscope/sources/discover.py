"""Paths → report files: what to read, found without reading it."""

from __future__ import annotations

import glob
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rankscope.errors import ReportError, UnreadableReport, UsageError
from rankscope.model.reports import ReportFile

REPORT, SQLITE, RAW, KINETO = "nsys-report", "nsys-sqlite", "nsys-raw", "kineto"
PARQUETDIR, ARROWDIR = "nsys-parquetdir", "nsys-arrowdir"

KINDS = {
    ".nsys-rep": REPORT,
    ".qdrep": REPORT,
    ".sqlite": SQLITE,
    ".qdstrm": RAW,
    ".json": KINETO,
    ".json.gz": KINETO,
}
"""Endings of report files → format."""

KINETO_SIGNS = re.compile(
    rb'"schemaVersion"\s*:.*"(deviceProperties|distributedInfo|traceEvents)"\s*:', re.DOTALL
)
"""What the head of a PyTorch profiler trace has, and other JSON (logs, configurations, traces of
other programs) has not."""

HEAD_BYTES = 2**16

FOLDERS = {"_pqtdir": PARQUETDIR, "_arwdir": ARROWDIR}
"""How the names of export folders end → format."""

NAMED = [end for end, kind in KINDS.items() if kind != RAW]
"""Endings that a report may be named by; raw records only to be refused with the remedy."""

PREFERENCE = (SQLITE, PARQUETDIR, ARROWDIR, REPORT, RAW, KINETO)
"""Of one report's forms the one to read: an export spares exporting, and SQLite holds most."""


def discover(
    paths: Iterable[str | Path], on_error: Callable[[Path, ReportError], None] | None = None
) -> list[ReportFile]:
    """The reports under `paths` (files, folders searched recursively, globs), by path.

    A report reached twice counts once. A report and its exports side by side are one report,
    read from an export that is not older than it. JSON files in folders are passed over unless
    they are profiler traces.

    Args:
        paths: where to look.
        on_error: called with a report or folder that cannot be read, and why; default: raise.

    Raises:
        UsageError: a path that does not exist, or nothing that looks like a report.
        ReportError: a folder that cannot be listed, a dangling link, a name that is not UTF-8.
    """

    def fail(path: Path, error: ReportError) -> None:
        if on_error is None:
            raise error
        on_error(path, error)

    paths = list(paths)
    found: dict[Path, ReportFile] = {}
    for path in _expand(paths):
        for file, kind in _walk(path, fail):
            try:
                found.setdefault(file.resolve(), describe(file, kind))
            except UnreadableReport as error:
                fail(file, error)
    if not found:
        raise UsageError(
            f"no reports found in {', '.join(str(path) for path in paths)}",
            hint=f"reports end in {', '.join([*NAMED, *FOLDERS])}; of .json files in folders "
            "only traces of the PyTorch profiler count",
        )
    forms: dict[Path, list[ReportFile]] = {}
    for resolved, report in found.items():
        forms.setdefault(_stem(resolved), []).append(report)
    return sorted(map(_best, forms.values()), key=lambda report: report.path)


def _best(forms: list[ReportFile]) -> ReportFile:
    """The form of one report to read."""
    written = [form.modified_ns for form in forms if form.kind == REPORT]
    fresh = [form for form in forms if form.modified_ns >= max(written, default=0)]
    return min(fresh, key=lambda form: (PREFERENCE.index(form.kind), form.path))


def _stem(path: Path) -> Path:
    """What a report and its exports have in common."""
    for ending in FOLDERS:
        if path.name.endswith(ending):
            return path.with_name(path.name.removesuffix(ending))
    kind = _kind(path)
    if kind == KINETO:  # the same trace, packed or not
        return path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return path if kind is None else path.with_suffix("")


def _kind(path: Path) -> str | None:
    """The format that a file's name tells."""
    name = path.name.lower()
    return next((kind for end, kind in KINDS.items() if name.endswith(end)), None)


def _is_trace(path: Path) -> bool:
    """Whether a JSON file looks like a trace of the PyTorch profiler; unreadable ones might be."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return True
    return not head.strip() or KINETO_SIGNS.search(head) is not None


def _expand(paths: Iterable[str | Path]) -> Iterator[Path]:
    for given in paths:
        path = Path(given)
        if str(given) and _exists(path):
            yield path
        elif matches := sorted(glob.glob(str(given), recursive=True)):
            yield from map(Path, matches)
        else:
            raise UsageError(
                f"{given}: no such file or folder", hint="check the path; globs may need quotes"
            )


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except PermissionError as error:
        raise ReportError(
            f"{path}: may not be looked at ({error.strerror})", hint="check its permissions"
        ) from error
    except OSError:
        return False
    return True


def _walk(path: Path, fail: Callable[[Path, ReportError], None]) -> Iterator[tuple[Path, str]]:
    """Reports at or below `path` with their formats."""
    if not path.is_dir():  # what the user names himself is taken for a report
        yield path, _kind(path) or SQLITE
        return
    if kind := _folder_kind(path.name):
        yield path, kind
        return
    seen: set[tuple[int, int]] = set()

    def unlisted(error: OSError) -> None:
        problem = ReportError(
            f"{error.filename}: cannot be listed ({error.strerror})",
            hint="check its permissions, or name the reports one by one",
        )
        fail(Path(str(error.filename)), problem)

    for folder, subfolders, names in os.walk(path, onerror=unlisted, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:  # a link that leads back up
            subfolders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        yield from (
            (Path(folder) / name, kind) for name in subfolders if (kind := _folder_kind(name))
        )
        subfolders[:] = sorted(name for name in subfolders if not _folder_kind(name))
        for file in (Path(folder) / name for name in sorted(names)):
            kind = _kind(file)
            if kind is not None and (kind != KINETO or _is_trace(file)):
                yield file, kind


def _folder_kind(name: str) -> str | None:
    """The format of an export folder of that name; None for any other folder."""
    return next((kind for ending, kind in FOLDERS.items() if name.endswith(ending)), None)


def describe(path: Path, kind: str) -> ReportFile:
    """A report of a known format as it lies on disk now.

    Raises:
        UnreadableReport: it is not there, or may not be looked at.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UnreadableReport(
            f"{os.fsencode(path)!r}: its name is not UTF-8", hint="rename it"
        ) from error
    try:
        if kind in FOLDERS.values():
            files = [entry.stat() for entry in os.scandir(path) if entry.is_file()]
            newest = max((status.st_mtime_ns for status in files), default=0)
            return ReportFile(path, kind, sum(status.st_size for status in files), newest)
        status = path.stat()
    except OSError as error:
        raise UnreadableReport(
            f"{path}: cannot be read ({error.strerror})", hint="is it a dangling link?"
        ) from error
    return ReportFile(path, kind, status.st_size, status.st_mtime_ns)
