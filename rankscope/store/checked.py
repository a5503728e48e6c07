"""Which tables of which files were checked, remembered in a folder that only this user can change.

A file is the same while its device, inode, size and times are: nothing that it holds is believed.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from rankscope.errors import UsageError
from rankscope.util.atomic_io import cache_home, exists, write_whole
from rankscope.util.private import private_folder
from rankscope.util.source_digest import OF_ANSWERS, source_digest

MOST_FILES = 100
"""Files that are remembered; what was remembered first is forgotten first."""

PACKAGE = Path(__file__).parents[1]


class Memory(Struct):
    """`files`: identity of a file → the tables whose rows this `code` has checked, all of them."""

    code: str
    files: dict[str, list[str]] = {}


def identity(path: Path) -> str:
    """Text that differs after every change of a file; empty where a second file completes it."""
    try:
        of = path.stat()
    except OSError:
        return ""
    if exists(path.with_name(path.name + ".wal")):
        return ""
    return f"{of.st_dev} {of.st_ino} {of.st_size} {of.st_mtime_ns} {of.st_ctime_ns}"


def remembered(file: str) -> list[str]:
    """The tables that need no check of a file with this identity."""
    return _memory().files.get(file, [])


def remember(file: str, tables: Iterable[str]) -> None:
    """Add tables to `remembered`, if there is a place for it."""
    memory = _memory()
    before = memory.files.pop(file, [])
    if new := {*tables}.difference(before):
        kept = [*memory.files.items(), (file, [*before, *sorted(new)])][-MOST_FILES:]
        with suppress(OSError, RuntimeError, UsageError):
            write_whole(_place(), msgspec.json.encode(Memory(memory.code, dict(kept))))


def _memory() -> Memory:
    empty = Memory(source_digest(PACKAGE, OF_ANSWERS))
    try:
        memory = msgspec.json.decode(_place().read_bytes(), type=Memory)
    except (OSError, RuntimeError, msgspec.MsgspecError):  # none yet, or no home
        return empty
    return memory if memory.code == empty.code else empty


def _place() -> Path:
    """The file of the memory; raises `OSError` where others could change it."""
    return private_folder(cache_home() / "checked", cache_home()) / "files.json"
