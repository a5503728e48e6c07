"""`rankscope scrub`: a report that can be given to others."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope_cli import console
from rankscope_cli.options import Quiet


def scrub(
    report: Annotated[
        Path, typer.Argument(metavar="REPORT.sqlite", help="An SQLite export of a report.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The copy, a .sqlite file.")
    ],
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="NAME", help="Name to write in place of the host's."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Copy a report without environment, command lines, paths, names of users, hosts and programs.

    What stays: times, sizes and other numbers, with ids of processes and threads; names of ranges,
    domains, kernels, calls, functions and libraries; of a path in such a name the file's name; the
    versions of nsys; variables of ranks. Read the names before you share the copy.

    Examples:

      rankscope scrub report_rank_3.sqlite -o shared_rank_3.sqlite --host node0
    """
    from rankscope.sources.nsys.scrub import scrub as scrubbed

    scrubbed(report, output, host)
    console.say(f"rankscope: wrote {output}", quiet)
