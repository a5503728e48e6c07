"""`rankscope fleet`: which hardware is slow again and again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import console
from rankscope_cli.options import (
    All,
    Format,
    FormatOption,
    Quiet,
    Verbose,
    check_page,
)

if TYPE_CHECKING:
    from rankscope.history.fleet.collect import Collected
    from rankscope.history.fleet.fleet import Fleet

ADD = "add"
"""The first argument where the databases that follow are added to a ledger."""


def fleet(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[add] RUN.duckdb...",
            help="Databases of runs, folders (searched recursively) or glob patterns; with 'add' "
            "before them they are added to the ledger of --store.",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="FILE",
            help="Ledger that keeps what runs say about hardware, so that they may be deleted.",
        ),
    ] = None,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            "--prometheus",
            metavar="FILE.prom",
            help="Write the answer for the textfile collector of node_exporter, too.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE.html",
            help="Write one self-contained page with the answer, too.",
        ),
    ] = None,
    show_all: All = False,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Find the hosts and GPUs that are slow in run after run, beyond chance.

    Examples:

      rankscope fleet runs/*.duckdb

      rankscope fleet --store fleet.duckdb add tonight.duckdb

      rankscope fleet --store fleet.duckdb --prometheus /var/lib/node_exporter/rankscope.prom

      rankscope fleet runs/ --html fleet.html
    """
    from rankscope.history.fleet.fleet import fleet_of
    from rankscope.output import fleet_tables, markdown_csv

    _check(prometheus, page)
    answer = fleet_of(_collected(runs or [], store))
    _write(answer, prometheus, page)
    if output is Format.JSON:
        from rankscope.output.documents.fleet import fleet as document

        console.write_document(document(answer))
        return
    if output is Format.CSV:
        console.write(markdown_csv.csv(answer.hardware))
    else:
        shown = fleet_tables.table(answer, show_all)
        lines = [answer.sentence, f"Next: {answer.next}."]
        if output is Format.MARKDOWN:
            console.write("\n\n".join([*lines, markdown_csv.markdown(shown)]))
        else:
            console.headline(lines[0])
            console.prose(lines[1])
            if shown.rows:
                console.write("")
                console.show(shown, show_all)
    console.warn(answer.problems, quiet)


def _check(prometheus: Path | None, page: Path | None) -> None:
    """Raises `UsageError` if a file cannot be written, or has the wrong name."""
    from rankscope.util.atomic_io import check_writable

    for target in (prometheus, page):
        if target is not None:
            check_writable(target)
    if page is not None:
        check_page(page, "--html")


def _write(answer: Fleet, prometheus: Path | None, page: Path | None) -> None:
    """Write the requested files."""
    from rankscope.util.atomic_io import write_whole

    if prometheus is not None:
        from rankscope.output import fleet_tables

        write_whole(prometheus, fleet_tables.prometheus(answer).encode())
    if page is not None:
        from rankscope.output.html.fleet_page import render_fleet

        write_whole(page, render_fleet(answer))


def _collected(arguments: list[str], store: Path | None) -> Collected:
    """The evidence in the named databases and in the ledger; with `add` it is stored there first.

    Raises:
        UsageError: no database and no ledger is named, or `add` lacks one of them.
    """
    from rankscope.errors import UsageError
    from rankscope.history.fleet.collect import add_to_ledger, collect, databases, read_ledger

    adding = arguments[:1] == [ADD]
    names = arguments[1:] if adding else arguments
    if adding and (store is None or not names):
        raise UsageError(
            "add needs a ledger and databases of runs",
            hint="rankscope fleet --store fleet.duckdb add RUN.duckdb",
        )
    if not names and store is None:
        raise UsageError(
            "no runs are named", hint="rankscope fleet runs/*.duckdb, or --store fleet.duckdb"
        )
    ledger = None if store is None else os.path.realpath(store)  # a circle of links is no error
    paths = [path for path in databases(names) if os.path.realpath(path) != ledger]
    collected = collect(paths) if paths else None
    if store is None:
        assert collected is not None
        return collected
    if adding and collected is not None:
        add_to_ledger(store, collected)
    return read_ledger(store, collected)
