"""Rows that `check` has extracted, kept in the cache for the `ingest` that usually follows.

A file has the rows of one report by one set of options. `ingest` removes the file that it takes;
what nobody takes is removed by a later `check`.
"""

import hashlib
import json
import logging
import pickle
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from rankscope.errors import UsageError
from rankscope.measure.report import extract
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile, ReportRows
from rankscope.util.atomic_io import cache_home, write_whole
from rankscope.util.private import private_folder
from rankscope.util.source_digest import source_digest

MOST_BYTES = 2**32
"""Most bytes that the rows of one `check` take."""

FREE_SHARE = 0.1
"""Most that they take of the free space, as a share."""

ABANDONED_S = 86_400
"""Rows that nobody took for so many seconds are removed."""

PACKAGE = Path(__file__).parents[1]

SHAPING = ("measure", "model", "sources", "util")
"""Packages whose source files shape the rows."""

UNREADABLE = (
    *(OSError, EOFError, pickle.UnpicklingError),
    *(AttributeError, ImportError, IndexError, TypeError, ValueError),
)
"""Errors of reading a file that is damaged, or gone."""

_log = logging.getLogger(__name__)


def keeping(
    reports: int, most_bytes: int = MOST_BYTES
) -> Callable[[ReportFile, ShapingOptions], ReportRows]:
    """`extract` that keeps what it returns, and takes what was kept before."""
    try:
        folder = _folder()
        _remove_abandoned(folder)
        room = min(most_bytes, int(FREE_SHARE * shutil.disk_usage(folder).free))
    except OSError as error:
        _log.info("rows are not kept for ingest: %s", error)
        return extract
    return partial(_extract_and_keep, most_bytes=room // max(reports, 1))


def extract_or_take(file: ReportFile, options: ShapingOptions) -> ReportRows:
    """`extract`, unless the rows were kept; then those, which are kept no longer.

    Raises: what `extract` does.
    """
    try:
        path = _folder() / _name(file, options)
        rows = _kept(path, file)
        path.unlink(missing_ok=True)
    except OSError:
        rows = None
    return rows or extract(file, options)


def _extract_and_keep(file: ReportFile, options: ShapingOptions, most_bytes: int) -> ReportRows:
    try:
        path = _folder() / _name(file, options)
    except OSError:
        return extract(file, options)
    if (kept := _kept(path, file)) is not None:
        return kept
    rows = extract(file, options)
    content = pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
    if len(content) <= most_bytes:
        with suppress(UsageError):
            write_whole(path, content)
    return rows


def _folder() -> Path:
    """The folder of kept rows; raises `OSError` where others could change it."""
    return private_folder(cache_home() / "rows", cache_home())


def _name(file: ReportFile, options: ShapingOptions) -> str:
    """The name of the rows of a report as it is now, by some options, in this rankscope."""
    facts = (
        [str(path.resolve()) for path in file.places],
        *(file.kind, file.bytes, file.modified_ns, str(file.numbers)),
        *(options.to_json(), options.alone, source_digest(PACKAGE, SHAPING)),
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _kept(path: Path, file: ReportFile) -> ReportRows | None:
    """The rows in a file, as those of `file`; None without any."""
    try:
        rows = pickle.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        _log.info("%s: kept rows cannot be read: %s", file.path, error)
        return None
    _log.info("%s: its rows were kept by check", file.path)
    return replace(rows, file=file) if isinstance(rows, ReportRows) else None


def _remove_abandoned(folder: Path) -> None:
    before = time.time() - ABANDONED_S
    for path in folder.iterdir():
        with suppress(OSError):  # taken or removed since
            if path.stat().st_mtime >= before:
                continue
            if path.is_dir():  # of a process that was killed while it wrote
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
