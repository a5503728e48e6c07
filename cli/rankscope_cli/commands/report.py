"""`rankscope report`: one page with all results."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope_cli import console
from rankscope_cli.bundles import MeanAnalysis
from rankscope_cli.opening import opened
from rankscope_cli.options import (
    DB,
    Db,
    Format,
    FormatOption,
    PickMetric,
    Quiet,
    Verbose,
    check_page,
    ranks_option,
)
from rankscope_cli.written import Written


def report(
    *,
    target: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE.html", help="The page to write."),
    ],
    db: Db = DB,
    analysis: MeanAnalysis,
    metric: PickMetric = None,
    ranks: Annotated[str | None, ranks_option("Pick the ranks of the timeline from these")] = None,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Write one self-contained page: verdict, heat map, phases, timeline and tables.

    It opens from disk in any browser and loads nothing from the network.

    Examples:

      rankscope report -o report.html

      rankscope report --iter-range 10:50 -o slow.html
    """
    from rankscope.api import picks_of
    from rankscope.output.documents.written import Report
    from rankscope.output.html.run_page import make_page
    from rankscope.output.quantities import short_path
    from rankscope.util.atomic_io import check_writable
    from rankscope.util.rank_list import parse_ranks
    from rankscope.util.sanitize import sanitized
    from rankscope.util.wording import size

    check_page(target, "-o")
    check_writable(target)
    chosen = None if ranks is None else parse_ranks(ranks)
    run = opened(db)
    comparison = run.compare(analysis)
    picks = picks_of(comparison, metric, chosen)
    page = make_page(comparison, picks, db, target, metric=metric, ranks=ranks)
    page = page.save(target)
    length = len(page.content)
    if page.no_timeline and output is not Format.JSON:
        console.say(f"rankscope: warning: no timeline: {sanitized(page.no_timeline, 2000)}", quiet)
    Written(
        Report,
        "Page",
        {"output": str(target), "bytes": length, "timeline": not page.no_timeline},
        [f"{short_path(target)}: {size(length)}; open it in any browser"],
    ).show(run, comparison, output, quiet, verbose)
