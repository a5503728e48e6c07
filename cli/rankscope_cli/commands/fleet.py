"""`rankscope fleet`: which hardware is slow again and again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import console
from rankscope_cli.options import All, Format, FormatOption, Quiet, Verbose, Version

if TYPE_CHECKING:
    from rankscope.fleet.collect import Collected

ADD = "add"
"""The word before databases that a ledger shall take in."""


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
    every: All = False,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
    version: Version = False,
) -> None:
    """Find the hosts and GPUs that are slow in run after run, beyond chance.

    Examples:

      rankscope fleet runs/*.duckdb

      rankscope fleet --store fleet.duckdb add tonight.duckdb

      rankscope fleet --store fleet.duckdb --prometheus /var/lib/node_exporter/rankscope.prom
    """
    from rankscope.fleet.fleet import fleet_of
    from rankscope.output import fleet_documents, json_documents, markdown_csv
    from rankscope.util.atomic_io import check_writable, write_whole

    if prometheus is not None:
        check_writable(prometheus)
    answer = fleet_of(_collected(runs or [], store))
    if prometheus is not None:
        write_whole(prometheus, fleet_documents.prometheus(answer).encode())
    if output is Format.JSON:
        own = fleet_documents.document(answer)
        console.write(
            json_documents.dumps(json_documents.document("fleet", None, None, answer.problems, own))
        )
        return
    if output is Format.CSV:
        console.write(markdown_csv.csv(answer.hardware))
    else:
        shown = fleet_documents.table(answer, every)
        lines = [answer.sentence, f"Next: {answer.next}."]
        if output is Format.MARKDOWN:
            console.write("\n\n".join([*lines, markdown_csv.markdown(shown)]))
        else:
            console.headline(lines[0])
            console.prose(lines[1])
            if shown.rows:
                console.write("")
                console.show(shown, every)
    console.warn(answer.problems, quiet)


def _collected(given: list[str], store: Path | None) -> Collected:
    """The evidence that the arguments name; with `add` it is put into the ledger first.

    Raises:
        UsageError: they name nothing, or no ledger to add to.
    """
    from rankscope.errors import UsageError
    from rankscope.fleet import ledger
    from rankscope.fleet.collect import collect, databases

    adding = given[:1] == [ADD]
    names = given[1:] if adding else given
    if adding and (store is None or not names):
        raise UsageError(
            "add needs a ledger and databases of runs",
            hint="rankscope fleet --store fleet.duckdb add RUN.duckdb",
        )
    if not names and store is None:
        raise UsageError(
            "no runs are named", hint="rankscope fleet runs/*.duckdb, or --store fleet.duckdb"
        )
    own = None if store is None else store.resolve()
    paths = [path for path in databases(names) if path.resolve() != own]
    found = collect(paths) if paths else None
    if store is None:
        assert found is not None
        return found
    if adding and found is not None:
        ledger.add(store, found)
    return ledger.recorded(store, found)
