"""Paths → report files, found without reading their events."""

import filecmp
import glob
import gzip
import os
import re
import shlex
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from rankscope.errors import ReportError, UnreadableReport, UsageError
from rankscope.model.reports import ReportFile
from rankscope.sources import formats
from rankscope.sources.name_numbers import numbered
from rankscope.sources.report_format import Format
from rankscope.util.grouping import grouped

UNPACK = {".gz": "gunzip", ".xz": "unxz", ".zst": "unzstd", ".bz2": "bunzip2", ".lz4": "unlz4"}
"""Suffixes of packed files → the command that unpacks one."""

FOREIGN = ".xplane.pb"
"""The ending of profiles of JAX and TensorFlow, which are not read."""

SAMPLE_BYTES = 2**12
"""Bytes of the beginning, the middle and the end of a report in which copies must agree."""


def discover(
    paths: Iterable[str | Path], on_error: Callable[[Path, ReportError], None] | None = None
) -> list[ReportFile]:
    """The reports under `paths` (files, folders searched recursively, globs), by path.

    A report reached twice counts once. A report and its exports side by side are one report,
    read from an export that is not older than it. Files in folders whose suffix is not enough
    to tell (`.json`) are left out unless their content is that of a report; one whose name differs
    in numbers alone from that of a report is an error.

    Args:
        paths: where to look.
        on_error: called with a report or folder that cannot be read, and why; default: raise.

    Raises:
        UsageError: a path that does not exist, or nothing that looks like a report.
        ReportError: a folder that cannot be listed, a dangling link, a name that is not UTF-8,
            a FIFO or the like; also where nothing else was found.
    """
    failed: list[ReportError] = []

    def fail(path: Path, error: ReportError) -> None:
        if on_error is None:
            raise error
        failed.append(error)
        on_error(path, error)

    paths = list(paths)
    by_path: dict[Path, ReportFile] = {}
    others: list[Path] = []
    for path in _expand(paths):
        for file, kind in _walk(path, fail):
            if kind is None:
                others.append(file)
                continue
            try:
                report = describe(file, kind.name)  # first: it refuses a link to itself
                by_path.setdefault(file.resolve(), report)
            except UnreadableReport as error:
                fail(file, error)
    if not by_path:
        raise failed[0] if failed else _nothing_found(paths, others)
    names = {*by_path, *map(_without_gz, by_path)}
    paths_found = [report.path for report in by_path.values()]
    names_without_numbers = {
        _without_numbers(each) for each in (*paths_found, *map(_without_gz, paths_found))
    }
    for file in others:
        unpacked = _unpacked(file) or file
        if unpacked.resolve() in names:
            continue
        if _without_numbers(unpacked) in names_without_numbers and (problem := _no_report(file)):
            fail(file, problem)
    forms = grouped((_report_key(resolved, each), each) for resolved, each in by_path.items())
    return sorted(map(_best, forms.values()), key=lambda report: report.path)


def united(
    reports: list[ReportFile],
    user_pattern: re.Pattern[str] | None = None,
    stored: Sequence[ReportFile] = (),
) -> tuple[list[ReportFile], dict[Path, Path]]:
    """The reports without copies, where the windows of one process are one report.

    Args:
        reports: the reports, by path.
        user_pattern: the user's pattern of the rank.
        stored: reports of a database, which others may be copies of.

    Returns:
        the reports; and copy → the report with the same content that is read in its place.
    """
    copies = _copies(reports, stored)
    by_path = {each.path: each for each in reports if each.path not in copies}
    for kind, same_kind in grouped((each.kind, each) for each in by_path.values()).items():
        find = formats.named(kind).joined
        windows = (
            [] if find is None or len(same_kind) < 2 else find(each.path for each in same_kind)
        )
        for first, *more in windows:
            by_path[first] = by_path[first].joined([by_path.pop(path) for path in more])
    return numbered(sorted(by_path.values(), key=lambda report: report.path), user_pattern), copies


def _copies(reports: Iterable[ReportFile], stored: Sequence[ReportFile]) -> dict[Path, Path]:
    """Report → a stored or older one with the same content, packed or not.

    Reports that are folders are never copies.
    """
    elsewhere = {each.path: each for each in stored}
    stored_paths = {each.path for each in reports if elsewhere.pop(each.path.resolve(), None)}
    by_age = sorted(
        reports, key=lambda each: (each.path not in stored_paths, each.modified_ns, each.path)
    )
    by_length = grouped(
        ((each.kind, _length(each)), each.path)
        for each in (*elsewhere.values(), *by_age)
        if not formats.named(each.kind).folders
    )
    copies: dict[Path, Path] = {}
    for (_, length), paths in by_length.items():
        sample = _checksum if any(map(_is_packed, paths)) else partial(_sample, size=length)
        by_sample: dict[bytes | int, list[Path]] = {}
        for path in paths if len(paths) > 1 else ():
            try:
                firsts = by_sample.setdefault(sample(path), [])
                same = next((each for each in firsts if _equal(each, path)), None)
                if same is None:
                    firsts.append(path)
                else:
                    copies[path] = same
            except (OSError, EOFError, zlib.error):  # reading it will raise the error
                continue
    return copies


def _equal(one: Path, other: Path) -> bool:
    """Whether two files have the same content, packed or not.

    The end of a packed file does not show that: it may be of its last part alone.
    """
    if filecmp.cmp(one, other, shallow=False):
        return True
    if not (_is_packed(one) or _is_packed(other)):
        return False
    with _content(one) as first, _content(other) as second:
        while (block := first.read(2**20)) == second.read(2**20):
            if not block:
                return True
    return False


def _content(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if _is_packed(path) else path.open("rb")


def _is_packed(path: Path) -> bool:
    return path.suffix == ".gz"


def _without_gz(path: Path) -> Path:
    return path.with_suffix("") if _is_packed(path) else path


def _length(report: ReportFile) -> int:
    """The size of the content of a file in bytes, modulo 2**32, as gzip ends with it."""
    ending = _ending(report.place) if _is_packed(report.path) else b""
    return int.from_bytes(ending[4:], "little") if ending else report.bytes % 2**32


def _checksum(path: Path) -> int:
    """The CRC-32 of the content of a file, as gzip ends with it."""
    if _is_packed(path):
        return int.from_bytes(_ending(path)[:4], "little")
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(2**20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _ending(path: Path) -> bytes:
    """The last 8 bytes of a file; empty where it has fewer or cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(-8, os.SEEK_END)
            return file.read(8)
    except OSError:
        return b""


def _sample(path: Path, size: int) -> bytes:
    """Some of the content of a file."""
    parts = []
    with path.open("rb") as file:
        for place in (0, size // 2, max(0, size - SAMPLE_BYTES)):
            file.seek(place)
            parts.append(file.read(SAMPLE_BYTES))
    return b"".join(parts)


def describe_again(file: ReportFile) -> ReportFile:
    """A report with its windows, as it is on disk now; raises what `describe` does."""
    now, *more = (describe(path, file.kind) for path in file.places)
    return now.joined(more)


def _nothing_found(paths: Iterable[str | Path], others: Iterable[Path]) -> UsageError:
    """The error for paths without reports; it says why the first of `others` is no report."""
    passed = next((error for path in others if (error := _no_report(path))), None)
    message = f"no reports found in {', '.join(map(str, paths))}"
    hints = [
        f"reports end in {', '.join(formats.endings())}",
        *(
            f"of {each.suffixes[0]} files in folders only {each.sniffed_as} count"
            for each in formats.FORMATS
            if each.sniff is not None
        ),
    ]
    if passed is not None:
        message, hints = f"{message}; {passed.message}", [passed.hint, *hints]
    return UsageError(message, hint="; ".join(hints))


def _best(forms: list[ReportFile]) -> ReportFile:
    """The form of one report to read."""
    kinds = {form.kind: formats.named(form.kind) for form in forms}
    recorded = [form.modified_ns for form in forms if kinds[form.kind].recorded]
    newest = max(recorded, default=min(form.modified_ns for form in forms))
    fresh = [form for form in forms if form.modified_ns >= newest]
    return min(fresh, key=lambda form: (kinds[form.kind].preference, form.path))


def _report_key(resolved: Path, report: ReportFile) -> tuple[str, Path]:
    """The family, folder and name that a report shares with its other forms."""
    kind = formats.named(report.kind)
    return kind.family, resolved.with_name(kind.stem(resolved.name))


def _expand(paths: Iterable[str | Path]) -> Iterator[Path]:
    for text in paths:
        path = Path(text)
        if str(text) and _exists(path):
            yield path
        elif matches := sorted(glob.glob(str(text), recursive=True)):
            yield from map(Path, matches)
        else:
            raise UsageError(
                f"{text}: no such file or folder",
                hint="copy the reports to a disk first"
                if "://" in str(text)
                else "check the path; globs may need quotes",
            )


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except PermissionError as error:
        raise ReportError(
            f"{path}: cannot be accessed ({error.strerror})", hint="check its permissions"
        ) from error
    except OSError:
        return False
    return True


def _walk(
    path: Path, fail: Callable[[Path, ReportError], None]
) -> Iterator[tuple[Path, Format | None]]:
    """Reports at or below `path` with their formats; None: the content is not that of a report."""
    mode = _mode(path)
    if not stat.S_ISDIR(mode):
        if _is_odd(mode):
            fail(path, _odd(path, mode))
        elif problem := _foreign(path):
            fail(path, problem)
        else:
            yield path, formats.of_named_file(path)
        return
    if kind := formats.of_folder(path.name):
        yield path, kind
        return
    seen: set[tuple[int, int]] = set()
    endings = (*formats.suffixes(), *UNPACK, FOREIGN)  # to look at the names alone is far faster

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
            (Path(folder) / name, kind) for name in subfolders if (kind := formats.of_folder(name))
        )
        subfolders[:] = sorted(name for name in subfolders if not formats.of_folder(name))
        of_interest = sorted(name for name in names if name.lower().endswith(endings))
        for file in (Path(folder) / name for name in of_interest):
            if _is_odd(mode := _mode(file)):  # opening it could take for ever
                if formats.of_name(file.name):
                    fail(file, _odd(file, mode))
            elif (kind := formats.of_file(file)) or formats.of_content(file.name) or _foreign(file):
                yield file, kind


def _no_report(path: Path) -> UnreadableReport | None:
    """Why a file is no report although its suffix is that of reports, or of packed ones."""
    if problem := _foreign(path):
        return problem
    kind = formats.of_content(path.name)
    try:
        if kind is not None:
            kind.facts(path)
    except UnreadableReport as error:
        return error
    return None


def _unpacked(path: Path) -> Path | None:
    """The path of a packed report once it is unpacked; None if the file is no such report."""
    if path.suffix not in UNPACK or formats.is_known(path.name):
        return None
    return path.with_suffix("") if formats.is_known(path.stem) else None


def _foreign(path: Path) -> UnreadableReport | None:
    """Why a file is no report, if its ending is that of a packed one or of another profiler."""
    if _unpacked(path):
        return UnreadableReport(
            f"{path}: is packed", hint=f"unpack it: {UNPACK[path.suffix]} {shlex.quote(str(path))}"
        )
    if path.name.endswith(FOREIGN):
        return UnreadableReport(
            f"{path}: is a profile of JAX or TensorFlow, which rankscope does not read",
            hint="record every process of the job with nsys: rankscope capture writes the script",
        )
    return None


def _without_numbers(path: Path) -> str:
    return re.sub(r"\d+", "#", str(path))


def _mode(path: Path) -> int:
    """The type and permissions of what a path leads to; 0 where that is unknown."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _is_odd(mode: int) -> bool:
    """Whether it is a FIFO, a socket or a device."""
    return mode != 0 and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _odd(path: Path, mode: int) -> UnreadableReport:
    named = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(mode), "a device")
    return UnreadableReport(
        f"{path}: is {named}, no regular file", hint="name the file that the profiler wrote"
    )


def describe(path: Path, kind: str) -> ReportFile:
    """A report of a known format, with its size and time of modification on disk now.

    Raises:
        UnreadableReport: it does not exist or cannot be accessed.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UnreadableReport(
            f"{os.fsencode(path)!r}: its name is not UTF-8", hint="rename it"
        ) from error
    try:
        if formats.named(kind).folders:
            entries = [*os.scandir(path)]
            for entry in entries:
                if _is_odd(mode := _mode(Path(entry.path))):
                    raise _odd(Path(entry.path), mode)
            files = [entry.stat() for entry in entries if entry.is_file()]
            newest = max((status.st_mtime_ns for status in files), default=0)
            return ReportFile(path, kind, sum(status.st_size for status in files), newest)
        status = path.stat()
    except OSError as error:
        denied = isinstance(error, PermissionError)
        raise UnreadableReport(
            f"{path}: cannot be read ({error.strerror})",
            hint="check its permissions" if denied else "is it a dangling link?",
        ) from error
    if _is_odd(status.st_mode):
        raise _odd(path, status.st_mode)
    return ReportFile(path, kind, status.st_size, status.st_mtime_ns)
