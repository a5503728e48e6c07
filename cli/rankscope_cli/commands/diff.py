"""`rankscope diff`: the effect of a change, rank by rank and phase by phase."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.util.wording import counted, slower_or_faster
from rankscope_cli import console
from rankscope_cli.bundles import Analysis
from rankscope_cli.opening import opened
from rankscope_cli.options import All, Format, FormatOption, MetricsOption, Quiet, Verbose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankscope.history.diff.compare import RunDiff


def diff(
    *,
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="[BEFORE] AFTER",
            help="Databases of the two runs; with --baseline only that of the second one.",
        ),
    ],
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            "--baseline",
            metavar="RUN.duckdb...",
            help="Compare with the mean of several runs, at least three: databases, folders or "
            "glob patterns. The noise is that between these runs.",
        ),
    ] = None,
    analysis: Analysis,
    metric: MetricsOption = None,
    show_all: All = False,
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
) -> None:
    """Compare two runs: which ranks and phases changed beyond noise?

    Examples:

      rankscope diff before.duckdb after.duckdb

      rankscope diff --baseline main/*.duckdb branch.duckdb --fail-above 3
    """
    from rankscope.api import diff_of
    from rankscope.compare.comparison import Stage
    from rankscope.model.metrics import check_metrics
    from rankscope.output import diff_tables, markdown_csv

    names = check_metrics(metric or []) or None
    before, after = _databases(runs, baseline)
    run = opened(after)
    earlier = [opened(each) for each in before]
    result, old, new = diff_of(earlier, run, analysis, names, until=Stage.VERDICT)
    problems = (*result.problems, *new.warnings)
    if output is Format.JSON:
        from rankscope.output.documents.diff import diff as document

        console.write_document(document(after, new, problems, result, old))
    elif output is Format.CSV:
        console.write(markdown_csv.csv(diff_tables.changes_frame((*result.metrics, *result.ranks))))
    else:
        lines, shown = [result.sentence], []
        if not result.is_same:
            verdicts = {"Before": old.verdict, "After": new.verdict}
            lines += [
                f"{when}: {each.sentence if show_all or verbose else each.first_sentence}"
                for when, each in verdicts.items()
            ]
            shown = [
                diff_tables.changes_table(result.metrics, result.clock, result.is_judged),
                diff_tables.movers_table(result.ranks, show_all, result.is_judged),
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
                console.show(table, show_all)
    if output is not Format.JSON:
        console.warn_of_run(run, problems, quiet, verbose)
    if fail_above is not None:
        _gate(result, fail_above)


def _databases(runs: list[Path], baseline: list[str] | None) -> tuple[list[Path], Path]:
    """The databases before, and the one after."""
    from rankscope.errors import UsageError
    from rankscope.history.fleet.collect import databases

    if baseline is None:
        if len(runs) != 2:
            raise UsageError(
                f"{counted(len(runs), 'database')} to compare",
                hint="name two, BEFORE and AFTER; or a --baseline of several, and AFTER",
            )
        return [runs[0]], runs[1]
    if len(runs) != 1:
        raise UsageError(
            f"{counted(len(runs), 'database')} beside --baseline",
            hint="name one, AFTER: rankscope diff --baseline 'runs/*.duckdb' AFTER",
        )
    after = os.path.realpath(runs[0])  # a circle of links is no error
    return [each for each in databases(baseline) if os.path.realpath(each) != after], runs[0]


def with_whole_baseline(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--baseline` before each database that a shell's pattern named.

    A shell turns `--baseline runs/*.duckdb` into several words; an option takes one of them. If
    AFTER stands before the option, all words up to the next option belong to the baseline;
    otherwise the last of them is AFTER.
    """
    words = list(arguments)
    if words.count("--baseline") != 1:
        return words
    start = words.index("--baseline")
    stop = next((i for i in range(start + 1, len(words)) if words[i].startswith("-")), len(words))
    is_named = any(not each.startswith("-") and each.endswith(".duckdb") for each in words[1:start])
    last = stop if is_named or stop - start <= 2 else stop - 1
    more = [word for name in words[start + 2 : last] for word in ("--baseline", name)]
    return [*words[: start + 2], *more, *words[last:]]


def _gate(result: RunDiff, limit: float) -> None:
    """Exit as `--fail-above` requires."""
    change = result.iteration
    if change.change is None or not (result.is_judged or result.is_same):
        message = ": it is uncertain whether iterations became slower"
        hint, code = "compare two runs of one job, with the same ranks, over more iterations", 3
    elif change.change * 100 <= limit:
        return
    elif not change.certain:
        message = f" {limit:g}: {slower_or_faster(change.change)}, but within noise"
        hint, code = "profile more iterations", 3
    else:
        message = f" {limit:g}: iterations became {slower_or_faster(change.change)}"
        hint, code = "run rankscope imbalance on both databases to see where", 10
    console.error(f"--fail-above{message}", hint)
    raise typer.Exit(code)
