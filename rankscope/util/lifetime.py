"""Processes that do not outlive the process that started them, and are not hit by its signals."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1
"""Request of Linux's prctl: the signal that this process gets when its parent ends."""

POLL_S = 0.5
"""Time (s) between two looks at the parent where the system sends no signal."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that a terminal or a batch system sends to all processes of a job."""


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold the signals of `ENDING` back; processes and threads started meanwhile never get them.

    So the starting process alone decides when its workers end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(parent: int) -> None:
    """Let this process be killed as soon as its parent ends.

    Args:
        parent: the parent's process id; if it is gone already, this process ends at once.
    """
    if not _signal_at_parents_end():
        threading.Thread(target=watch_parent, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        _end()


def watch_parent(parent: int) -> None:
    """Return never; end this process once its parent is another one."""
    while os.getppid() == parent:
        time.sleep(POLL_S)
    _end()


def _signal_at_parents_end() -> bool:
    """Ask Linux for SIGKILL at the parent's end; False where that is not possible."""
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
