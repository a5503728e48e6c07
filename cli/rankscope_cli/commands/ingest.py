"""`rankscope ingest`: the reports of a run into one database."""

from __future__ import annotations

from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import console
from rankscope_cli.options import (
    Db,
    ExportTimeout,
    Format,
    FormatOption,
    IterationOption,
    Jobs,
    OnError,
    Paths,
    PhaseOption,
    Quiet,
    RankPattern,
    Verbose,
    Version,
    numbers,
    phases,
)

if TYPE_CHECKING:
    from rankscope.api import Run
    from rankscope.ingestion.job import Ingested

EXAMPLES = """
Examples:

  rankscope ingest profiles/

  rankscope ingest 'run7/*/report_*.sqlite' --db run7.duckdb

  rankscope ingest profiles/ --iteration 'my_step_(\\d+)' --phase forward='fprop.*'
"""


def ingest(
    paths: Paths,
    db: Db = Path("rankscope.duckdb"),
    iteration: IterationOption = None,
    phase: PhaseOption = None,
    rank_pattern: RankPattern = None,
    jobs: Jobs = None,
    export_timeout: ExportTimeout = None,
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
            help="Read only these ranks; the end of a range is excluded. Default: all.",
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
    version: Version = False,
) -> None:
    """Read the profiler reports of a run into one database.

    Unchanged reports that the database already contains are not read again. An interrupted
    ingest resumes if it is started again.
    """
    from rankscope.ingestion.job import ingest_reports

    with console.progress(quiet) as (started, advance):
        done = ingest_reports(
            paths,
            db,
            iteration=iteration,
            phases=phases(phase or []),
            rank_pattern=rank_pattern,
            jobs=jobs,
            scheduler=scheduler,
            on_error=on_error.value,
            rebuild=rebuild,
            ranks=None if ranks is None else numbers("--ranks", ranks),
            started=started,
            progress=advance,
        )
    from rankscope.api import open_run

    _show(open_run(db), done, output, quiet, verbose)


ingest.__doc__ = f"{cleandoc(ingest.__doc__ or '')}\n{EXAMPLES}"


def _show(run: Run, done: Ingested, output: Format, quiet: bool, verbose: bool) -> None:
    from rankscope.compare.comparison import Stage
    from rankscope.output import frame_table, json_documents, markdown_csv
    from rankscope.output.quantities import short_path, size, span

    comparison = run.compare(until=Stage.MATCH)
    outcomes = json_documents.outcomes(done.outcomes)
    if output is Format.JSON:
        console.write(
            json_documents.dumps(
                json_documents.document(
                    "ingest",
                    run.db,
                    comparison.facts if comparison.comparable else None,
                    comparison.warnings,
                    {"reports": outcomes, "seconds": done.seconds, "events": done.events},
                )
            )
        )
        return
    import polars as pl

    frame = pl.DataFrame(
        [{**each, "path": short_path(Path(each["path"]))} for each in outcomes],
        infer_schema_length=None,
    )
    if output is Format.CSV:
        console.write(markdown_csv.csv(frame))
        return
    if output is Format.MARKDOWN:
        console.write(markdown_csv.markdown(frame_table.generic_table(frame, "Reports")))
        return
    if verbose:
        console.show(frame_table.generic_table(frame, "Reports"), every=True)
    for outcome in done.outcomes:
        if outcome.status == "skipped":
            console.say(f"rankscope: skipped: {outcome.reason}")
    console.warn(comparison.warnings, quiet)
    counts = {
        status: sum(outcome.status == status for outcome in done.outcomes)
        for status in ("read", "unchanged", "skipped")
    }
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    ranks = sorted(comparison.tables.ranks["rank"])
    world = f" of {comparison.scope.world_size}" if comparison.scope.world_size else ""
    many = "report" if len(done.outcomes) == 1 else "reports"
    total = sum(outcome.bytes for outcome in done.outcomes)
    from rankscope.sources import formats

    kinds = [formats.find(outcome.kind) for outcome in done.outcomes]
    if any(kind is not None and kind.exported for kind in kinds):
        console.say(
            f"rankscope: nsys exports use {size(formats.exports_bytes())} in "
            f"{formats.exports_folder()}; "
            "--rebuild deletes those of its reports",
            quiet,
        )
    console.write(
        f"{len(done.outcomes)} {many} ({statuses}; {size(total)}, {done.events:,} events) in "
        f"{done.seconds:.1f} s: ranks {span(ranks)}{world} in {short_path(run.db)}"
    )
