"""The entry point: a signal in the program's first and last moments ends it without a traceback.

It imports almost nothing, so that its handlers are in place before the imports that take time.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that end the program in order: Ctrl-C, batch systems, a lost terminal."""

SIGNAL_EXIT = 128
"""Exit code of a program that a signal ended, less the signal's number."""

GARBAGE_AFTER = 100_000
"""New objects after which Python looks for garbage: by default 700, and what imports make stays."""

SHOW_CURSOR = "\x1b[?25h"


def main() -> None:
    """Run the command line and exit with a code of CONTRACT.md."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored on purpose, as by nohup
            signal.signal(number, end_now)
    gc.set_threshold(GARBAGE_AFTER)
    from rankscope_cli.main import main as run

    run()


def end_now(number: int, _frame: FrameType | None = None) -> None:
    """End the process without cleaning up; a signal handler."""
    try:
        shown = SHOW_CURSOR if sys.stderr.isatty() else ""
        text = f"{shown}rankscope: error: {reason(number)}\nhint: {RESUME_HINT}\n"
        os.write(2, text.encode())
    except (OSError, ValueError, AttributeError):  # no stderr
        pass
    os._exit(SIGNAL_EXIT + number)


RESUME_HINT = "run the same command again to resume"


def reason(number: int) -> str:
    """Why the program ended, for its error line."""
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


if __name__ == "__main__":
    main()
