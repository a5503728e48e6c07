"""`rankscope plot`: pictures of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rankscope.model.options import Options
from rankscope.output.plots import KINDS
from rankscope_cli import console
from rankscope_cli.analysis import with_mean_analysis
from rankscope_cli.help import CHOICE
from rankscope_cli.opening import opened
from rankscope_cli.options import (
    Db,
    DrawnMetric,
    Format,
    FormatOption,
    Quiet,
    Theme,
    ThemeOption,
    Verbose,
    Version,
    ranks_option,
)

EXAMPLES = """
Examples:

  rankscope plot heatmap

  rankscope plot heatmap --metric load --iter-range 10:50 -o load.svg

  rankscope plot timeline --iteration-number 17 --theme dark
"""


def _kinds() -> list[str]:
    return [*KINDS]


@with_mean_analysis
def plot(
    *,
    kind: Annotated[
        str, typer.Argument(metavar="|".join(KINDS), help="Kind of plot.", autocompletion=_kinds)
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
    db: Db = Path("rankscope.duckdb"),
    analysis: Options,
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
    version: Version = False,
) -> None:
    """Draw a picture of the run; its title is the finding."""
    from rankscope.api import view_of
    from rankscope.compare.comparison import Stage
    from rankscope.output.plots import draw, format_of, save, title_of
    from rankscope.util.atomic_io import check_writable
    from rankscope.util.rank_list import parse_ranks

    path = target or Path(f"{kind}.png")
    if kind in KINDS:
        format_of(path)
        check_writable(path)
    run = opened(db)
    comparison = run.compare(analysis, until=Stage.VERDICT)
    chosen = None if ranks is None else sorted(parse_ranks(ranks))
    view = view_of(kind, comparison, metric, iteration, theme.value, chosen)
    figure = draw(kind, comparison, view)
    save(figure, path, theme.value)
    facts: dict[str, Any] = {
        "kind": kind,
        "file": str(path),
        "title": title_of(figure),
        "theme": theme.value,
    }
    if output is Format.JSON:
        from rankscope.output.documents.common import dumps
        from rankscope.output.documents.written import Plot, written

        console.write(dumps(written(Plot, db, comparison, **facts)))
        return
    _write(facts, output)
    console.warn_of_run(run, comparison.warnings, quiet, verbose)
    if verbose:
        from rankscope.output.text_tables import run_line

        console.say(f"rankscope: {run_line(comparison.facts)}")


plot.__doc__ = "\n\n".join(
    [
        str(plot.__doc__),
        *(f"{name}: {meaning}" for name, meaning in KINDS.items()),
        "Many runs: rankscope fleet RUN.duckdb... --plot FILE draws hardware and runs.",
        EXAMPLES.strip(),
    ]
)


def _write(facts: dict[str, str], output: Format) -> None:
    """Print the name of the picture's file and its title."""
    from rankscope.output.quantities import short_path
    from rankscope.util.sanitize import sanitized

    if output is Format.TABLE:
        console.write(f"{short_path(Path(facts['file']))}: {sanitized(facts['title'], 300)}")
        return
    import polars as pl

    from rankscope.output.frame_table import frame_text

    console.write(frame_text(pl.DataFrame([facts]), "Picture", is_csv=output is Format.CSV))
