"""Which tables of which files were checked, remembered in a folder that only this user can change.

A file is the same while its device, inode, size and times are: nothing that it holds is believed.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from rankscope.errors import UsageError
from rankscope.util.atomic_io import cache_home, exists, write_whole
from rankscope.util.private import private_folder
from rankscope.util.source_digest import OF_ANSWERS, source_digest

MOST_FILES = 100
"""Files that are remembered; what was remembered first is forgotten first."""

PACKAGE = Path(__file__).parents[1]


def identity(path: Path) -> str:
    """Text that differs after every change of a file; empty where a second file completes it."""
    try:
        of = path.stat()
    except OSError:
        return ""
    if exists(Path(f"{path}.wal")):
        return ""
    return f"{of.st_dev} {of.st_ino} {of.st_size} {of.st_mtime_ns} {of.st_ctime_ns}"


def remembered(file: str) -> list[str]:
    """The tables that need no check of a file with this identity."""
    return _memory().get(_by_this_code(file), [])


def remember(file: str, tables: Iterable[str]) -> None:
    """Add tables to `remembered`, if there is a place for it."""
    memory, key = _memory(), _by_this_code(file)
    before = memory.pop(key, [])
    if new := {*tables}.difference(before):
        kept = [*memory.items(), (key, [*before, *sorted(new)])][-MOST_FILES:]
        with suppress(OSError, RuntimeError, UsageError):
            write_whole(_place(), msgspec.json.encode(dict(kept)))


def _by_this_code(file: str) -> str:
    """The key of a file: other versions may check something else, and keep their own entries."""
    return f"{source_digest(PACKAGE, OF_ANSWERS)} {file}"


def _memory() -> dict[str, list[str]]:
    """`_by_this_code` of a file → its tables whose rows were checked, all of them."""
    try:
        return msgspec.json.decode(_place().read_bytes(), type=dict[str, list[str]])
    except (OSError, RuntimeError, msgspec.MsgspecError):  # none yet, or no home
        return {}


def _place() -> Path:
    """The file of the memory; raises `OSError` where others could change it."""
    return private_folder(cache_home() / "checked", cache_home()) / "files.json"
