"""`rankscope check`: whether reports are sufficient, and how to capture better ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rankscope_cli import console
from rankscope_cli.options import (
    All,
    ExportTimeout,
    Format,
    FormatOption,
    IterationOption,
    Jobs,
    Paths,
    PhaseOption,
    Quiet,
    RankPattern,
    Verbose,
    Version,
    phases,
)

if TYPE_CHECKING:
    from rankscope.model.reports import CheckedReport


def check(
    paths: Paths,
    iteration: IterationOption = None,
    phase: PhaseOption = None,
    rank_pattern: RankPattern = None,
    jobs: Jobs = None,
    export_timeout: ExportTimeout = None,
    every: All = False,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
    version: Version = False,
) -> None:
    """Check whether reports are sufficient, what is missing, and how to capture it.

    Stores nothing. The exit code is 0 if all reports can be used, 3 if some cannot.

    Examples:

      rankscope check profiles/

      rankscope check profiles/ --iteration 'my_step_(\\d+)' --format json
    """
    from rankscope.check import check as check_reports
    from rankscope.model.options import ShapingOptions

    options = ShapingOptions(iteration, tuple(sorted(phases(phase or []).items())), rank_pattern)
    with console.progress(quiet) as (started, advance):
        reports = check_reports(paths, options, jobs, started, advance)
    _show(reports, output, every)
    if not all(report.usable for report in reports):
        raise typer.Exit(3)


def _show(reports: tuple[CheckedReport, ...], output: Format, every: bool) -> None:
    from rankscope.output import check_report, json_documents, markdown_csv

    if output is Format.JSON:
        own, warnings = check_report.document(reports), check_report.warnings(reports)
        console.write(
            json_documents.dumps(json_documents.document("check", None, None, warnings, own))
        )
        return
    if output is Format.CSV:
        console.write(markdown_csv.csv(check_report.reports_frame(reports)))
        return
    table = check_report.reports_table(reports, every or output is Format.MARKDOWN)
    problems = check_report.problem_texts(reports)
    if output is Format.MARKDOWN:
        prose = markdown_csv.prose
        items = [f"- {prose(text)}\n  - {prose(remedy)}" for text, remedy in problems]
        console.write(
            "\n\n".join(
                [
                    prose(check_report.sentence(reports)),
                    markdown_csv.markdown(table),
                    *map(prose, check_report.causes_text(reports)),
                    *items,
                ]
            )
        )
        return
    console.headline(check_report.sentence(reports))
    console.write("")
    console.show(table, every)
    console.write("")
    for line in check_report.causes_text(reports):
        console.write(line)
    for text, remedy in problems:
        console.write("")
        console.problem(text, remedy)
