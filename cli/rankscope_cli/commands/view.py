"""`rankscope view`: the page of a run, served on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankscope.model.kinds import Statistic
from rankscope_cli import console
from rankscope_cli.options import (
    ClockChoice,
    ClockOption,
    Db,
    IncludeWarmup,
    IterRange,
    PickMetric,
    Quiet,
    RolesOption,
    Verbose,
    Version,
    analysis_options,
)

ADDRESS_AFTER_S = 0.5
"""Time (s) after which the address is printed, although the ranks are still being compared."""


def view(
    db: Db = Path("rankscope.duckdb"),
    iter_range: IterRange = None,
    clock: ClockOption = ClockChoice.AUTO,
    roles: RolesOption = None,
    metric: PickMetric = None,
    include_warmup: IncludeWarmup = False,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="N",
            show_default=False,
            help="Port on this machine. Default: a free one.",
        ),
    ] = 0,
    quiet: Quiet = False,
    verbose: Verbose = False,
    version: Version = False,
) -> None:
    """Serve the page of the run on this machine, with more than a file can hold.

    The page shows the timeline of any ranks in any iteration, what their training threads did,
    and any range of iterations; and it opens reports in the GUI. Only who has the address, which
    holds a random token, can see it. It runs until Ctrl-C.

    Examples:

      rankscope view

      rankscope view --db run.duckdb --port 8600
    """
    import socket
    from concurrent.futures import ThreadPoolExecutor, wait

    from rankscope.page_server import LOOPBACK, PageServer, RunAnswers

    options = analysis_options(iter_range, clock, Statistic.MEAN, include_warmup, roles)
    answers = RunAnswers(db, options, metric)
    pool = ThreadPoolExecutor(1)
    compared = pool.submit(answers.comparison, "")
    wait([compared], ADDRESS_AFTER_S)
    if compared.done():
        compared.result()  # an error comes in place of the address
    server = PageServer(answers, port)
    console.write(server.address, at_once=True)
    console.say(
        f"on another machine: ssh -N -L {server.port}:{LOOPBACK}:{server.port} "
        f"{socket.gethostname()}, then open the same address; Ctrl-C ends it",
        quiet,
    )
    try:
        problems = compared.result().warnings
    finally:
        pool.shutdown(wait=False)
    console.warn_of_run(answers.run, problems, quiet, verbose)
    server.serve()
