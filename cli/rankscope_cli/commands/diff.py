"""`rankscope diff`: the effect of a change, rank by rank and phase by phase."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import console
from rankscope_cli.options import (
    All,
    Clock,
    ClockOption,
    Format,
    FormatOption,
    IncludeWarmup,
    IterRange,
    MetricsOption,
    Quiet,
    RolesOption,
    Statistic,
    StatisticOption,
    Verbose,
    Version,
    analysis_options,
)

if TYPE_CHECKING:
    from rankscope.compare.diff.compare import RunDiff


def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="Database of the first run.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Database of the second run.")],
    iter_range: IterRange = None,
    metric: MetricsOption = None,
    statistic: StatisticOption = Statistic.MEAN,
    clock: ClockOption = Clock.AUTO,
    include_warmup: IncludeWarmup = False,
    roles: RolesOption = None,
    every: All = False,
    fail_above: Annotated[
        float | None,
        typer.Option(
            "--fail-above",
            metavar="PERCENT",
            min=0,
            help="Exit with code 10 if iterations became slower by more than PERCENT, with 3 if "
            "that is uncertain.",
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
    version: Version = False,
) -> None:
    """Compare two runs: which ranks and phases changed beyond noise?

    Examples:

      rankscope diff before.duckdb after.duckdb

      rankscope diff main.duckdb branch.duckdb --fail-above 3
    """
    from rankscope.api import diff_of, open_run
    from rankscope.compare.comparison import Stage
    from rankscope.model.metrics import check_metrics
    from rankscope.output import json_documents, markdown_csv, text_tables

    options = analysis_options(iter_range, clock, statistic, include_warmup, roles)
    names = check_metrics(metric or []) or None
    result, old, new = diff_of(
        open_run(before), open_run(after), options, names, until=Stage.VERDICT
    )
    problems = (*result.problems, *new.warnings)
    if output is Format.JSON:
        own = {
            **json_documents.run_diff(result),
            **json_documents.verdicts(old.verdict, new.verdict),
        }
        console.write(
            json_documents.dumps(json_documents.document("diff", after, new.facts, problems, own))
        )
    elif output is Format.CSV:
        console.write(markdown_csv.csv(text_tables.changes_frame((*result.metrics, *result.ranks))))
    else:
        shown = [
            text_tables.changes_table(result.metrics),
            text_tables.movers_table(result.ranks, every),
        ]
        lines = [
            result.sentence,
            f"Before: {old.verdict.sentence}",
            f"After: {new.verdict.sentence}",
        ]
        if output is Format.MARKDOWN:
            texts = map(markdown_csv.prose, lines)
            console.write("\n\n".join([*texts, *map(markdown_csv.markdown, shown)]))
        else:
            console.headline(lines[0])
            for line in lines[1:]:
                console.prose(line)
            for table in shown:
                console.write("")
                console.show(table, every)
    if output is not Format.JSON:
        console.warn(problems, quiet)
    if fail_above is not None:
        _gate(result, fail_above)


def _gate(result: RunDiff, limit: float) -> None:
    """Exit as `--fail-above` requires."""
    change = result.iteration
    if change.change is None or result.sentence.startswith("Inconclusive"):
        console.error(
            "--fail-above: it is uncertain whether iterations became slower",
            hint="compare two runs of one job, with the same ranks, over more iterations",
        )
        raise typer.Exit(3)
    if change.change * 100 <= limit:
        return
    if not change.certain:
        console.error(
            f"--fail-above {limit:g}: {change.change * 100:.1f} % slower, but within noise",
            hint="profile more iterations",
        )
        raise typer.Exit(3)
    console.error(
        f"--fail-above {limit:g}: iterations became {change.change * 100:.1f} % slower",
        hint="run rankscope imbalance on both databases to see where",
    )
    raise typer.Exit(10)
