"""`python -m tests.bench.ingest`: ingest beside what users have, and how it grows.

Makes reports, runs everything on them in turn, several times over, and writes what the best run
of each took into MEASUREMENTS.md. Linux. `--rivals FOLDER` says where `tests/bench/rivals.sh
FOLDER` installed the others; what is not there is left out, and said so.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from tests.bench import growth, rivals
from tests.bench.beside import beside
from tests.bench.costs import machine
from tests.bench.reports import large_reports
from tests.bench.tables import put
from tests.forge import scene, simulate
from tests.forge.kineto_export import export_kineto

PARTS = ("beside", "numbered", "large", "kineto", "growth", "size", "threads", "workers")
SIZES_MB = (10.0, 40.0, 160.0, 1000.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    reports: int
    megabytes: float
    large: int
    large_mb: float
    counts: tuple[int, ...]
    each_mb: float
    sizes_mb: tuple[float, ...]
    kineto_iterations: int
    repeat: int
    host_mb: float
    host_rows: int


SHORT = Plan(4, 20.0, 8, 80.0, (8, 32, 64), 20.0, SIZES_MB[:3], 500, 3, 300.0, 8_000_000)
FULL = Plan(4, 160.0, 8, 1000.0, (8, 64, 512), 20.0, SIZES_MB, 2000, 3, 740.0, 10_000_000)
TINY = Plan(2, 0.5, 2, 0.5, (1, 2), 0.5, (0.5,), 4, 1, 0.5, 1_000)
"""Whether it works at all."""


def measure(part: str, plan: Plan, processes: int, tools: Path, folder: Path) -> str:
    """What one part measured, in Markdown."""
    many = f"{plan.reports} reports of Nsight Systems"
    by = f"{processes} processes" if processes > 1 else "1 process"
    if part in ("beside", "numbered"):
        numbered = part == "numbered"
        reports = large_reports(plan.megabytes, folder / "exports", plan.reports, numbered=numbered)
        table = beside(rivals.of_nsys(tools), reports, processes, plan.repeat)
        names = "numbered, as emit_nvtx does" if numbered else "plain"
        return f"{many}, {_size(reports)}, names of ranges {names}; {by}:\n\n{table}"
    if part == "kineto":
        job = scene("planted", ranks=plan.reports, iterations=plan.kineto_iterations)
        traces = [export_kineto(job, record, folder / "traces") for record in simulate(job).records]
        table = beside(rivals.of_kineto(tools), traces, processes, plan.repeat)
        return f"{plan.reports} traces of the PyTorch profiler, {_size(traces)}; {by}:\n\n{table}"
    if part == "growth":
        table = growth.with_count(plan.counts, plan.each_mb, processes, plan.repeat, folder)
        return f"Reports of {plan.each_mb:g} MB each; {by}:\n\n{table}"
    if part in ("size", "threads"):
        alone = (
            growth.with_size(plan.sizes_mb, plan.repeat, folder)
            if part == "size"
            else growth.with_threads(plan.host_mb, plan.host_rows, plan.repeat, folder)
        )
        told = "One report" if part == "size" else "One report, with what its threads did"
        return f"{told}; 1 process:\n\n{alone}"
    reports = large_reports(plan.large_mb, folder / "exports", plan.large, numbered=False)
    large = f"{plan.large} reports of Nsight Systems, {_size(reports)}"
    if part == "large":
        return f"{large}; {by}:\n\n{beside(rivals.of_python(), reports, processes, plan.repeat)}"
    table = growth.with_workers(reports, plan.repeat, folder)
    return f"{large}; a core for each worker:\n\n{table}"


def _size(reports: list[Path]) -> str:
    return f"{reports[0].stat().st_size / 1e6:.0f} MB each"


def page(told: dict[str, str], command: str, repeat: int, load: float) -> str:
    """All that was measured, with the command and the machine."""
    used = ", ".join(f"{name} {version(name)}" for name in ("polars", "duckdb"))
    runs = f"the fastest of {repeat} runs" if repeat > 1 else "one run"
    head = (
        f"`{command}`: {runs} of each, the ways in turn, whole commands from their start to\n"
        "their end, reports in the file cache; processor time and memory as seen 20 times a second."
        f"\nOn {machine()}, load {load:.1f} before; Python {platform.python_version()}, {used}."
    )
    return "\n\n".join([head, *(told[part] for part in PARTS if part in told)])


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ingest", description=__doc__)
    plans = parser.add_mutually_exclusive_group()
    plans.add_argument("--full", action="store_true", help="up to 512 reports and 1 GB each")
    plans.add_argument("--tiny", action="store_true", help="only whether it works")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], metavar="PART")
    parser.add_argument("--processes", type=int, default=2, help="of every way")
    parser.add_argument("--repeat", type=int, metavar="RUNS", help="of which the fastest counts")
    parser.add_argument("--counts", type=int, nargs="+", help="of reports in part growth")
    parser.add_argument("--each-mb", type=float, metavar="MB", help="of the reports of part growth")
    parser.add_argument("--rivals", type=Path, default=Path("rivals"), metavar="FOLDER")
    parser.add_argument("--temp", type=Path, help="folder for the reports (2 GB; --full: 12)")
    parser.add_argument("--print", action="store_true", help="print the tables, write no file")
    args = parser.parse_args(arguments)
    plan = FULL if args.full else TINY if args.tiny else SHORT
    plan = replace(
        plan,
        repeat=args.repeat or plan.repeat,
        each_mb=args.each_mb or plan.each_mb,
        counts=tuple(args.counts or plan.counts),
    )
    load = os.getloadavg()[0]
    told = {}
    with tempfile.TemporaryDirectory(prefix="ingest-", dir=args.temp) as folder:
        for part in args.parts:
            began = time.monotonic()
            place = Path(folder) / part
            place.mkdir()
            told[part] = measure(part, plan, args.processes, args.rivals.resolve(), place)
            shutil.rmtree(place)
            sys.stderr.write(f"{part}: {time.monotonic() - began:.0f} s in all\n")
    whole = "python -m tests.bench.ingest" + " --full" * args.full
    for option in ("repeat", "each_mb"):
        if (given := getattr(args, option)) is not None:
            whole += f" --{option.replace('_', '-')} {given:g}"
    if args.counts:
        whole += f" --counts {' '.join(map(str, args.counts))}"
    if {*args.parts} != {*PARTS}:
        whole += f" --parts {' '.join(args.parts)}"
    text = page(told, whole, plan.repeat, load)
    if args.print or args.tiny or {*args.parts} != {*PARTS}:
        sys.stdout.write(text + "\n")
    else:
        put(text, "ingest")
    return 0


if __name__ == "__main__":
    sys.exit(main())
