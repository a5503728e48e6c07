"""`rankscope ingest`: reads the reports of a run into one database."""

from __future__ import annotations

from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import console
from rankscope_cli.bundles import Shaping
from rankscope_cli.opening import say_skipped
from rankscope_cli.options import (
    DB,
    Db,
    Format,
    FormatOption,
    Jobs,
    OnError,
    Paths,
    Quiet,
    RunOption,
    Verbose,
)
from rankscope_cli.progress import progress_bar

if TYPE_CHECKING:
    from rankscope.compare.comparison import Comparison
    from rankscope.ingestion.job import Ingested
    from rankscope.output.documents.reports import Ingest

EXAMPLES = """
Examples:

  rankscope ingest profiles/

  rankscope ingest 'run7/*/report_*.sqlite' --db run7.duckdb

  rankscope ingest profiles/ --iteration 'my_step_(\\d+)' --phase forward='fprop.*'
"""


def ingest(
    *,
    paths: Paths,
    db: Db = DB,
    shaping: Shaping,
    jobs: Jobs = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="ADDRESS|FILE",
            help="Address or scheduler file of a Dask cluster that reads the reports instead of "
            "local processes.",
        ),
    ] = None,
    on_error: Annotated[
        OnError,
        typer.Option(
            "--on-error",
            metavar="|".join(OnError),
            help="Bad reports: stop (fail), or leave them out and list them (skip).",
        ),
    ] = OnError.FAIL,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Replace the database.")] = False,
    ranks: Annotated[
        str | None,
        typer.Option(
            "--ranks",
            metavar="0,7,100:120",
            help="Read only these ranks; A:B excludes B, A-B includes it. Default: all.",
        ),
    ] = None,
    run: RunOption = None,
    all_runs: Annotated[
        bool,
        typer.Option(
            "--all-runs",
            help="If the reports are of several runs: make one database per run, named "
            "rankscope-1.duckdb and so on.",
        ),
    ] = False,
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            metavar="TEXT",
            help="What the run is, for example a commit: rankscope diff names it.",
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Read the profiler reports of a run into one database.

    Unchanged reports that the database already contains are not read again. An interrupted
    ingest resumes if it is started again.
    """
    from rankscope.errors import UsageError
    from rankscope.ingestion.job import ingest_reports
    from rankscope.util.rank_list import parse_ranks

    databases = {db: run}
    if all_runs:
        if run is not None:
            raise UsageError("--run with --all-runs", hint="give one of them")
        count = _count_runs(paths, shaping.rank_pattern)
        numbered = {db.with_stem(f"{db.stem}-{each}"): each for each in range(1, count + 1)}
        databases = {**numbered} if count > 1 else databases
    documents: list[Ingest] = []
    for target, number in databases.items():
        with progress_bar(quiet) as (started, advance):
            done = ingest_reports(
                paths,
                target,
                shaping,
                jobs=jobs,
                scheduler=scheduler,
                on_error=on_error.value,
                rebuild=rebuild,
                ranks=None if ranks is None else parse_ranks(ranks),
                run=number,
                label=label,
                started=started,
                progress=advance,
            )
        from rankscope.api import reading  # heavy: imported beside the workers
        from rankscope.compare.comparison import Stage
        from rankscope.output.documents.reports import IngestRuns
        from rankscope.output.documents.reports import ingest as document
        from rankscope.store.connection import AFTERWARDS_S

        with reading(target, patience_s=AFTERWARDS_S) as stored:
            matched = stored.compare(until=Stage.MATCH)
            if output is Format.JSON:
                documents.append(
                    document(target, matched, done.outcomes, done.seconds, done.events)
                )
            else:
                _show(target, matched, done, output, quiet, verbose)
    if output is Format.JSON:
        several = IngestRuns(runs=tuple(documents))
        console.write_document(documents[0] if len(documents) == 1 else several)


ingest.__doc__ = f"{cleandoc(ingest.__doc__ or '')}\n{EXAMPLES}"


def _count_runs(paths: list[str], rank_pattern: str | None) -> int:
    """The number of runs that the reports belong to."""
    from rankscope.ingestion.preflight import found_runs, reports_to_read
    from rankscope.sources.discover import discover
    from rankscope.sources.identify import pattern

    path_pattern = pattern(rank_pattern)
    files = discover(paths, lambda *_: None)  # ingest warns of unreadable reports
    return len(found_runs(reports_to_read(files, path_pattern)[0], path_pattern))


def _show(
    db: Path, comparison: Comparison, done: Ingested, output: Format, quiet: bool, verbose: bool
) -> None:
    """Print what became of each report: a line in all, with `verbose` or as CSV a row each."""
    import polars as pl

    from rankscope.output import frame_table
    from rankscope.output.documents.common import plain
    from rankscope.output.documents.reports import ingested
    from rankscope.output.quantities import short_path
    from rankscope.sources import formats
    from rankscope.util.wording import counted, ranks_text, size

    frame = pl.DataFrame(
        [{**plain(each), "path": short_path(Path(each.path))} for each in ingested(done.outcomes)],
        infer_schema_length=None,
    )
    if output in (Format.CSV, Format.MARKDOWN):
        console.write(frame_table.frame_text(frame, "Reports", is_csv=output is Format.CSV))
        return
    if verbose:
        console.show(frame_table.generic_table(frame, "Reports"), show_all=True)
    say_skipped(done, verbose)
    console.warn(comparison.warnings, quiet, show_all=verbose)
    counts = {
        status: sum(outcome.status == status for outcome in done.outcomes)
        for status in ("read", "unchanged", "skipped")
    }
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    shown = ranks_text(comparison.tables.ranks["rank"])
    world = f" of {comparison.scope.world_size}" if comparison.scope.world_size else ""
    total = sum(outcome.bytes for outcome in done.outcomes)
    kinds = [formats.find(outcome.kind) for outcome in done.outcomes]
    if verbose and any(kind is not None and kind.exported for kind in kinds):
        from rankscope.sources.nsys import export

        console.say(
            f"rankscope: nsys exports use {size(export.cache_bytes())} in "
            f"{export.cache_folder()}; --rebuild deletes those of its reports",
            quiet,
        )
    reports = counted(len(done.outcomes), "report")
    console.write(
        f"{reports} ({statuses}; {size(total)}, {counted(done.events, 'event')}) in "
        f"{done.seconds:.1f} s: {shown}{world} in {short_path(db)}"
    )
