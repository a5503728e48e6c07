"""Limits of the shell (ulimit): too small ones end in one line of error.

Libraries that get no memory abort the process, each in its own way, or take a file for damaged. So
limits that are too small for any answer are refused at once. Whether higher ones suffice depends on
the data: where memory is limited, a child process does the work, and this one says why the child
was aborted.
"""

import os
import re
import resource
import signal
import sys
from collections.abc import Sequence

LEAST_DESCRIPTORS, WANTED_DESCRIPTORS = 32, 1024
"""Files open at once: every command needs 16, and each worker process three more. The limit is
raised where that is allowed."""

LEAST_BYTES = 1_600_000_000
"""Address space below which no command succeeded: `imbalance` of a small run needs 1.7 GB with 2
cores. Whether more suffices shows only when it is used."""

NEED_LITTLE = ("explain", "scrub")
"""Commands that load none of these libraries."""

ABORTED = (signal.SIGABRT, signal.SIGSEGV)
"""Signals that end a process that gets no memory."""

ABORT_CODE = 127
"""Exit code with which the C library ends such a process."""

EXIT_TOOL = 5
"""Exit code if an outside tool fails, or the system lacks memory or open files: see CONTRACT.md."""

OUT_OF_MEMORY = re.compile(
    r"memory|can't start new thread|failed to map segment|spawn.*thread|thread creation|bad_alloc"
    r"|codec configuration error"  # Pillow, whose compressor got none
    r"|previously been poisoned",  # polars, if what another thread began got none
    re.IGNORECASE,
)
"""Messages of libraries that get no memory."""

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that are sent on to the child."""

Error = tuple[str, str]
"""Message and hint."""


def too_small(command: str) -> Error | None:
    """The error of limits that are too small for a command, after raising those that may be."""
    descriptors = _raised_descriptors() if command != "capture" else None
    if descriptors is not None and descriptors < LEAST_DESCRIPTORS:
        return few_descriptors(descriptors)
    memory = memory_limit()
    if memory is not None and memory < LEAST_BYTES and command not in NEED_LITTLE:
        return little_memory(f"at least {LEAST_BYTES / 1e9:g} GB are needed")
    return None


def memory_limit() -> int | None:
    """The address space that this process may have, in bytes; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def few_descriptors(most: int | None = None) -> Error:
    """The error of a process that cannot open one more file."""
    if most is None:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"too many files are open: the limit is {most} (ulimit -n)",
        f"raise it: ulimit -n {WANTED_DESCRIPTORS}; or use fewer worker processes: --jobs 1",
    )


def little_memory(why: str = "") -> Error:
    """The error of a process that gets no more memory."""
    limit, hint = memory_limit(), "use a machine with more memory, or fewer workers: --jobs 1"
    limit_text = ""
    if limit is not None:
        limit_text = f"the limit is {limit / 1e9:.1f} GB (ulimit -v)"
        hint = f"raise the limit, or {hint}"
    reasons = "; ".join(filter(None, (limit_text, why)))
    return f"the memory is not enough{': ' if reasons else ''}{reasons}", hint


def is_of_memory(error: BaseException) -> bool:
    """Whether an error, or one of its causes, comes from too little memory."""
    causes: list[BaseException] = []
    while error not in causes:  # an error of DuckDB may be its own cause
        causes.append(error)
        error = error.__cause__ or error
    return any(map(_is_itself_of_memory, causes))


def _is_itself_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException":
        return True
    return memory_limit() is not None and OUT_OF_MEMORY.search(str(error)) is not None


def run_in_child(words: Sequence[str]) -> int | None:
    """Where memory is limited, let a child process do the work.

    Returns:
        None in the process that is to do the work; in the parent, the exit code of the child.
    """
    if memory_limit() is None or next(iter(words), "") in NEED_LITTLE:
        return None
    parent, worker = os.getpid(), os.fork()
    if worker == 0:
        from rankscope.util.lifetime import end_with_parent

        end_with_parent(parent)
        # for the trace of a failed allocation polars allocates again, and then waits for itself
        os.environ["RUST_BACKTRACE"] = "0"
        return None
    for number in PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: _pass_on(worker, number))
    _, status = os.waitpid(worker, 0)
    code = os.waitstatus_to_exitcode(status)
    if -code in ABORTED or code == ABORT_CODE:
        message, hint = little_memory()
        os.write(2, f"rankscope: error: {message}\nhint: {hint}\n".encode())
        return EXIT_TOOL
    return code if code >= 0 else 128 - code


def _pass_on(worker: int, number: int) -> None:
    """Send a signal on to the child, unless a terminal has sent it to both."""
    if not (number == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty()):
        os.kill(worker, number)


def _raised_descriptors() -> int:
    """Raise the limit of open files where that is allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return WANTED_DESCRIPTORS
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, WANTED_DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)
