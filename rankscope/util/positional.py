"""Reading at a place of an open file, also where the system has no call for it (Windows)."""

import os
import threading

OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)
"""Flags of `os.open` for reading bytes as they are."""

_seeking = threading.Lock()
"""Held from moving a file's position to reading there."""


def read_at(file: int, length: int, at: int) -> bytes:
    """Up to `length` bytes of a file descriptor's file from offset `at` on; raises `OSError`."""
    if hasattr(os, "pread"):
        return os.pread(file, length, at)
    with _seeking:
        os.lseek(file, at, os.SEEK_SET)
        return os.read(file, length)


def read_into(file: int, buffer: memoryview, at: int) -> int:
    """Fill a buffer of bytes from offset `at` on; the number of bytes read; raises `OSError`."""
    if hasattr(os, "preadv"):
        return os.preadv(file, [buffer], at)
    content = read_at(file, len(buffer), at)
    buffer[: len(content)] = content
    return len(content)
