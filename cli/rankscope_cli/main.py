"""The program `rankscope`: its commands, and the exit codes of errors."""

import errno
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper

import typer

from rankscope.errors import DatabaseError, RankscopeError, ReportError, ToolError, UsageError
from rankscope_cli import console, limits
from rankscope_cli.bundles import expanded
from rankscope_cli.help import FIRST, Command, Group
from rankscope_cli.limits import EXIT_TOOL
from rankscope_cli.options import Version
from rankscope_cli.signals import SIGNAL_EXIT, SignalCatcher, hint_after_signal, reason

EXIT_USAGE, EXIT_REPORTS, EXIT_DATABASE = 2, 3, 4
EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_HUNG_UP = 130, 143, 129
"""Exit codes, see CONTRACT.md."""

EXITS = {
    UsageError: EXIT_USAGE,
    ReportError: EXIT_REPORTS,
    DatabaseError: EXIT_DATABASE,
    ToolError: EXIT_TOOL,
}

EXITS_OF_SIGNALS = (EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_HUNG_UP)

COMMANDS = (
    *FIRST,
    *("capture", "explain", "view", "export", "diff", "fleet", "watch"),
    *("scrub", "mcp", "skill", "recipe"),
)
"""Each is the function of its name in the module of its name in `rankscope_cli.commands`."""

OF_READING = (
    *("--iteration", "--phase", "--collective", "--rank-pattern"),
    *("--on-error", "--rebuild", "--run", "--all-runs"),
)
"""Options of `ingest` that others are often given."""

SETTINGS = {"explain": {"ignore_unknown_options": True}}
"""Settings of typer that one command needs."""


def program(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """The command line with the named commands: building all of them would take too long."""
    app = typer.Typer(
        name="rankscope",
        help="Find the slow rank of a distributed training job in per-rank profiler reports: its "
        "iterations, its phase, its cost, and the reports to open side by side.",
        no_args_is_help=True,
        cls=Group,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=_shared,
    )
    for name in names:
        function = name.replace("-", "_")
        module = import_module(f"rankscope_cli.commands.{function}")
        command = expanded(getattr(module, function))
        app.command(name, cls=Command, context_settings=SETTINGS.get(name))(command)
    return app


def _shared(version: Version = False) -> None:
    """Options before the command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a code of CONTRACT.md."""
    if sys.stdout is None:  # closed by the caller (>&-)
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # do not fail on characters outside the locale
            stream.reconfigure(errors="replace")
    words = sys.argv[1:] if arguments is None else list(map(str, arguments))
    console.note_command(words)
    if small := limits.too_small(next(iter(words), "")):
        console.error(*small)
        sys.exit(EXIT_TOOL)
    try:
        code = _run(words)
    finally:
        console.stop_log()
    sys.exit(code)


def _run(words: list[str]) -> int:
    caught = SignalCatcher()
    try:
        with caught, console.RESOURCES:
            if words[:1] == ["diff"]:
                from rankscope_cli.commands.diff import with_whole_baseline

                words = with_whole_baseline(words)
            named = COMMANDS if not words or words[0] not in COMMANDS else words[:1]
            code = program(named)(words, standalone_mode=False, prog_name="rankscope")
            sys.stdout.flush()
    except SystemExit:  # rich and typer end like this when the reader of a pipe is gone
        if caught.number is None:
            return 0
    except BaseException as error:  # polars raises no Exception where Rust panics
        if isinstance(error, (KeyboardInterrupt, typer.Abort)):
            code = EXIT_INTERRUPTED
        elif caught.number is None:
            return _failed(error, " ".join(["rankscope", *words[:1]]))
    if caught.number is not None:
        code = SIGNAL_EXIT + caught.number
    if code in EXITS_OF_SIGNALS and (hint := hint_after_signal(words)):  # Ctrl-C is typer's code
        with suppress(OSError):  # after SIGHUP the terminal is gone
            console.error(reason(code - SIGNAL_EXIT), hint)
    return code if isinstance(code, int) else 0


def _failed(error: BaseException, path: str) -> int:
    """Print an error that the user can fix, and give its exit code; raise other errors again.

    Args:
        path: the program and the command.
    """
    if limits.is_of_memory(error):
        console.error(*limits.little_memory())
        return EXIT_TOOL
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
        console.error(*limits.few_descriptors())
        return EXIT_TOOL
    if isinstance(error, RankscopeError):
        console.error(error.message, error.hint, error.code, getattr(error, "lines", ()))
        return next((code for kind, code in EXITS.items() if isinstance(error, kind)), 1)
    if isinstance(error, typer.TyperException):
        return _usage(error, path)
    if isinstance(error, OSError):
        return _output_failed(error)
    raise error


def _output_failed(error: OSError) -> int:
    """The exit code after a failed write: the reader of a pipe is gone, or the disk is full."""
    if error.errno not in (errno.EPIPE, errno.ENOSPC):
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that flushing at exit works
    if error.errno == errno.EPIPE:
        return 0
    console.error("cannot write the output (no space left)", "write it to another disk")
    return EXIT_TOOL


def _usage(error: typer.TyperException, path: str) -> int:
    """Print what is wrong with an option or argument in two lines, and give the exit code."""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", path)
    message = " ".join(error.format_message().split()).replace("Value error, ", "")
    if not message or type(error).__name__ == "NoArgsIsHelpError":
        console.write(error.format_message())
        return EXIT_USAGE
    hint = _usage_hint(message, path)
    if hint is None:
        hint = f"see {path} --help"
    else:  # what the parser guesses is not meant
        message = message.partition(" (Possible options: ")[0]
    console.error(message[:1].lower() + message[1:].rstrip("."), hint, "usage-error")
    return EXIT_USAGE


def _usage_hint(message: str, path: str) -> str | None:
    """A hint at what the user meant by a wrong option or argument; None if unknown."""
    if re.match(r"No such option: (?:-o|--output)\b", message):
        if path.endswith((" ingest", " watch")):
            return "--db FILE names the database"
        return f"the result goes to stdout: {path} > FILE"
    if message.startswith("Missing option '--output'"):
        return f"{path} -o FILE"
    if unknown := re.match(rf"No such option: ({'|'.join(OF_READING)})\b(?!-)", message):
        return f"reports are read with it: rankscope ingest PROFILES {unknown[1]} …, then {path}"
    extra = re.match(r"Got unexpected extra arguments? ?(?:\(s\) )?\((.*)\)", message)
    words = extra[1] if extra else ""
    if words.endswith(".duckdb"):
        return f"--db {words} names the database"
    exist = words and all(os.path.exists(word) for word in words.split())
    return f"first rankscope ingest {words}, then this command without {words}" if exist else None


if __name__ == "__main__":
    main()
