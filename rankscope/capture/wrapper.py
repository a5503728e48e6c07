"""Wishes for a capture → the wrapper script of a scheduler."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from rankscope.errors import UsageError
from rankscope.util.atomic_io import write_whole

MARK = "# Written by: rankscope capture"
"""Tells our scripts from others."""

SCHEDULERS = {
    "slurm": ("slurm.sh",),
    "pbs": ("pbs.sh",),
    "mpirun": ("mpirun.sh",),
    "torchrun": ("torchrun.sh",),
    "k8s": ("mpirun.sh", "k8s.sh"),
}
"""Schedulers → the scripts that tell rank, local rank and node under them."""

TRACES_MPI = ("pbs", "mpirun", "k8s")
"""Launchers of MPI programs, whose collectives nsys can trace."""

PROFILER_API = "cudaProfilerApi"

HEAD = """\
# Profiles each rank into REPORTS/report_rank_N.nsys-rep. Of the environment, RANKSCOPE_REPORTS and
# RANKSCOPE_TMPDIR beat the settings below, and RANKSCOPE_NSYS is the nsys to use.
# shellcheck disable=SC2016
set -eu
"""

RANGE = """\
# Records from torch.cuda.profiler.start() to .stop(); call them at the same steps on every rank.
"""

NAMES = re.compile(r"[a-z0-9-]+(,[a-z0-9-]+)*")


@dataclass(frozen=True, slots=True)
class CaptureConfig:
    """What to capture, where, and when; the defaults are those of the command line.

    Times are whole seconds from the start of each rank's nsys.
    """

    local_ranks: tuple[int, ...] = ()  # all
    nodes: int | None = None  # the first so many; None for all
    capture_range: str | None = None  # PROFILER_API: between its start and stop
    delay_s: int | None = None
    duration_s: int | None = None
    trace: str | None = None  # what nsys traces; None for what suits the scheduler
    reports: str = "profiles"
    tmpdir: str = "/tmp"
    functions: str | None = None  # path of a functions trace, where the job runs
    metrics: bool = False  # the device's counters, once a node
    graph_nodes: bool = False  # kernels inside CUDA graphs one by one
    nsys: tuple[str, ...] = ()  # further options of `nsys profile`


def wrapper(scheduler: str, wish: CaptureConfig, name: str = "profile.sh") -> str:
    """The script to put between launcher and training command.

    Args:
        scheduler: one of SCHEDULERS.
        wish: what to capture.
        name: how the script will be called, for its usage line.

    Raises:
        UsageError: an unknown scheduler, or wishes that contradict each other.
    """
    if scheduler not in SCHEDULERS:
        raise UsageError(
            f"{scheduler}: no scheduler that rankscope knows",
            hint=f"one of {', '.join(SCHEDULERS)}; torchrun for PyTorchJob and the like",
        )
    trace = wish.trace or ("cuda,nvtx,mpi" if scheduler in TRACES_MPI else "cuda,nvtx")
    _check(wish, trace)
    settings = {
        "reports": wish.reports,
        "tmp": wish.tmpdir,
        "trace": trace,
        "local_ranks": " ".join(map(str, wish.local_ranks)),
        "nodes": "" if wish.nodes is None else str(wish.nodes),
        "functions": wish.functions or "",
        "metrics": "yes" if wish.metrics else "no",
    }
    extra = [*(["--cuda-graph-trace=node"] if wish.graph_nodes else []), *wish.nsys]
    lines = [f"{setting}={shlex.quote(value)}" for setting, value in settings.items()]
    lines += [f"window=({shlex.join(_window(wish))})", f"extra=({shlex.join(extra)})"]
    head = (
        f"#!/usr/bin/env bash\n{MARK} {scheduler}\n" + (RANGE if wish.capture_range else "") + HEAD
    )
    parts = [_text(part).replace("WRAPPER", _called(name)) for part in SCHEDULERS[scheduler]]
    return "\n".join([head, "\n".join(lines) + "\n", *parts, _text("profile.sh")])


def usage(scheduler: str, name: str) -> str:
    """How to start a training with the script `name`: a line for the shell."""
    comment = _text(SCHEDULERS[scheduler][-1]).partition("WRAPPER")
    return comment[0].rpartition(":  ")[2] + _called(name) + comment[2].partition("\n")[0]


def functions_trace() -> str:
    """The JSON of nsys's `--python-functions-trace` for PyTorch, in names rankscope knows.

    Steps end where `Optimizer._optimizer_step_code` is called, which every optimizer does last.
    """
    return _text("pytorch.json")


def snippet() -> str:
    """NVTX ranges around the parts of a training loop, in names rankscope knows."""
    return _text("snippet.txt")


def save(path: Path, text: str) -> None:
    """Write a script, which is made executable, or a functions trace.

    Raises:
        UsageError: `path` cannot be written to, or is a file of somebody else.
    """
    try:
        if path.exists() and MARK not in path.read_text("utf-8", "replace")[:200]:
            raise UsageError(
                f"{path}: is there already, and no script of rankscope", hint="name another file"
            )
        write_whole(path, text.encode())
        if text.startswith("#!"):
            path.chmod(path.stat().st_mode | 0o111)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror})", hint="name another file"
        ) from error


def _check(wish: CaptureConfig, trace: str) -> None:
    if not NAMES.fullmatch(trace):
        raise UsageError(f"--trace {trace!r}", hint="names with commas, like cuda,nvtx,mpi")
    timed = wish.delay_s is not None or wish.duration_s is not None
    if wish.capture_range is not None and timed:
        raise UsageError(
            "--capture-range and --delay or --duration exclude each other",
            hint="the range is the better one: it opens at the same step on every rank",
        )
    if wish.capture_range not in (None, PROFILER_API):
        raise UsageError(f"--capture-range {wish.capture_range}", hint=PROFILER_API)
    if wish.capture_range and "cuda" not in trace.split(","):
        raise UsageError(
            f"--capture-range {PROFILER_API} needs cuda among --trace", hint="--trace cuda,nvtx"
        )
    for option, value in (("--reports", wish.reports), ("--tmpdir", wish.tmpdir)):
        if not value or "\n" in value:
            raise UsageError(f"{option} {value!r} is no folder", hint="name one")


def _window(wish: CaptureConfig) -> list[str]:
    """nsys's options for when to record; training goes on when recording ends."""
    if wish.capture_range:
        return [f"--capture-range={wish.capture_range}", "--capture-range-end=stop"]
    window = [] if wish.delay_s is None else [f"--delay={wish.delay_s}"]
    if wish.duration_s is not None:
        window += [f"--duration={wish.duration_s}", "--kill=none"]
    return window


def _called(name: str) -> str:
    """A script as the shell finds it, on one line."""
    path = name if "/" in name else f"./{name}"
    return shlex.quote(path) if path.isprintable() else "./profile.sh"


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
