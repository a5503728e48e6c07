"""`rankscope check`: whether reports are sufficient, and how to capture better ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import console
from rankscope_cli.bundles import Shaping
from rankscope_cli.opening import opened
from rankscope_cli.options import (
    All,
    Format,
    FormatOption,
    Jobs,
    Quiet,
    RunOption,
    Verbose,
)
from rankscope_cli.progress import progress_bar

if TYPE_CHECKING:
    from rankscope.model.reports import CheckedReport


def check(
    *,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH...]", help="Reports, folders (searched recursively) or glob patterns."
        ),
    ] = None,
    db: Annotated[
        Path | None,
        typer.Option(
            "--db",
            metavar="FILE",
            readable=False,  # the database has a better message for this
            help="Instead of reports: show all warnings about the run in this database.",
        ),
    ] = None,
    shaping: Shaping,
    run: RunOption = None,
    jobs: Jobs = None,
    show_all: All = False,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Check whether reports are sufficient, what is missing, and how to capture it.

    Makes no database; an ingest that follows need not read the reports again. The exit code is 0
    if all reports can be used, 3 if some cannot.

    Examples:

      rankscope check profiles/

      rankscope check profiles/ --iteration 'my_step_(\\d+)' --format json

      rankscope check --db rankscope.duckdb
    """
    from rankscope.errors import UsageError

    if db is not None and not paths:
        _show_warnings(db, output)
        return
    if db is not None or not paths:
        raise UsageError(
            "--db together with reports" if db is not None else "no reports and no --db",
            hint="rankscope check PATH... examines reports, rankscope check --db FILE a database",
        )
    from rankscope.ingestion.check import check as check_reports

    with progress_bar(quiet) as (started, advance):
        reports = check_reports(paths, shaping, jobs, run, started, advance)
    _show(reports, output, show_all, verbose)
    if not all(report.usable for report in reports):
        raise typer.Exit(3)


def _show_warnings(db: Path, output: Format) -> None:
    """Print the warnings about a run, and their remedies."""
    import polars as pl

    from rankscope.ingestion.check.remedies import launcher_by_kind, remedy
    from rankscope.output import frame_table
    from rankscope.output.quantities import short_path
    from rankscope.util.wording import counted, ranks_text

    comparison = opened(db).compare()
    warnings = comparison.warnings
    launcher = launcher_by_kind(comparison.tables.reports["kind"])
    if output is Format.JSON:
        from rankscope.output.documents.common import run_of
        from rankscope.output.documents.reports import Check

        run = run_of(db, comparison.facts)
        console.write_document(Check(run=run, warnings=tuple(warnings), usable=True))
        return
    if output in (Format.CSV, Format.MARKDOWN):
        from msgspec.structs import asdict

        schema = dict.fromkeys(("code", "message", "ranks", "hint"), pl.String)
        frame = pl.DataFrame(
            [{**asdict(each), "hint": remedy(each.code, launcher)} for each in warnings],
            schema | {"ranks": pl.List(pl.Int64)},
        )
        console.write(frame_table.frame_text(frame, "Warnings", is_csv=output is Format.CSV))
        return
    ranks = comparison.tables.ranks["rank"]
    console.headline(f"{short_path(db)}: {ranks_text(ranks)}, {counted(len(warnings), 'warning')}.")
    for each in warnings:
        console.write("")
        console.problem(each.message, remedy(each.code, launcher))


def _show(
    reports: tuple[CheckedReport, ...], output: Format, show_all: bool, verbose: bool
) -> None:
    """Print what reports can answer, what is wrong with them, and how to capture better ones."""
    from rankscope.output import check_report, markdown_csv

    if output is Format.JSON:
        from rankscope.output.documents.reports import check as document

        console.write_document(document(reports, check_report.warnings(reports)))
        return
    if output is Format.CSV:
        console.write(markdown_csv.csv(check_report.reports_frame(reports)))
        return
    table = check_report.reports_table(reports, show_all or output is Format.MARKDOWN)
    problems = check_report.problem_texts(reports)
    if output is Format.MARKDOWN:
        prose = markdown_csv.prose
        parts = [prose(check_report.sentence(reports)), markdown_csv.markdown(table)]
        parts += map(prose, check_report.causes_text(reports))
        parts += (f"- {prose(text)}\n  - {prose(remedy)}" for text, remedy in problems)
        console.write("\n\n".join(parts))
        return
    console.headline(check_report.sentence(reports))
    if verbose or show_all or not all(report.usable for report in reports):
        console.write("")
        console.show(table, show_all=True)  # many reports are few rows already
    if verbose:
        console.write("")
        for line in check_report.causes_text(reports):
            console.prose(line)
    for text, remedy in problems if verbose else check_report.problem_texts(reports, fatal=True):
        console.write("")
        console.problem(text, remedy)
    if verbose:
        return
    for heading, lines in (
        ("The runs:", check_report.runs(reports)),
        ("To capture better:", check_report.advice(reports)),
    ):
        if lines:
            console.write("")
            console.headline(heading)
            for line in lines:
                console.item("-", line, 2)
    for sentence in check_report.causes_sentences(reports):
        console.write("")
        console.prose(sentence)
    console.write("")
    console.prose("More: -v (every report, every cause, every problem in full)")
