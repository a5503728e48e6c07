"""`rankscope capture`: the launch wrapper for the next profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from rankscope.capture import Scheduler
from rankscope.util.rank_list import MOST_RANKS
from rankscope_cli import console
from rankscope_cli.opening import opened
from rankscope_cli.options import LONGEST_S, Format, FormatOption, Quiet

if TYPE_CHECKING:
    from rankscope.capture import CaptureConfig
    from rankscope.compare.next_capture import NextCapture


def capture(
    scheduler: Annotated[
        Scheduler | None,
        typer.Argument(
            metavar="SCHEDULER",
            help="slurm, pbs (PALS), mpirun, torchrun, or k8s (MPI operator).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="File of the script. Default: print it."
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--for",
            metavar="FILE.duckdb",
            help="The smallest capture that settles what this run left open: the slow ranks, "
            "a median and a fast one, few iterations, and the options that are needed.",
        ),
    ] = None,
    local_ranks: Annotated[
        str | None,
        typer.Option(
            "--local-ranks",
            metavar="0,4",
            help="Profile only these local ranks of each node. Default: all.",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", min=1, max=MOST_RANKS, metavar="N", help="Profile only the first N nodes."
        ),
    ] = None,
    capture_range: Annotated[
        str | None,
        typer.Option(
            "--capture-range",
            metavar="cudaProfilerApi",
            help="Record from torch.cuda.profiler.start() to .stop(), which is the same steps on "
            "all ranks.",
        ),
    ] = None,
    delay: Annotated[
        int | None,
        typer.Option(
            "--delay", min=0, max=LONGEST_S, metavar="S", help="Start recording after S seconds."
        ),
    ] = None,
    duration: Annotated[
        int | None,
        typer.Option(
            "--duration",
            min=1,
            max=LONGEST_S,
            metavar="S",
            help="Record S seconds; training continues.",
        ),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace",
            metavar="LIST",
            help="APIs that nsys traces. Default: cuda,nvtx, and mpi if MPI starts the ranks.",
        ),
    ] = None,
    functions: Annotated[
        Path | None,
        typer.Option(
            "--python-functions-trace",
            metavar="FILE.json",
            help="For code that cannot be edited: nsys annotates DataLoader, forward, backward "
            "and optimizer of PyTorch, as this file says. If the file does not exist, it is "
            "written.",
        ),
    ] = None,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="Also sample GPU metrics, on one rank per node."),
    ] = False,
    graph_nodes: Annotated[
        bool,
        typer.Option("--cuda-graph-nodes", help="Also record each kernel inside CUDA graphs."),
    ] = False,
    nsys: Annotated[
        list[str] | None,
        typer.Option(
            "--nsys", metavar="OPTION", help="Further option of nsys profile (repeatable)."
        ),
    ] = None,
    reports: Annotated[
        str,
        typer.Option("--reports", metavar="DIR", help="Shared folder for the reports."),
    ] = "profiles",
    tmpdir: Annotated[
        str, typer.Option("--tmpdir", metavar="DIR", help="Folder on the local disk of each node.")
    ] = "/tmp",
    snippet: Annotated[
        bool,
        typer.Option("--snippet", help="Print NVTX ranges to add to a training loop."),
    ] = False,
    shown: FormatOption = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Print a wrapper script to put between the launcher and the training command.

    With it, every rank writes a report whose name contains the rank.

    Examples:

      rankscope capture slurm -o profile.sh && srun ./profile.sh python train.py

      rankscope capture torchrun --local-ranks 0,4 --capture-range cudaProfilerApi -o profile.sh

      rankscope capture mpirun --nodes 2 --delay 120 --duration 30 -o profile.sh

      rankscope capture slurm --python-functions-trace torch.json -o profile.sh

      rankscope capture slurm --for rankscope.duckdb -o next.sh

      rankscope capture --snippet
    """
    from rankscope import capture as recipes
    from rankscope.errors import UsageError
    from rankscope.util.rank_list import parse_ranks

    if snippet:
        _print(recipes.snippet(), shown)
        return
    if scheduler is None:
        raise UsageError("no scheduler is given", hint=f"rankscope capture {'|'.join(Scheduler)}")
    config = recipes.CaptureConfig(
        local_ranks=tuple(sorted(parse_ranks(local_ranks, "--local-ranks"))) if local_ranks else (),
        nodes=nodes,
        capture_range=capture_range,
        delay_s=delay,
        duration_s=duration,
        trace=trace,
        reports=reports,
        tmpdir=tmpdir,
        functions=None if functions is None else str(functions.resolve()),
        metrics=metrics,
        graph_nodes=graph_nodes,
        nsys=tuple(nsys or ()),
    )
    next_capture = None
    if run is not None:
        next_capture = opened(run).next_capture()
        config = _merged(next_capture.config(recipes.default_trace(scheduler.value)), config)
    name = "./profile.sh" if output is None else str(output)
    script = recipes.wrapper(scheduler.value, config, name)
    usage = recipes.usage(scheduler.value, name)
    if functions is not None and not functions.exists():
        recipes.save(functions, recipes.functions_trace())
        console.say(f"rankscope: wrote {functions}", quiet)
    if output is not None:
        recipes.save(output, script)
    if output is None or shown is not Format.TABLE:
        _print(script, shown, output, usage, next_capture)
    else:
        console.say(f"rankscope: wrote {output}; start the job with:", quiet)
        console.say(f"  {usage}", quiet)


def _merged(needed: CaptureConfig, requested: CaptureConfig) -> CaptureConfig:
    """The options that a run needs, overridden by those of the command line."""
    unset = type(requested)()
    changed = {
        name: getattr(requested, name)
        for name in requested.__struct_fields__
        if getattr(requested, name) != getattr(unset, name)
    }
    if requested.capture_range is not None:  # replaces the times that the run suggests
        changed = {"delay_s": None, "duration_s": None} | changed
    return replace(needed, **changed)


def _print(
    script: str,
    shown: Format,
    output: Path | None = None,
    usage: str | None = None,
    next_capture: NextCapture | None = None,
) -> None:
    """Print a script as it is, as a row, as a block of Markdown, or as JSON."""
    path = None if output is None else str(output)
    if shown is Format.JSON:
        from rankscope.output.documents.capture import capture as document

        console.write_document(document(script, path, usage, next_capture))
    elif shown is Format.CSV:
        import polars as pl

        from rankscope.output.markdown_csv import csv

        facts = {"script": script, "output": path, "start": usage}
        console.write(csv(pl.DataFrame([facts])))
    else:
        text = script.rstrip("\n")
        console.write(f"```sh\n{text}\n```" if shown is Format.MARKDOWN else text)
