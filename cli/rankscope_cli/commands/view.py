"""`rankscope view`: the page of a run, served on this machine."""

from typing import Annotated

import typer

from rankscope_cli import console
from rankscope_cli.bundles import MeanAnalysis
from rankscope_cli.options import DB, Db, PickMetric, Quiet, Verbose

ADDRESS_AFTER_S = 0.5
"""Time (s) after which the address is printed, although the ranks are still being compared."""


def view(
    *,
    db: Db = DB,
    analysis: MeanAnalysis,
    metric: PickMetric = None,
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
) -> None:
    """Serve the page of the run on this machine, with more than a file can hold.

    The page shows the timeline of any ranks in any iteration, what their training threads did,
    and any range of iterations. Only those who have the address, which holds a random token, can
    see it. It runs until Ctrl-C.

    Examples:

      rankscope view

      rankscope view --db run.duckdb --port 8600
    """
    import socket
    from concurrent.futures import ThreadPoolExecutor, wait
    from functools import partial

    from rankscope.view.page_server import LOOPBACK, PageServer, RunAnswers

    answers = RunAnswers(db, analysis, metric)
    pool = ThreadPoolExecutor(1)
    compared = pool.submit(answers.settled, partial(answers.comparison, ""))
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
    answers.settled(lambda: console.warn_of_run(answers.run, problems, quiet, verbose))
    server.serve()
