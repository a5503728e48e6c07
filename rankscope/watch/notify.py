"""The program that is notified of a verdict that changed."""

import os
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress

from rankscope.errors import UsageError
from rankscope.model.reports import RunWarning
from rankscope.output.documents.common import one_line
from rankscope.watch.documents import document, variables
from rankscope.watch.watcher import Announcement

LONGEST_S = 300.0
"""Longest time of a command, s, before it is ended; no report is read meanwhile."""

STDERR = 2
"""Descriptor of the stream for the output of a command."""


def words_of(command: str) -> list[str]:
    """The program and the arguments of `--exec`; no shell sees them.

    Raises:
        UsageError: there is no such program, or a quote is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--exec {command!r}: {error}", hint="close the quote") from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(
            f"--exec {command!r}: there is no such program",
            hint="name a program that can be executed; for a shell: sh -c '...'",
        )
    return words


def tell(
    words: list[str], announcement: Announcement, limit_s: float = LONGEST_S
) -> list[RunWarning]:
    """Run a command with the verdict as JSON on its stdin and in RANKSCOPE_* variables.

    What it prints goes to stderr: stdout has the verdicts alone.

    Args:
        limit_s: the command is ended after this time.

    Returns:
        A warning if it failed.
    """
    text = one_line(document(announcement)) + "\n"
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=STDERR,
            env={**os.environ, **variables(announcement)},
            start_new_session=True,  # so that all of it can be ended
        )
    except OSError as error:
        return [_failed(words, error.strerror or "cannot be started")]
    try:
        process.communicate(text.encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        return [_failed(words, f"still running after {limit_s:g} s: ended")]
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    code = process.returncode
    if code == 0:
        return []
    return [_failed(words, f"exit code {code}" if code > 0 else f"ended by signal {-code}")]


def _failed(words: list[str], why: str) -> RunWarning:
    return RunWarning("exec-failed", f"--exec {shlex.join(words)}: {why}")
