"""The options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rankscope.util.atomic_io import DEFAULT_DB
from rankscope_cli import console
from rankscope_cli.help import CHOICE, OUTPUT


class Format(StrEnum):
    """The format of a result."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


class OnError(StrEnum):
    """The reaction to a report that cannot be read."""

    FAIL = "fail"
    SKIP = "skip"


class Theme(StrEnum):
    """The colours of a picture."""

    LIGHT = "light"
    DARK = "dark"


def _print_version(requested: bool) -> None:
    if requested:
        from rankscope import __version__

        console.write(f"rankscope {__version__}")
        raise typer.Exit


def _start_log(requested: bool) -> bool:
    if requested:
        console.start_log()
    return requested


def _metrics() -> list[tuple[str, str]]:
    """Metrics and their meanings, for completion in a shell."""
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
        readable=False,  # the database has a better message for this
        help="Database of the run.",
    ),
]
DB = Path(DEFAULT_DB)
"""The database where none is named."""

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...", help="Reports, folders (searched recursively) or glob patterns."
    ),
]

LONGEST_S = 10**6
"""Largest value of an option in seconds: eleven days."""

Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        metavar="N",
        help="Number of worker processes. Default: one per core that this process may use.",
    ),
]
All = Annotated[
    bool,
    typer.Option("--all", help="Show all rows and all metrics.", rich_help_panel=OUTPUT),
]
ThemeOption = Annotated[
    Theme, typer.Option("--theme", metavar="|".join(Theme), help="Colours of the picture.")
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        metavar="|".join(Format),
        help="Format of the result.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Show no progress and no warnings.", rich_help_panel=OUTPUT),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        callback=_start_log,
        help="Show all warnings and details, and log to stderr which readers, cached results and "
        "clocks are used.",
        rich_help_panel=OUTPUT,
    ),
]


def _metric_option(meaning: str) -> Any:
    return typer.Option(
        "--metric",
        metavar="NAME",
        help=meaning,
        autocompletion=_metrics,
        rich_help_panel=CHOICE,
    )


MetricsOption = Annotated[
    list[str] | None,
    _metric_option(
        "Compare only this metric, for example load, work or time_to_all_reduce (repeatable). "
        "Default: all."
    ),
]
PickMetric = Annotated[
    str | None,
    _metric_option(
        "Metric that picks the ranks. Default: time_to_all_reduce; work if that is unknown, "
        "or lacks what the verdict is about."
    ),
]
DrawnMetric = Annotated[
    str | None,
    _metric_option(
        "Metric of a heat map (default: work), or metric that picks the ranks of the other kinds."
    ),
]
RunOption = Annotated[
    int | None,
    typer.Option(
        "--run",
        metavar="N",
        min=1,
        help="If the reports are of several runs: read this one. ingest without it lists them.",
    ),
]


def ranks_option(meaning: str, more: str = "Default: all.") -> Any:
    """The option `--ranks`; `meaning` says what a command does with the ranks."""
    text = f"{meaning}; A:B excludes B, A-B includes it. {more}"
    return typer.Option("--ranks", metavar="0,7,100:120", help=text, rich_help_panel=CHOICE)


PAGE_ENDINGS = (".html", ".htm")
"""Endings of the name of a page."""


def check_page(target: Path, option: str) -> None:
    """Raises `UsageError` if the name of a file does not end as that of a page."""
    from rankscope.errors import UsageError

    if target.suffix.lower() not in PAGE_ENDINGS:
        raise UsageError(
            f"{option} {target}: the name of a page must end in .html",
            hint=f"{option} {target.with_suffix('.html') if target.name else 'report.html'}",
        )
