"""Runs a command and kills it, with all it started, when the process that asked for it ends.

A script, run by `bounded` in a session of its own: its standard input is a pipe that closes with
the process that holds the other end. Imports as little as it can, because it delays the command.
"""

import os
import signal
import subprocess
import sys
import threading

CANNOT_RUN = 127
"""Exit code where the command cannot be started, as of a shell."""


def _until_closed() -> None:
    """Wait for the end of standard input, then kill this whole session."""
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Run the command of the arguments; its exit code, or 128 and the signal's number."""
    try:
        child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.stderr.write(f"{error.strerror}")
        sys.stderr.flush()
        return CANNOT_RUN
    threading.Thread(target=_until_closed, daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main())
