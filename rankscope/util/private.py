"""Folders that only this user can enter and change, for files that are loaded again later."""

import os
import shutil
import stat
from pathlib import Path

PRIVATE = 0o700

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class NotPrivate(OSError):
    """Others own a folder, or can put another one in its place."""


def closed_folder(folder: Path, top: Path) -> Path:
    """`folder`, made where it is missing; only we may enter what is new from `top` on.

    Raises:
        OSError: it cannot be made.
    """
    top.parent.mkdir(parents=True, exist_ok=True)
    for each in reversed([each for each in (folder, *folder.parents) if each.is_relative_to(top)]):
        each.mkdir(PRIVATE, exist_ok=True)
    return folder


def private_folder(folder: Path, top: Path) -> Path:
    """`folder`, made where it is missing; it and the folders above it up to `top` are ours alone.

    A folder that others could write to is emptied first: what it holds may be theirs.

    Raises:
        NotPrivate: it is a link, belongs to another user, or lies where others can exchange it.
        OSError: it cannot be made.
    """
    _check_parent(top.parent)
    ours = [each for each in (folder, *folder.parents) if each.is_relative_to(top)]
    for each in reversed(ours):
        _make_private(each, is_last=each == folder)
    return folder


def _make_private(folder: Path, is_last: bool) -> None:
    folder.mkdir(PRIVATE, exist_ok=True, parents=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotPrivate(f"{folder} is a link")
    if status.st_uid != os.geteuid():
        raise NotPrivate(f"{folder} belongs to another user")
    if is_last and status.st_mode & WRITABLE_BY_OTHERS:
        shutil.rmtree(folder)
        folder.mkdir(PRIVATE)
    elif status.st_mode & 0o077:
        folder.chmod(PRIVATE)


def _check_parent(folder: Path) -> None:
    """Raise `NotPrivate` where others can rename what lies in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid not in (0, os.geteuid()):
        raise NotPrivate(f"{folder} belongs to another user")
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise NotPrivate(f"others may write to {folder}")
