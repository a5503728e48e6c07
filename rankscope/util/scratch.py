"""Folders for unfinished files. Those that a killed process leaves are removed later.

The process that works in such a folder holds a lock on a file in it, which the system releases at
the end of the process, however it ends. The folder's name contains the host, because the locks of
some shared file systems hold on one host only.
"""

import contextlib
import fcntl
import glob
import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = "in-use"
"""The file in each folder that is locked."""

NAME_BYTES = 40
"""Length of the part of a file's name that its folder has."""


@contextmanager
def scratch_beside(target: Path) -> Iterator[Path]:
    """A path of the target's name in a new folder beside it, which others can neither guess nor
    enter and which is removed at the end; raises `OSError`."""
    remove_abandoned(target.parent, target.name)
    folder, lock = _locked_folder(target)
    try:
        yield folder / target.name
    finally:
        os.close(lock)  # first: NFS keeps open files, and with them their folder
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(folder: Path, name: str | None = None) -> None:
    """Remove what `scratch_beside` of processes that were killed on this host left in a folder."""
    prefix = f".*.{_host()}." if name is None else glob.escape(_prefix(name))
    for left in folder.glob(f"{prefix}*"):
        _remove_unless_used(left)


def _remove_unless_used(folder: Path) -> None:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:  # killed before there was one: the folder is empty
        with contextlib.suppress(OSError):
            folder.rmdir()
        return
    except OSError:  # of another user, or no such folder at all
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # a living process has it, or this file system knows no locks
        pass
    finally:
        os.close(lock)


def _locked_folder(target: Path) -> tuple[Path, int]:
    """A new folder, and its lock as a descriptor."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix(target.name), dir=target.parent))
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileNotFoundError:  # another process took it for abandoned
            continue
        except BaseException:
            folder.rmdir()
            raise
        if _is_locked(lock) and (folder / LOCK).exists():
            return folder, lock
        os.close(lock)


def _is_locked(lock: int) -> bool:
    """Lock it; False where another process has taken the folder for abandoned meanwhile."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # this file system knows no locks
        return True
    return True


def _prefix(name: str) -> str:
    return f".{name[:NAME_BYTES]}.{_host()}."


def _host() -> str:
    """Few characters that tell this host from others."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]
