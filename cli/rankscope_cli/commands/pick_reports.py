"""`rankscope pick-reports`: the reports to open side by side, and where to look in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from rankscope_cli import console
from rankscope_cli.bundles import Analysis
from rankscope_cli.opening import opened
from rankscope_cli.options import (
    DB,
    Db,
    Format,
    FormatOption,
    PickMetric,
    Quiet,
    Verbose,
    ranks_option,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from rankscope.compare.picks import Picks
    from rankscope.model.reports import RunWarning

WINDOW_FIELDS = ("iteration", "start_ns", "end_ns", "shared_start_ns", "shared_end_ns")
"""Fields of a window in the CSV."""

LARGE_GUI_BYTES = 16 * 10**9
"""Memory in the GUI (bytes) above which a warning is given: few workstations have more to spare."""

VIEWERS = "https://ui.perfetto.dev or chrome://tracing"
"""Viewers of traces of the PyTorch profiler; both keep the traces on the user's machine."""


def pick_reports(
    *,
    db: Db = DB,
    analysis: Analysis,
    metric: PickMetric = None,
    ranks: Annotated[str | None, ranks_option("Pick from these ranks")] = None,
    view: Annotated[
        Path | None,
        typer.Option(
            "--view",
            metavar="FILE.nsys-view",
            help="Write a document that shows the reports on one timeline of the GUI.",
        ),
    ] = None,
    open_them: Annotated[
        bool, typer.Option("--open", help="Start the GUI with the picked reports.")
    ] = False,
    copy_to: Annotated[
        Path | None,
        typer.Option(
            "--copy-to",
            metavar="DIR",
            help="Copy the reports and a view document to this folder, to open them on a machine "
            "with a GUI.",
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Name the min, median and max reports to open side by side, and where to look.

    Examples:

      rankscope pick-reports

      rankscope pick-reports --metric load --iter-range 10:50 --view slow.nsys-view

      rankscope pick-reports --copy-to picks/
    """
    from rankscope.api import picks_of
    from rankscope.compare.comparison import Stage
    from rankscope.output import text_tables
    from rankscope.util.rank_list import parse_ranks

    run = opened(db)
    comparison = run.compare(analysis, until=Stage.VERDICT)
    chosen = None if ranks is None else parse_ranks(ranks)
    picks = picks_of(comparison, metric, chosen)
    shown = _show(picks, view, copy_to, open_them)
    problems = [*comparison.warnings, *_problems(picks)]
    if output is Format.JSON:
        from rankscope.output.documents.pick_reports import pick_reports as document

        answer = document(
            db, comparison, problems, picks, shown.command, view=shown.view, rsync=shown.rsync
        )
        console.write_document(answer)
        return
    if output is Format.TABLE:
        console.headline(comparison.verdict.sentence)
        console.write("")
    _write(picks, shown, output)
    console.warn_of_run(run, problems, quiet, verbose)
    if verbose:
        console.say(f"rankscope: {text_tables.run_line(comparison.facts)}")


class Shown(NamedTuple):
    """The result of copying and opening the picked reports, and commands for further steps."""

    command: str | None
    view: Path | None
    rsync: str | None
    opened: str | None


def _show(picks: Picks, view: Path | None, copy_to: Path | None, open_them: bool) -> Shown:
    """Copy the reports, write the view document and start the GUI, as the options require."""
    import socket

    from rankscope.errors import ReportError, UsageError
    from rankscope.output.nsys_view import open_command, rsync_command
    from rankscope.sources import formats
    from rankscope.sources.moved import PUT_BACK
    from rankscope.view import gui

    files = picks.files
    if (view or copy_to or open_them) and picks.unopenable:
        first = picks.unopenable[0]
        if not first.exists():
            raise ReportError(f"{first}: is gone", hint=PUT_BACK)
        raise ReportError(
            f"{first}: {_obstacle(first, 'it')}",
            hint="put the reports beside their exports, or ingest the reports themselves"
            if formats.forms(first)
            else "without this option, pick-reports says where to look in them",
        )
    if picks.in_browser and (view or open_them):
        raise UsageError(
            f"{'--view' if view else '--open'}: the Nsight Systems GUI does not open {files[0]}",
            hint=f"open each trace in a tab of {VIEWERS}; pick-reports says where to look",
        )
    if copy_to is not None:
        files = gui.copy_reports(picks, copy_to)
        view = None if picks.in_browser else view or copy_to / "rankscope.nsys-view"
    if view is not None:
        gui.write_view(files, view)
    opened = None
    if open_them:
        together = view is not None and gui.gui_takes_views()
        opened = gui.open_gui((view,) if view is not None and together else files)
        if not together and len(files) > 1:
            opened += ", with each report in a tab of its own"
    return Shown(
        command=open_command(files if view is None else (view,)) if picks.in_gui else None,
        view=view,
        rsync=None if copy_to is None else rsync_command(copy_to, socket.gethostname()),
        opened=opened,
    )


def _obstacle(report: Path, them: str) -> str:
    """Why no viewer opens a report that is there.

    Args:
        them: the pronoun for the reports that the sentence is about.
    """
    from rankscope.sources import formats

    if not formats.forms(report):
        return f"reports of the format {formats.of_report(report).name} have no viewer"
    return (
        f"there is no .nsys-rep file beside {them}, which the GUI needs; rankscope export shows "
        f"{them} in Perfetto"
    )


def _problems(picks: Picks) -> list[RunWarning]:
    from rankscope.model.reports import RunWarning
    from rankscope.output.quantities import short_path
    from rankscope.sources.moved import PUT_BACK
    from rankscope.util.wording import agreeing, size

    def named(reports: list[Path]) -> str:
        first, more = short_path(reports[0]), len(reports) - 1
        return f"{first} and {more} more" if more else first

    warnings: list[RunWarning] = []
    gone = [each for each in picks.unopenable if not each.exists()]
    if gone:
        verb = agreeing(len(gone), "is", "are")
        warnings.append(RunWarning("report-gone", f"{named(gone)}: {verb} gone; {PUT_BACK}"))
    if others := [each for each in picks.unopenable if each not in gone]:
        obstacle = _obstacle(others[0], agreeing(len(others), "it", "them"))
        warnings.append(RunWarning("report-missing", f"{named(others)}: {obstacle}"))
    if not picks.in_browser and picks.gui_bytes > LARGE_GUI_BYTES:
        large = (
            f"the GUI needs at least {size(picks.gui_bytes)} of memory for all picked reports; "
            "open two of them, or capture fewer iterations"
        )
        warnings.append(RunWarning("picks-large", large))
    return warnings


def _write(picks: Picks, shown: Shown, output: Format) -> None:
    """Print the picks, where to look in them, and how to open them."""
    from rankscope.output import markdown_csv, text_tables
    from rankscope.output.nsys_view import LONGEST_COMMAND
    from rankscope.output.quantities import short_path
    from rankscope.util.sanitize import sanitized
    from rankscope.util.wording import size

    if output is Format.CSV:
        console.write(markdown_csv.csv(_frame(picks)))
        return
    tables = [
        text_tables.picks_table(picks),
        *(text_tables.windows_table(picks, look) for look in picks.looks),
    ]
    is_markdown = output is Format.MARKDOWN
    if is_markdown:
        console.write("\n\n".join(map(markdown_csv.markdown, tables)))
    else:
        for table in tables:
            console.show(table, show_all=True)
            console.write("")

    def part(text: str, commands: Sequence[str | Path] = ()) -> None:
        """Write a sentence, and the lines to copy; in Markdown a paragraph and a block of code."""
        console.write(f"\n{markdown_csv.prose(text)}\n" if is_markdown else text)
        for each in commands:
            indent = "    " if is_markdown else "  "
            console.write(indent + sanitized(str(each), LONGEST_COMMAND))

    cost = f"{size(picks.total_bytes)}, about {size(picks.gui_bytes)} of memory in the GUI"
    if shown.command is not None:
        manner = "in tabs ({}; --view puts them on one timeline):"
        manner = manner if shown.view is None else "on one timeline ({}), then click Apply:"
        part(f"Open them {manner.format(cost)}", [shown.command])
    if shown.command is not None and shown.view is not None:
        part(
            f"  (2022.4 hangs on this command; there use File > Open {short_path(shown.view)}.) "
            "The names of rows are host and pid, in the order of the table."
        )
    if picks.in_browser:
        part(f"Open each in a tab of {VIEWERS} ({size(picks.total_bytes)}):", picks.files)
    if shown.opened is not None:
        part(shown.opened[:1].upper() + shown.opened[1:] + ".")
    if shown.rsync is not None:
        part("Copy them to the machine with the viewer:", [shown.rsync])


def _frame(picks: Picks) -> pl.DataFrame:
    """A row per pick."""
    import polars as pl

    from rankscope.model.metrics import METRICS

    return pl.DataFrame(
        [
            {
                "label": each.label,
                "slow": each.slow,
                "rank": each.rank,
                "report": str(each.report),
                "host": each.host,
                "pid": each.pid,
                METRICS[picks.metric].key("value"): each.value,
                **{
                    f"{name}_{part}": getattr(moment, part)
                    for name, moment in (("worst", each.worst), ("typical", each.typical))
                    for part in WINDOW_FIELDS
                },
            }
            for each in picks.picks
        ]
    )
