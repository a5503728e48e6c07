"""`rankscope report`: one page with all results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import console
from rankscope_cli.options import (
    Clock,
    ClockOption,
    Db,
    Format,
    FormatOption,
    IncludeWarmup,
    IterRange,
    Quiet,
    RolesOption,
    Statistic,
    Verbose,
    Version,
    analysis_options,
)

if TYPE_CHECKING:
    from rankscope.compare.comparison import Comparison
    from rankscope.compare.picks import Picks
    from rankscope.output.html.lanes import PicksTimeline

ENDINGS = (".html", ".htm")
"""Endings of the name of a page."""


def report(
    target: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE.html", help="The page to write."),
    ],
    db: Db = Path("rankscope.duckdb"),
    iter_range: IterRange = None,
    clock: ClockOption = Clock.AUTO,
    roles: RolesOption = None,
    include_warmup: IncludeWarmup = False,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
    version: Version = False,
) -> None:
    """Write one self-contained page: verdict, heat map, phases, timeline and tables.

    It opens from disk in any browser and loads nothing from the network.

    Examples:

      rankscope report -o report.html

      rankscope report --iter-range 10:50 -o slow.html
    """
    import polars as pl

    from rankscope import __version__
    from rankscope.api import open_run, picks_of
    from rankscope.compare.imbalance import imbalance
    from rankscope.errors import UsageError
    from rankscope.output import frame_table, json_documents, markdown_csv, text_tables
    from rankscope.output.html.page import render_page
    from rankscope.output.html.page_text import Origin
    from rankscope.output.quantities import short_path, size
    from rankscope.util.atomic_io import check_writable, write_whole
    from rankscope.util.sanitize import sanitized

    if target.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"-o {target}: the name of a page must end in .html",
            hint=f"-o {target.with_suffix('.html')}",
        )
    check_writable(target)
    comparison = open_run(db).compare(
        analysis_options(iter_range, clock, Statistic.MEAN, include_warmup, roles)
    )
    result, picks = imbalance(comparison), picks_of(comparison, None)
    detail = _detail(comparison, picks)
    origin = Origin(db, target, f"rankscope {__version__}")
    content = render_page(comparison, result, picks, detail, origin)
    write_whole(target, content)
    facts = {"output": str(target), "bytes": len(content), "timeline": detail.timeline is not None}
    if output is Format.JSON:
        whole = json_documents.document("report", db, comparison.facts, comparison.warnings, facts)
        console.write(json_documents.dumps(whole))
        return
    if detail.reason:
        console.say(f"rankscope: warning: no timeline: {sanitized(detail.reason, 2000)}", quiet)
    console.warn(comparison.warnings, quiet)
    if output is Format.TABLE:
        console.write(f"{short_path(target)}: {size(len(content))}; open it in any browser")
    else:
        frame = pl.DataFrame([facts])
        markdown = markdown_csv.markdown(frame_table.generic_table(frame, "Page"))
        console.write(markdown_csv.csv(frame) if output is Format.CSV else markdown)
    if verbose:
        console.say(f"rankscope: {text_tables.run_line(comparison.facts)}")


def _detail(comparison: Comparison, picks: Picks) -> PicksTimeline:
    """The timeline of the picked ranks in their worst iteration, or why it is missing."""
    from rankscope.compare.timeline import timeline, with_last_to_arrive
    from rankscope.errors import RankscopeError
    from rankscope.output.html.lanes import PicksTimeline

    worst = [picks.picks[0].worst.iteration]
    ranks = with_last_to_arrive(comparison, [each.rank for each in picks.picks], worst)
    try:
        return PicksTimeline(timeline(comparison, ranks, worst))
    except RankscopeError as error:
        return PicksTimeline(None, error.message)
