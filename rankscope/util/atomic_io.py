"""Results as files: whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankscope.errors import UsageError

DEFAULT_DB = "rankscope.duckdb"
"""A run's database, in the folder one works in."""

NAME_BYTES = 40
"""Length of the part of a file's name that its temporary folder has."""


def check_writable(target: Path) -> None:
    """Find before the work what would fail after it.

    Raises:
        UsageError: a file cannot be written there.
    """
    target = _meant(target)
    if target.is_dir():
        raise _unwritable(target, "it is a folder")
    if not target.parent.is_dir():
        raise _unwritable(target, f"there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise _unwritable(target, f"you may not write to {target.parent}")


def exists(path: Path) -> bool:
    """Whether there is a file; False also where its folder may not be entered."""
    return os.path.exists(path)


def write_whole(target: Path, content: bytes) -> None:
    """Put `content` where `target` says; until all of it is written, what was there stays.

    A link stays one: what it points to is written.

    Raises:
        UsageError: it cannot be written there.
    """
    check_writable(target)
    target = _meant(target)
    try:
        with made_aside(target) as partial:
            partial.write_bytes(content)
            os.replace(partial, target)
    except OSError as error:
        raise _unwritable(target, str(error.strerror)) from error


@contextmanager
def made_aside(target: Path) -> Iterator[Path]:
    """A path of the target's name in a new folder beside it, which others can neither guess nor
    enter and which is removed at the end; raises `OSError`."""
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name[:NAME_BYTES]}.", dir=target.parent))
    try:
        yield folder / target.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def take_place(made: Path, target: Path) -> None:
    """Give a finished file its final name.

    Raises:
        FileExistsError: another process was faster; its file stays.
        OSError: it cannot be written there.
    """
    try:
        os.link(made, target)
    except FileExistsError:
        raise
    except OSError as error:  # a file system without links
        if target.exists():
            raise FileExistsError(target) from error
        made.rename(target)


def _meant(target: Path) -> Path:
    """The file that a path means, behind all links."""
    try:
        return target.resolve() if target.is_symlink() else target
    except (OSError, RuntimeError) as error:  # links in a circle, as Pythons differ in saying
        raise _unwritable(target, "its link leads nowhere") from error


def _unwritable(target: Path, why: str) -> UsageError:
    return UsageError(
        f"{target}: cannot be written ({why})",
        hint="name a file in a folder where you may write and there is room",
    )


def cache_home() -> Path:
    """Where rankscope keeps what can be made again: in `XDG_CACHE_HOME`, else in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rankscope"
