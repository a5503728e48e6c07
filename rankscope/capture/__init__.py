"""Launch wrappers that make the next profile complete.

The scripts are data: one `.sh` file per scheduler finds the rank, and `profile.sh` runs nsys.
`pytorch.json` names the functions to annotate in code that cannot be edited, `snippet.txt` the
ranges to add to code that can.
"""

import re
import shlex
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from rankscope.errors import UsageError
from rankscope.util.atomic_io import check_own, write_whole

MARK = "# Written by: rankscope capture"
"""First line of our scripts; other files are never overwritten."""


class Scheduler(StrEnum):
    """The program that starts the ranks; `pbs` is PALS, `k8s` the MPI operator."""

    SLURM = "slurm"
    PBS = "pbs"
    MPIRUN = "mpirun"
    TORCHRUN = "torchrun"
    K8S = "k8s"


SCRIPTS: dict[str, tuple[str, ...]] = {
    **{each: (f"{each}.sh",) for each in Scheduler},
    Scheduler.K8S: ("mpirun.sh", "k8s.sh"),
}
"""Scheduler → the scripts that find rank, local rank and node."""

TRACES_MPI = (Scheduler.PBS, Scheduler.MPIRUN, Scheduler.K8S)
"""Schedulers of MPI programs, whose collectives nsys can trace."""

PROFILER_API = "cudaProfilerApi"

HEAD = """\
# Profiles each rank into REPORTS/report_rank_N.nsys-rep. Of the environment, RANKSCOPE_REPORTS and
# RANKSCOPE_TMPDIR beat the settings below, and RANKSCOPE_NSYS is the nsys to use.
# shellcheck disable=SC2016
set -eu

# A variable's value as a number. In arithmetic the shell would evaluate anything else.
number() {
  case ${!1:-} in
    '' | *[!0-9]*)
      echo "$0: $1 is not a number: put the launcher in front of this script" >&2
      exit 1
      ;;
  esac
  echo "$((10#${!1}))"
}

"""

RANGE = """\
# Records from torch.cuda.profiler.start() to .stop(); call them at the same steps on every rank.
"""

NAMES = re.compile(r"[a-z0-9-]+(,[a-z0-9-]+)*")


class CaptureConfig(Struct, frozen=True):
    """What to capture, where, and when; defaults as on the command line.

    Times are whole seconds from the start of each rank's nsys.
    """

    local_ranks: tuple[int, ...] = ()  # all
    nodes: int | None = None  # only the first N nodes; None for all
    capture_range: str | None = None  # PROFILER_API: between its start and stop calls
    delay_s: int | None = None
    duration_s: int | None = None
    trace: str | None = None  # nsys --trace; None for the scheduler's default
    reports: str = "profiles"
    tmpdir: str = "/tmp"
    functions: str | None = None  # path of a functions trace on the job's machines
    metrics: bool = False  # GPU counters, by one rank per node
    graph_nodes: bool = False  # trace kernels inside CUDA graphs one by one
    nsys: tuple[str, ...] = ()  # further options of `nsys profile`
    ranks: tuple[int, ...] = ()  # all
    sample: str = "none"  # nsys --sample
    cpuctxsw: str = "none"  # nsys --cpuctxsw
    optional: tuple[str, ...] = ()  # options of nsys that an older one may lack
    metric_ranks: tuple[int, ...] = ()  # who records GPU counters; the first of each node
    comments: tuple[str, ...] = ()  # lines that explain the script


def wrapper(scheduler: str, config: CaptureConfig, name: str = "profile.sh") -> str:
    """The script to put between launcher and training command.

    Raises:
        UsageError: an unknown scheduler, or options that contradict each other.
    """
    if scheduler not in SCRIPTS:
        raise UsageError(
            f"{scheduler}: is not a known scheduler",
            hint=f"one of {', '.join(SCRIPTS)}; torchrun for PyTorchJob and the like",
        )
    trace = config.trace or default_trace(scheduler)
    _check(config, trace)
    settings = {
        "reports": config.reports,
        "tmp": config.tmpdir,
        "trace": trace,
        "local_ranks": " ".join(map(str, config.local_ranks)),
        "nodes": "" if config.nodes is None else str(config.nodes),
        "functions": config.functions or "",
        "metrics": "yes" if config.metrics else "no",
        "ranks": " ".join(map(str, config.ranks)),
        "metric_ranks": " ".join(map(str, config.metric_ranks)),
        "sample": config.sample,
        "cpuctxsw": config.cpuctxsw,
    }
    extra = [*(["--cuda-graph-trace=node"] if config.graph_nodes else []), *config.nsys]
    lines = [f"{setting}={shlex.quote(value)}" for setting, value in settings.items()]
    lines.append(f"optional=({shlex.join(config.optional)})")
    lines += [f"window=({shlex.join(_window(config))})", f"extra=({shlex.join(extra)})"]
    head = (
        f"#!/usr/bin/env bash\n{MARK} {scheduler}\n"
        + "".join(f"# {line}\n" for line in config.comments)
        + (RANGE if config.capture_range else "")
        + HEAD
    )
    parts = [_text(part).replace("WRAPPER", _called(name)) for part in SCRIPTS[scheduler]]
    return "\n".join([head, "\n".join(lines) + "\n", *parts, _text("profile.sh")])


def default_trace(scheduler: str) -> str:
    """The APIs that the script of a scheduler traces."""
    return "cuda,nvtx,mpi" if scheduler in TRACES_MPI else "cuda,nvtx"


def usage(scheduler: str, name: str) -> str:
    """The shell line that starts a training with the script `name`."""
    comment = _text(SCRIPTS[scheduler][-1]).partition("WRAPPER")
    return comment[0].rpartition(":  ")[2] + _called(name) + comment[2].partition("\n")[0]


def functions_trace() -> str:
    """JSON for nsys's `--python-functions-trace` of PyTorch, with names that rankscope knows.

    Steps end at `Optimizer._optimizer_step_code`, which every optimizer calls last.
    """
    return _text("pytorch.json")


def snippet() -> str:
    """NVTX ranges for the phases of a training loop, with names that rankscope knows."""
    return _text("snippet.txt")


def save(path: Path, text: str) -> None:
    """Write a script, made executable, or a functions trace.

    Raises:
        UsageError: `path` cannot be written, or is not a file that rankscope wrote.
    """
    check_own(path, MARK)
    write_whole(path, text.encode())
    if text.startswith("#!"):
        path.chmod(path.stat().st_mode | 0o111)


def _check(config: CaptureConfig, trace: str) -> None:
    if not NAMES.fullmatch(trace):
        raise UsageError(f"--trace {trace!r}", hint="names with commas, like cuda,nvtx,mpi")
    timed = config.delay_s is not None or config.duration_s is not None
    if config.capture_range is not None and timed:
        raise UsageError(
            "--capture-range and --delay or --duration exclude each other",
            hint="prefer the range: it opens at the same step on every rank",
        )
    if config.capture_range not in (None, PROFILER_API):
        raise UsageError(f"--capture-range {config.capture_range}", hint=PROFILER_API)
    if config.capture_range and "cuda" not in trace.split(","):
        raise UsageError(
            f"--capture-range {PROFILER_API} needs cuda among --trace", hint="--trace cuda,nvtx"
        )
    for option, value in (("--reports", config.reports), ("--tmpdir", config.tmpdir)):
        if not value or "\n" in value:
            raise UsageError(f"{option} {value!r} is not a folder", hint="name one")


def _window(config: CaptureConfig) -> list[str]:
    """nsys options for the recorded window; training continues after it."""
    if config.capture_range:
        return [f"--capture-range={config.capture_range}", "--capture-range-end=stop"]
    window = [] if config.delay_s is None else [f"--delay={config.delay_s}"]
    if config.duration_s is not None:
        window += [f"--duration={config.duration_s}", "--kill=none"]
    return window


def _called(name: str) -> str:
    """The script's path as the shell finds it, on one line."""
    path = name if "/" in name else f"./{name}"
    return shlex.quote(path) if path.isprintable() else "./profile.sh"


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
