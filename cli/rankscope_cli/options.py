"""Options that commands share, declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import console
from rankscope_cli.help import CHOICE, NAMES, OUTPUT

if TYPE_CHECKING:
    from rankscope.model.options import Options


class Format(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


class Clock(StrEnum):
    """Which clock times are taken from."""

    AUTO = "auto"
    GPU = "gpu"
    HOST = "host"


class Statistic(StrEnum):
    """How a rank's iterations become its score."""

    MEAN = "mean"
    MEDIAN = "median"
    P95 = "p95"


class OnError(StrEnum):
    """What a bad report does."""

    FAIL = "fail"
    SKIP = "skip"


class By(StrEnum):
    """Rows of the imbalance table."""

    RANK = "rank"
    HOST = "host"
    ITERATION = "iteration"
    PHASE = "phase"
    COLLECTIVE = "collective"
    KERNEL = "kernel"


def _print_version(wanted: bool) -> None:
    if wanted:
        from rankscope import __version__

        console.write(f"rankscope {__version__}")
        raise typer.Exit


def _metrics() -> list[tuple[str, str]]:
    """For completion: the metrics, and what they mean."""
    from rankscope.model.metrics import METRICS

    return [(name, metric.meaning) for name, metric in METRICS.items()]


Version = Annotated[
    bool,
    typer.Option(
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print the version and exit.",
        rich_help_panel=OUTPUT,
    ),
]
Db = Annotated[
    Path,
    typer.Option(
        "--db",
        envvar="RANKSCOPE_DB",
        metavar="FILE",
        readable=False,  # whether it is readable is the database's to say
        help="Database of the run.",
    ),
]
Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Reports, folders of them, globs.")
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, metavar="N", help="Worker processes; else one a core."),
]
All = Annotated[
    bool,
    typer.Option(
        "--all", help="Every row of the tables, and every metric.", rich_help_panel=OUTPUT
    ),
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        metavar="|".join(Format),
        help="How to write the result.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress, no warnings.", rich_help_panel=OUTPUT),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say more on stderr.", rich_help_panel=OUTPUT)
]
IterRange = Annotated[
    str | None,
    typer.Option(
        "--iter-range",
        metavar="A:B",
        help="Iterations to look at, like a Python slice of their numbers: 10:50, 10:, -20:; "
        "else all.",
        rich_help_panel=CHOICE,
    ),
]
MetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Only this metric, such as load, work or time_to_all_reduce; repeatable.",
        autocompletion=_metrics,
        rich_help_panel=CHOICE,
    ),
]
PickMetric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="What ranks are picked by; else time_to_all_reduce.",
        autocompletion=_metrics,
        rich_help_panel=CHOICE,
    ),
]
DrawnMetric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="What a heat map shows (else work), and what ranks are picked by.",
        autocompletion=_metrics,
        rich_help_panel=CHOICE,
    ),
]
ClockOption = Annotated[
    Clock,
    typer.Option(
        "--clock",
        metavar="|".join(Clock),
        help="Time by the device's work or by the host's ranges.",
        rich_help_panel=CHOICE,
    ),
]
StatisticOption = Annotated[
    Statistic,
    typer.Option(
        "--statistic",
        metavar="|".join(Statistic),
        help="How a rank's iterations become its score.",
        rich_help_panel=CHOICE,
    ),
]
IncludeWarmup = Annotated[
    bool,
    typer.Option(
        "--include-warmup",
        help="Keep the first iterations, which are left out until times settle.",
        rich_help_panel=CHOICE,
    ),
]
RolesOption = Annotated[
    str | None,
    typer.Option(
        "--roles",
        metavar="SPEC",
        help="What ranks do by design: tp=2,pp=4,dp=8 (fastest-varying first), or a CSV rank,role.",
        rich_help_panel=CHOICE,
    ),
]
IterationOption = Annotated[
    str | None,
    typer.Option(
        "--iteration",
        metavar="REGEX|auto|whole",
        help="Names of the iteration ranges; a first group is the number. "
        "'auto': steps are found in what repeats; 'whole': each capture is one.",
        rich_help_panel=NAMES,
    ),
]
PhaseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--phase",
        metavar="NAME=REGEX",
        help="Names of a phase's ranges (load, forward, backward, optimizer, other); repeatable.",
        rich_help_panel=NAMES,
    ),
]
RankPattern = Annotated[
    str | None,
    typer.Option(
        "--rank-pattern",
        metavar="REGEX",
        help="Rank from the report's path: group 'rank'.",
        rich_help_panel=NAMES,
    ),
]


def analysis_options(
    iter_range: str | None,
    clock: Clock,
    statistic: Statistic,
    include_warmup: bool,
    roles: str | None = None,
) -> Options:
    """How to look at a run, as the options of a command say."""
    from rankscope.compare.selection import parse_range
    from rankscope.model.options import Options

    return Options(
        iter_range=None if iter_range is None else parse_range(iter_range),
        clock=clock.value,
        statistic=statistic.value,
        include_warmup=include_warmup,
        roles=roles,
    )


def numbers(option: str, text: str) -> set[int]:
    """`0,7,100:120` as numbers; the end of a range is not in it, as in Python."""
    from rankscope.errors import UsageError

    found: set[int] = set()
    try:
        for part in text.split(","):
            begin, colon, end = part.partition(":")
            found |= {*range(int(begin), int(end))} if colon else {int(begin)}
        if not found:
            raise ValueError(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text!r} is not a list of ranks", hint="like 0,7,100:120"
        ) from error
    return found


def phases(given: list[str]) -> dict[str, str]:
    """`NAME=REGEX` each as phase → pattern; several of one phase are alternatives."""
    from rankscope.errors import UsageError

    found: dict[str, str] = {}
    for text in given:
        name, equals, pattern = text.partition("=")
        if not equals or not pattern:
            raise UsageError(f"--phase {text!r} is not NAME=REGEX", hint="--phase forward='fprop'")
        found[name] = f"{found[name]}|{pattern}" if name in found else pattern
    return found
