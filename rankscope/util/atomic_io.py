"""Writing results as files, whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rankscope.errors import UsageError
from rankscope.util.scratch import scratch_beside

DEFAULT_DB = "rankscope.duckdb"
"""The default database, in the working folder."""

BEGINNING = 400
"""First characters of a file, among which the mark of rankscope is."""


def check_writable(target: Path) -> None:
    """Check before the work that its result can be written.

    Raises:
        UsageError: a file cannot be written there.
    """
    target = _meant(target)
    if target.is_dir():
        raise unwritable(target, "it is a folder")
    if not target.parent.is_dir():
        raise unwritable(target, f"there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise unwritable(target, f"you may not write to {target.parent}")


def exists(path: Path) -> bool:
    """Whether there is a file; False also where its folder may not be entered."""
    return os.path.exists(path)


def write_whole(target: Path, content: bytes) -> None:
    """Write `content` to `target`; an earlier file is kept until all of it is written.

    If `target` is a link, the file that it points to is written.

    Raises:
        UsageError: it cannot be written there.
    """
    with written_whole(target) as partial:
        partial.write_bytes(content)


def check_own(target: Path, mark: str) -> None:
    """Raises `UsageError` if the path holds anything but an earlier file of rankscope.

    Args:
        mark: a text near the beginning of each such file.
    """
    try:
        is_other = target.exists() and mark not in target.read_text("utf-8", "replace")[:BEGINNING]
    except OSError as error:
        raise unwritable(target, str(error.strerror)) from error
    if is_other:
        raise UsageError(
            f"{target}: exists and was not written by rankscope",
            hint="name another file or folder, or move it away",
        )


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """A path to write to, as `write_whole` does; nothing is written where an error is raised.

    Raises:
        UsageError: it cannot be written there: `OSError` means that, too.
    """
    check_writable(target)
    try:
        with scratch_beside(meant := _meant(target)) as partial:
            yield partial
            os.replace(partial, meant)
    except OSError as error:
        raise unwritable(target, str(error.strerror)) from error


def take_place(source: Path, target: Path) -> None:
    """Give a finished file its final name.

    Raises:
        FileExistsError: another process was faster; its file stays.
        OSError: it cannot be written there.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError as error:  # a file system without links
        if target.exists():
            raise FileExistsError(target) from error
        source.rename(target)


def _meant(target: Path) -> Path:
    """The file that a path means, behind all links."""
    try:
        return target.resolve() if target.is_symlink() else target
    except (OSError, RuntimeError) as error:  # a circle of links: Pythons raise different errors
        raise unwritable(target, "its link leads nowhere") from error


def unwritable(target: Path, why: str) -> UsageError:
    """The error for a file that cannot be written."""
    return UsageError(
        f"{target}: cannot be written ({why})",
        hint="name a file in a folder where you may write and there is room",
    )


def cache_home() -> Path:
    """The folder for files that can be made again: in `XDG_CACHE_HOME`, else in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rankscope"
