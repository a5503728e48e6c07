"""Results as files: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from rankscope.errors import UsageError

DEFAULT_DB = "rankscope.duckdb"
"""A run's database, in the folder one works in."""


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


def write_whole(target: Path, content: bytes) -> None:
    """Put `content` where `target` says; until all of it is written, what was there stays.

    A link stays one: what it points to is written.

    Raises:
        UsageError: it cannot be written there.
    """
    check_writable(target)
    target = _meant(target)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        try:
            partial.write_bytes(content)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(target, str(error.strerror)) from error


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
