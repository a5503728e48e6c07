"""The entry point: a signal in the program's first and last moments ends it without a traceback.

It imports almost nothing, so that its handlers are in place before the imports that take time.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from rankscope_cli.limits import worked_for

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that end the program in order: Ctrl-C, batch systems, a lost terminal."""

SIGNAL_EXIT = 128
"""Exit code of a program that a signal ended, less the signal's number."""

GARBAGE_AFTER = 200_000
"""New objects after which Python looks for garbage: by default 700, and what imports make stays."""

SHOW_CURSOR = "\x1b[?25h"


def main() -> None:
    """Run the command line and exit with a code of CONTRACT.md.

    The process ends once all that is registered for its end has run. That Python then takes its
    modules apart, one by one, would take a tenth of a second.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored on purpose, as by nohup
            signal.signal(number, end_now)
    code = worked_for(sys.argv[1:])
    if code is not None:
        os._exit(code)
    gc.set_threshold(GARBAGE_AFTER)
    if sys.argv[1:2] != ["capture"]:  # the program that it records keeps its own threads
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy starts one per core at import
    from rankscope_cli.main import main as run

    try:
        run()
    except SystemExit as ended:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # closed, or its reader is gone
                stream.flush()
        if isinstance(ended.code, int):
            os._exit(ended.code)
        raise


def end_now(number: int, _frame: FrameType | None = None) -> None:
    """End the process without cleaning up; a signal handler."""
    try:
        shown = SHOW_CURSOR if sys.stderr.isatty() else ""
        hint = hint_after_signal(sys.argv[1:])
        error = f"rankscope: error: {reason(number)}\nhint: {hint}\n" if hint else ""
        os.write(2, f"{shown}{error}".encode())
    except (OSError, ValueError, AttributeError):  # no stderr
        pass
    os._exit(SIGNAL_EXIT + number)


AGAIN = "run the same command again"

RESUMING = ("ingest", "watch")
"""Commands that keep what they have read."""

SERVING = "view"
"""The command that runs until a signal ends it, which is no error."""


def hint_after_signal(words: Sequence[str]) -> str | None:
    """What to do after a signal ended the command line `words`; None where it was meant to."""
    command = next(iter(words), "")
    if command == SERVING:
        return None
    return f"{AGAIN} to resume" if command in RESUMING else AGAIN


def reason(number: int) -> str:
    """Why the program ended, for its error line."""
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


if __name__ == "__main__":
    main()
