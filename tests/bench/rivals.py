"""What users have today, and rankscope, as commands over the same reports.

`tests/bench/rivals.sh FOLDER` installs them into a folder, each with packages of its own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import parquet

RANKSCOPE, OF_PARQUET = "rankscope ingest", "rankscope ingest, of Parquet"
RECIPES = ("nvtx_sum", "nvtx_gpu_proj_sum", "nccl_sum")


NSYS_AI = """
import sys
from concurrent.futures import ProcessPoolExecutor
from nsys_ai.parquet_cache import build_cache
with ProcessPoolExecutor(int(sys.argv[1])) as pool:
    print(*pool.map(build_cache, sys.argv[2:]))
"""

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
traces = TraceAnalysis(trace_dir=sys.argv[1])
traces.get_temporal_breakdown(visualize=False)
traces.get_comm_comp_overlap(visualize=False)
"""


@dataclass(frozen=True, slots=True)
class Rival:
    """One way to get numbers out of reports.

    Attributes:
        name: As the table has it.
        missing: Why it cannot be run here; None where it can.
        inputs: Makes what it reads of the reports; not part of what is measured.
        command: Of the number of processes and what `inputs` made.
        environment: Of the number of processes, what to set beside the own environment.
        fresh: Makes what earlier runs left disappear.
        tables: Tables whose rows it reads; empty for all.
        beside: The way of rankscope that reads the same input.
    """

    name: str
    missing: str | None
    inputs: Callable[[list[Path], Path], list[Path]]
    command: Callable[[int, list[Path]], list[str]]
    environment: Callable[[int], dict[str, str]] = field(default=lambda _: {})
    fresh: Callable[[list[Path]], None] = field(default=lambda _: None)
    tables: tuple[str, ...] = ()
    beside: str = RANKSCOPE


def itself(reports: list[Path], _: Path) -> list[Path]:
    """The reports as they are."""
    return reports


def rankscope(processes: int, reports: list[Path]) -> list[str]:
    """The ingest, into a database beside the reports."""
    db = str(reports[0].parent.with_suffix(".duckdb"))
    options = ["--db", db, "--rebuild", "--jobs", str(processes), "--format", "json"]
    return [sys.executable, "-m", "rankscope", "ingest", *map(str, reports), *options]


def of_python() -> list[Rival]:
    """rankscope and what one writes oneself."""
    return [
        Rival(RANKSCOPE, None, itself, rankscope),
        _plain("sqlite3 of Python, the same columns", "rows"),
        _plain("sqlite3 of Python, the same columns as frames", "frames"),
    ]


def of_nsys(tools: Path) -> list[Rival]:
    """rankscope and what else reads exports of Nsight Systems."""
    ai = tools / "nsys-ai" / "bin" / "python"
    return [
        *of_python(),
        Rival(OF_PARQUET, None, parquet.folders, rankscope, beside=OF_PARQUET),
        *(_recipe(name, tools) for name in RECIPES),
        Rival(
            "nsys-ai, its import",
            None if ai.exists() else "not installed",
            _linked,
            lambda processes, reports: [
                *(str(ai), "-c", NSYS_AI, str(processes)),
                *map(str, reports),
            ],
            lambda _: {"HOME": str(tools / "nsys-ai" / "home")},
            _without_caches,
        ),
    ]


def of_traces(tools: Path) -> Rival:
    """Holistic Trace Analysis, two tables of PyTorch traces: who was idle, and what overlapped."""
    python = tools / "hta" / "bin" / "python"
    return Rival(
        "HTA, two of its tables",
        None if python.exists() else "not installed",
        itself,
        lambda _, reports: [str(python), "-c", HTA, str(reports[0].parent)],
    )


def _plain(name: str, kind: str) -> Rival:
    def command(processes: int, reports: list[Path]) -> list[str]:
        return [
            *(sys.executable, "-m", "tests.bench.plain", kind, str(processes)),
            *map(str, reports),
        ]

    return Rival(name, None, itself, command)


def _recipe(name: str, tools: Path) -> Rival:
    nsys, python = nsys_with_recipes(tools), tools / "recipes" / "bin"
    missing = None if nsys else "no nsys with recipes"
    if not python.exists():
        missing = "the recipes' packages are not installed"
    tables = ("NVTX_EVENTS",) if name != "nvtx_gpu_proj_sum" else ()
    return Rival(
        f"nsys recipe {name}",
        missing,
        parquet.beside_reports,
        lambda _, reports: [
            *(str(nsys), "recipe", name, "--force-overwrite"),
            *("--output", str(reports[0].parent / name)),
            *("--input", *map(str, reports)),
        ],
        lambda processes: {
            "PATH": f"{python}{os.pathsep}{os.environ['PATH']}",
            "NSYS_CONCURRENT_MAX_WORKERS": str(processes),
            "PYTHONWARNINGS": "ignore",
        },
        tables=tables,
        beside=OF_PARQUET,
    )


def nsys_with_recipes(tools: Path) -> str | None:
    """An nsys that knows recipes: the folder's own, else the one on PATH."""
    own = tools / "nsys" / "usr" / "lib" / "nsight-systems" / "bin" / "nsys"
    nsys = str(own) if own.exists() else shutil.which("nsys")
    if nsys is None:
        return None
    output = subprocess.run([nsys, "recipe", "--help"], capture_output=True, text=True, check=False)
    return nsys if "nvtx_gpu_proj_sum" in output.stdout else None


def _linked(reports: list[Path], folder: Path) -> list[Path]:
    """The reports in a folder of their own, since caches come to lie beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    linked = [folder / report.name for report in reports]
    for report, link in zip(reports, linked, strict=True):
        if not link.exists():
            os.link(report, link)
    return linked


def _without_caches(reports: list[Path]) -> None:
    for cache in reports[0].parent.glob("*.nsys-cache"):
        shutil.rmtree(cache)
