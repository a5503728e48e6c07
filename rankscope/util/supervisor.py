"""Runs a command and kills it, with all it started, when the process that asked for it ends.

A script, run by `bounded` in a session of its own: its standard input is a pipe that closes with
the process that holds the other end. Imports as little as it can, because it delays the command.

On Linux it becomes the parent of all that the command leaves behind, in whatever session, and can
find it therefore. Elsewhere only what stays in its own session is found.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

CANNOT_RUN = 127
"""Exit code where the command cannot be started, as of a shell."""

PR_SET_CHILD_SUBREAPER = 36
"""Request of Linux's prctl: the processes below this one that lose their parent get this one."""

ENDING_S, POLL_S = 5.0, 0.01
"""Time (s) in which killed processes end, unless a file system holds them; and between looks."""


def main() -> int:
    """Run the command of the arguments; its exit code, or 128 and the signal's number."""
    adopts = _adopt()
    try:
        child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.stderr.write(f"{error.strerror}")
        sys.stderr.flush()
        return CANNOT_RUN
    threading.Thread(target=_until_closed, args=(adopts,), daemon=True).start()
    code = child.wait()
    if adopts:
        _kill_children()
    return code if code >= 0 else 128 - code


def _adopt() -> bool:
    """Become the parent of what the command leaves behind; False where that is not possible."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def _until_closed(adopts: bool) -> None:
    """Wait for the end of standard input, then kill all that the command started, and this."""
    while os.read(0, 1024):
        pass
    if adopts:
        _kill_children()
    os.killpg(0, signal.SIGKILL)


def _kill_children() -> None:
    """Kill all children until there are none: those of a killed one become children of this."""
    limit = time.monotonic() + ENDING_S
    while (children := _children()) and time.monotonic() < limit:
        for child in children:
            with suppress(ProcessLookupError):  # it has ended
                os.kill(child, signal.SIGKILL)
        time.sleep(POLL_S)


def _children() -> list[int]:
    """The processes whose parent is this one, except those that ended and are not waited for."""
    own, children = str(os.getpid()), []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except (OSError, ValueError):  # it has ended
                continue
            if parent == own and state not in "ZX":
                children.append(int(name))
    return children


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main())
