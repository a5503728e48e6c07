"""`rankscope mcp`: rankscope as a tool of an assistant."""

from pathlib import Path
from typing import Annotated

import typer

from rankscope_cli import console
from rankscope_cli.options import Quiet, Verbose


def mcp(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...",
            help="Folders with reports and databases. Nothing outside them is read or written.",
        ),
    ],
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Answer an assistant: a server of the Model Context Protocol on stdin and stdout.

    Its tools are check, ingest, imbalance, explain, pick_reports, timeline and next_capture. The
    assistant starts it and ends it. Needs the extra: pip install 'rankscope[mcp]'.

    Examples:

      rankscope mcp profiles/

      rankscope mcp /data/profiles /scratch/runs
    """
    from rankscope.agent.server import serve

    message = "rankscope: answering on stdin and stdout; Ctrl-C ends it"
    serve(folders, lambda: console.say(message, quiet))
