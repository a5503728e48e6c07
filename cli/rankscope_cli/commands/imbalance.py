"""`rankscope imbalance`: slow ranks, their iterations and phases, and what they cost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope.model.kinds import By, VerdictKind
from rankscope_cli import console
from rankscope_cli.bundles import Analysis, Shaping
from rankscope_cli.help import CHOICE, OUTPUT
from rankscope_cli.opening import run_of
from rankscope_cli.options import (
    DB,
    All,
    Db,
    Format,
    FormatOption,
    MetricsOption,
    Quiet,
    Verbose,
    ranks_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from rankscope.compare.comparison import Comparison
    from rankscope.model.results import Imbalance
    from rankscope.output.table_layout import Table

WHY_EMPTY = {
    By.KERNEL: "No kernels to show: the reports contain no device work",
    By.CAUSE: "No causes on the host to show: the reports do not record what threads do",
    By.COLLECTIVE: "No collectives to show: none is in the reports of several ranks",
}
"""Value of `--by` whose table may be empty → the reason."""

MORE = "More: --all, --gain (what each repair would save), --by iteration|phase|…, explain WORD"
"""The last line of the output."""


def imbalance(
    *,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH...]",
            help="Reports, folders or patterns that are ingested into --db first, as rankscope "
            "ingest does; or a database. Default: the database of --db.",
        ),
    ] = None,
    db: Db = DB,
    shaping: Shaping,
    analysis: Analysis,
    metric: MetricsOption = None,
    by: Annotated[
        By,
        typer.Option(
            "--by", metavar="|".join(By), help="Rows of the table.", rich_help_panel=CHOICE
        ),
    ] = By.RANK,
    show_all: All = False,
    gain: Annotated[
        bool,
        typer.Option(
            "--gain",
            help="Also show what repairing one thing would save, and the efficiencies.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    ranks: Annotated[
        str | None,
        ranks_option(
            "Rows of these ranks only",
            "Verdict and medians remain those of all ranks. Default: all.",
        ),
    ] = None,
    fail_above: Annotated[
        float | None,
        typer.Option(
            "--fail-above",
            metavar="PERCENT",
            min=0,
            help="Exit with code 10 if fixing the named ranks would save more than PERCENT of the "
            "time, with 3 if the verdict is inconclusive.",
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Show which ranks are slow, in which iterations and phases, and what it costs.

    Examples:

      rankscope imbalance profiles/ --iteration 'my_step_(\\d+)'

      rankscope imbalance --iter-range 10:50

      rankscope imbalance --by iteration --metric load

      rankscope imbalance --format json | jq .verdict
    """
    from rankscope.compare.breakdowns import rows_by
    from rankscope.compare.comparison import Stage
    from rankscope.model.metrics import check_metrics
    from rankscope.output.nsys_view import with_options
    from rankscope.util.rank_list import parse_ranks

    only = None if ranks is None else parse_ranks(ranks)
    run = run_of(paths or [], db, shaping, quiet, verbose)
    priced = output is Format.JSON or gain or show_all
    comparison = run.compare(analysis, until=Stage.WHAT_IF if priced else Stage.SUMMARY)
    result = comparison.imbalance(check_metrics(metric or []) or None)
    if only is not None:
        _check_ranks(comparison, only, by)
    frame = rows_by(by, comparison, result, only)
    advice = partial(with_options, db=run.db, iter_range=analysis.iter_range)
    empty = _why_empty(by, comparison) if frame.is_empty() and by in WHY_EMPTY else None
    if empty and output in (Format.JSON, Format.CSV):
        console.say(f"rankscope: {'; '.join(empty)}", quiet)
    if output is Format.JSON:
        from rankscope.output.documents.imbalance import imbalance as document

        console.write_document(document(run.db, comparison, result, frame, only))
    elif output is Format.CSV:
        from rankscope.output.markdown_csv import csv

        console.write(csv(frame))
    else:
        from rankscope.output.text_tables import what_if_table

        whole = gain or show_all
        lines = _lines(comparison, result, advice(result.verdict.next), gain=whole)
        tables = [] if empty else _tables(by, comparison, result, frame, metric, only, show_all)
        if whole and (what_if := what_if_table(result)):
            tables.append(what_if)
        more = MORE if by is By.RANK and not whole else ""
        _write(lines, tables, empty, more, output, show_all)
        if verbose:
            console.say(f"rankscope: {comparison.matching.summary.calls} collective calls matched")
    if output is not Format.JSON:
        console.warn_of_run(run, comparison.warnings, quiet, verbose or run.ingested is not None)
    if fail_above is not None:
        _gate(result, fail_above, advice)


def _check_ranks(comparison: Comparison, only: list[int], by: By) -> None:
    """Raises `UsageError` if `--ranks` names unknown ranks, or a row of `--by` has all ranks."""
    from rankscope.errors import UsageError

    if by in (By.ITERATION, By.COLLECTIVE):
        raise UsageError(
            f"--ranks: a row of --by {by} is about all ranks",
            hint="leave --ranks out, or use --by rank",
        )
    comparison.check_ranks(only)


def _lines(comparison: Comparison, result: Imbalance, advice: str, *, gain: bool) -> list[str]:
    """The sentences above the tables, that of the verdict first."""
    from rankscope.output import text_tables

    lines = [
        result.verdict.sentence,
        f"Next: {advice}.",
        text_tables.run_line(comparison.facts),
    ]
    if gain and result.efficiency is not None:
        lines.append(text_tables.efficiency_line(result.efficiency))
    if gain and text_tables.worthwhile(result) is None:
        lines.append(text_tables.no_gains(result))
    return lines


def _tables(
    by: By,
    comparison: Comparison,
    result: Imbalance,
    frame: pl.DataFrame,
    metrics: list[str] | None,
    only: list[int] | None,
    show_all: bool,
) -> list[Table]:
    """The tables of `--by`."""
    from rankscope.output import frame_table, text_tables

    if by is By.ITERATION:
        return [text_tables.iterations_table(result, metrics[0] if metrics else "work")]
    if by is not By.RANK:
        return [frame_table.by_table(by.value, frame)]
    tables = [text_tables.metrics_table(result, comparison, show_all or metrics is not None)]
    if result.ranks.height > 1:
        by_rank = text_tables.ranks_table(result, comparison, metrics, only)
        tables += [] if by_rank is None else [by_rank]
    return tables


def _write(
    lines: list[str],
    tables: list[Table],
    empty: tuple[str, str] | None,
    more: str,
    output: Format,
    show_all: bool,
) -> None:
    """Print the answer as text or Markdown.

    Args:
        empty: why the table of `--by` has no rows, and what to do about it.
        more: the last line of the text, which names further options; may be empty.
    """
    from rankscope.output import markdown_csv

    if output is Format.MARKDOWN:
        facts = [*lines[1:], *([f"{'; '.join(empty)}."] if empty else [])]
        console.write(markdown_csv.section(lines[0], facts, tables))
        return
    console.headline(lines[0])
    for line in lines[1:]:
        console.prose(line)
    console.show_together(tables, show_all, more)
    if empty:
        console.write("")
        console.problem(*empty)


def _why_empty(by: By, comparison: Comparison) -> tuple[str, str]:
    """Why the table of `by` is empty, and what to do about it."""
    from rankscope.sources.recorders import Record, advice, recorder_of

    records = {
        By.KERNEL: Record.KERNELS,
        By.CAUSE: Record.HOST,
        By.COLLECTIVE: Record.COMMUNICATION,
    }
    if by is By.COLLECTIVE and not comparison.tables.read("collectives").is_empty():
        return WHY_EMPTY[by], "ingest the reports of all ranks together"
    return WHY_EMPTY[by], advice(records[by], recorder_of(comparison.tables.reports["kind"]))


def _gate(result: Imbalance, limit: float, advice: Callable[[str], str]) -> None:
    """Exit as `--fail-above` requires; `advice` completes the commands in a text."""
    if result.verdict.kind == VerdictKind.INCONCLUSIVE:
        console.error("--fail-above: the verdict is inconclusive", hint=advice(result.verdict.next))
        raise typer.Exit(3)
    verdict = result.verdict
    named = bool(verdict.ranks or verdict.hosts)
    gain = (verdict.gain or 0.0) * 100 if named else 0.0
    if gain > limit:
        bound = "at most " if verdict.gain_is_bound else ""
        console.error(
            f"--fail-above {limit:g}: fixing the named ranks would save {bound}{gain:.1f} % of the "
            "time",
            hint=advice("run rankscope pick-reports to see which reports to open"),
        )
        raise typer.Exit(10)
