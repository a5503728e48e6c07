"""Signals that end the program: with one error line, and without a traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the program in an orderly way: from Ctrl-C, batch systems, a lost terminal."""

SIGNAL_EXIT = 128
"""Exit code of a program that a signal ended, less the signal's number."""

AGAIN = "run the same command again"

RESUMING = "ingest"
"""The command that resumes when it is started again."""

SERVING = ("view", "watch", "mcp")
"""Commands that run until a signal ends them, which is no error."""

SHOW_CURSOR = "\x1b[?25h"


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


def hint_after_signal(words: Sequence[str]) -> str | None:
    """What to do after a signal ended a command; None if that is how the command always ends.

    Args:
        words: the command line.
    """
    command = next(iter(words), "")
    if command in SERVING:
        return None
    return f"{AGAIN} to resume" if command == RESUMING else AGAIN


def reason(number: int) -> str:
    """Why the program ended, for its error line."""
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


class Stopped(KeyboardInterrupt):
    """One of `SIGNALS` came.

    It is a subclass because Python ends by killing itself, whatever the exit code, once
    `KeyboardInterrupt` itself was raised within `exec` (in an import, say).
    """


class SignalCatcher:
    """Raises `Stopped` at the first signal of `SIGNALS`; a second one ends the process at once.

    A signal during an import ends the process at once, too: compiled modules such as DuckDB run
    Python while they are initialized, and an exception there would abort the process. `number` is
    the signal that came; it tells errors of DuckDB and workers that follow from it. Signals that
    are ignored on purpose, for example by nohup, stay ignored.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, Any] = {}
        self._leaving = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.getsignal(each) for each in SIGNALS}
            self._hook, sys.unraisablehook = sys.unraisablehook, self._handle_ignored
            for number, before in self._before.items():
                if before not in (signal.SIG_IGN, None):
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving = True
        if self._before:
            sys.unraisablehook = self._hook
        for number, before in self._before.items():
            if before is not None:
                signal.signal(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            end_now(self.number)
        if _is_importing(frame):
            end_now(number)
        self.number = number
        if not self._leaving:
            raise Stopped

    def _handle_ignored(self, ignored: UnraisableHookArgs) -> None:
        """End the process if Python ignores a `Stopped`, raised where nothing can catch it."""
        if self.number is not None and isinstance(ignored.exc_value, Stopped):
            end_now(self.number)
        self._hook(ignored)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame or one of its callers imports a module."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None
