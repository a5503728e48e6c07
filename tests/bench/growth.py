"""How rankscope's ingest grows: with the number of reports, their size, and workers."""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.bench import rivals
from tests.bench.costs import Cost, cost
from tests.bench.reports import large_report, large_reports
from tests.bench.tables import rows

ONE_THREAD = {"POLARS_MAX_THREADS": "1"}
"""A worker is a process of one thread; alone, polars would use all cores."""


def with_count(
    counts: tuple[int, ...], megabytes: float, processes: int, repeat: int, folder: Path
) -> str:
    """A table of ingests of the first so many reports of one job."""
    reports = large_reports(megabytes, folder / "count", max(counts))
    lines = []
    took = {
        number: _best(rivals.rankscope(processes, reports[:number]), repeat) for number in counts
    }
    base = next((number for number in counts if number >= 8), counts[0])
    before, spent = 0, 0.0
    for number, each in took.items():
        further = (each.seconds - spent) / (number - before)
        before, spent = number, each.seconds
        per = each.seconds / number
        lines.append(
            [
                f"{number}",
                f"{each.seconds:.1f}",
                f"{1e3 * per:.0f} ms",
                f"{per / (took[base].seconds / base):.2f} ×",
                f"{1e3 * further:.0f} ms",
                f"{1e3 * each.cpu_s / number:.0f} ms",
                f"{each.peak_bytes / 1e6:,.0f} MB",
            ]
        )
    head = (
        *("reports", "seconds", "per report", f"beside that of {base}"),
        *("each further report", "CPU time per report", "peak memory of a process"),
    )
    return rows(head, lines)


def with_size(megabytes: tuple[float, ...], repeat: int, folder: Path) -> str:
    """A table of ingests of one report each, by one process."""
    lines = []
    for size in megabytes:
        (folder / "size").mkdir(exist_ok=True)
        report = large_report(size, folder / "size" / "report_rank_0.sqlite")
        each = _best(rivals.rankscope(1, [report]), repeat)
        real = report.stat().st_size / 1e6
        lines.append(
            [
                f"{real:,.0f} MB",
                f"{json.loads(each.output)['events']:,}",
                f"{each.seconds:.1f}",
                f"{real / each.seconds:.0f}",
                f"{each.peak_bytes / 1e6:,.0f} MB",
            ]
        )
        report.unlink()
    return rows(("report", "events", "seconds", "MB/s", "peak memory of a process"), lines)


def with_workers(reports: list[Path], repeat: int, folder: Path) -> str:
    """A table of ingests by one worker and by two, of this machine's and of a Dask cluster."""
    local = [_best(rivals.rankscope(jobs, reports), repeat) for jobs in (1, 2)]
    lines = [_workers("processes, `--jobs`", *local)]
    if find_spec("distributed") is None:
        lines.append(["Dask, `--scheduler`", "– (not installed)", "", ""])
    else:
        lines.append(_workers("Dask, `--scheduler`", *_dask(reports, repeat, folder)))
    return rows(("workers", "one: seconds", "two: seconds", "times as fast"), lines)


def _workers(name: str, one: Cost, two: Cost) -> list[str]:
    gain = one.seconds / two.seconds
    return [name, f"{one.seconds:.1f}", f"{two.seconds:.1f}", f"{gain:.2f} ×"]


def _dask(reports: list[Path], repeat: int, folder: Path) -> list[Cost]:
    from tests.execute.dask_cluster import Cluster

    with tempfile.TemporaryDirectory(dir=folder) as place:
        cluster = Cluster(Path(place))
        try:
            costs = []
            for count in (1, 2):
                cluster.ensure(count)
                command = rivals.rankscope(1, reports)
                at = command.index("--jobs")
                command[at : at + 2] = ["--scheduler", cluster.address]
                _best(command, 1)  # workers import what they need
                costs.append(_best(command, repeat))
            return costs
        finally:
            cluster.close()


def _best(command: list[str], repeat: int) -> Cost:
    """The fastest of some runs."""
    costs = [cost(command, ONE_THREAD) for _ in range(repeat)]
    best = min(costs, key=lambda each: each.seconds)
    sys.stderr.write(f"{best.seconds:.1f} s, {best.cpu_s:.1f} s CPU, {best.peak_bytes:,} bytes\n")
    return best
