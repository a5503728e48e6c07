"""`rankscope plot`: pictures of a run."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope.output.plots import KINDS
from rankscope_cli.bundles import MeanAnalysis
from rankscope_cli.help import CHOICE
from rankscope_cli.opening import opened
from rankscope_cli.options import (
    DB,
    Db,
    DrawnMetric,
    Format,
    FormatOption,
    Quiet,
    Theme,
    ThemeOption,
    Verbose,
    ranks_option,
)
from rankscope_cli.written import Written

EXAMPLES = """
Examples:

  rankscope plot heatmap

  rankscope plot heatmap --metric load --iter-range 10:50 -o load.svg

  rankscope plot timeline --iteration-number 17 --theme dark
"""


def plot(
    *,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="|".join(KINDS), help="Kind of plot.", autocompletion=lambda: [*KINDS]
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Picture file: .png, .svg or .pdf. Default: KIND.png.",
        ),
    ] = None,
    db: Db = DB,
    analysis: MeanAnalysis,
    metric: DrawnMetric = None,
    iteration: Annotated[
        int | None,
        typer.Option(
            "--iteration-number",
            "--iteration",
            metavar="N",
            help="Iteration of a timeline, or to explain. Default: the worst one.",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        ranks_option(
            "Ranks to show",
            "A timeline also shows who arrives last. Default: all, or the picked ones in a "
            "timeline.",
        ),
    ] = None,
    theme: ThemeOption = Theme.LIGHT,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Draw a picture of the run; its title is the finding."""
    from rankscope.api import view_of
    from rankscope.compare.comparison import Stage
    from rankscope.output.documents.written import Plot
    from rankscope.output.plots import Picture, check_kind, draw, format_of
    from rankscope.output.quantities import short_path
    from rankscope.util.atomic_io import check_writable
    from rankscope.util.rank_list import parse_ranks
    from rankscope.util.sanitize import sanitized

    check_kind(kind)
    path = target or Path(f"{kind}.png")
    format_of(path)
    check_writable(path)
    run = opened(db)
    comparison = run.compare(analysis, until=Stage.VERDICT)
    chosen = None if ranks is None else sorted(parse_ranks(ranks))
    view = view_of(kind, comparison, metric, iteration, theme.value, chosen)
    title = Picture(draw(kind, comparison, view), theme.value).save(path).title
    Written(
        Plot,
        "Picture",
        {"kind": kind, "file": str(path), "title": title, "theme": theme.value},
        [f"{short_path(path)}: {sanitized(title, 300)}"],
    ).show(run, comparison, output, quiet, verbose)


plot.__doc__ = "\n\n".join(
    [
        str(plot.__doc__),
        *(f"{name}: {meaning}" for name, meaning in KINDS.items()),
        "Many runs: rankscope fleet RUN.duckdb... --html FILE draws hardware and runs.",
        EXAMPLES.strip(),
    ]
)
