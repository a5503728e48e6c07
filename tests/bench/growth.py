"""How rankscope's ingest grows: with the number of reports, their size, and workers."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from tests.bench import rivals
from tests.bench.costs import Cost, cost, settle
from tests.bench.host_rows import with_host_rows
from tests.bench.reports import large_report, large_reports
from tests.bench.tables import rows

ONE_THREAD = {"POLARS_MAX_THREADS": "1"}
"""A worker is a process of one thread; alone, polars would use all cores."""

BASE = 8
"""Reports of the job that larger ones are compared with."""

WORKERS = (1, 2)

Key = TypeVar("Key")


def with_count(
    counts: tuple[int, ...], megabytes: float, processes: int, repeat: int, folder: Path
) -> str:
    """A table of ingests of jobs of so many ranks, and how flat the time per report is."""
    took = _in_turn(
        {
            number: rivals.rankscope(
                processes, large_reports(megabytes, folder / f"of_{number}", number)
            )
            for number in counts
        },
        repeat,
    )
    base = min((number for number in counts if number >= BASE), default=counts[0])
    beside = {
        number: each.seconds / number / (took[base].seconds / base) for number, each in took.items()
    }
    lines = []
    before, spent = 0, 0.0
    for number, each in took.items():
        further = (each.seconds - spent) / (number - before)
        before, spent = number, each.seconds
        lines.append(
            [
                f"{number}",
                f"{each.seconds:.1f}",
                f"{1e3 * each.seconds / number:.0f} ms",
                f"{beside[number]:.2f} ×",
                f"{1e3 * further:.0f} ms",
                f"{1e3 * each.cpu_s / number:.0f} ms",
                f"{each.peak_bytes / 1e6:,.0f} MB",
            ]
        )
    head = (
        *("reports", "seconds", "per report", f"beside that of {base}"),
        *("each further report", "CPU time per report", "peak memory of a process"),
    )
    later = [beside[number] for number in counts if number >= base]
    flat = (
        f"Start-up included, a report of {base} to {counts[-1]} takes {min(later):.2f} to "
        f"{max(later):.2f} times what one of {base} takes. Each line is a job of its own,\n"
        "compared across all its ranks; *each further report* is what it takes more than the "
        "line above,\nshared by the reports it has more."
    )
    return f"{rows(head, lines)}\n\n{flat}"


def with_size(megabytes: tuple[float, ...], repeat: int, folder: Path) -> str:
    """A table of ingests of one report each, by one process."""
    lines = []
    for size in megabytes:
        (folder / "size").mkdir(exist_ok=True)
        report = large_report(size, folder / "size" / "report_rank_0.sqlite")
        each = _in_turn({size: rivals.rankscope(1, [report])}, repeat)[size]
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


def with_threads(megabytes: float, host_rows: int, repeat: int, folder: Path) -> str:
    """A table of ingests of one report, without and with rows of what threads did."""
    plain, full = folder / "plain", folder / "full"
    plain.mkdir()
    full.mkdir()
    report = large_report(megabytes, plain / "report_rank_0.sqlite")
    more = with_host_rows(report, host_rows, full / "report_rank_0.sqlite")
    took = _in_turn({each: rivals.rankscope(1, [each]) for each in (report, more)}, repeat)
    base, said = took[report], ["none", f"{host_rows / 1e6:g} million"]
    lines = [
        [
            name,
            f"{path.stat().st_size / 1e6:,.0f} MB",
            f"{each.seconds:.1f}",
            f"{each.cpu_s:.1f}",
            f"{each.cpu_s / base.cpu_s:.2f} ×",
            f"{each.peak_bytes / 1e6:,.0f} MB",
        ]
        for name, (path, each) in zip(said, took.items(), strict=True)
    ]
    head = ("rows of threads", "report", "seconds", "CPU seconds", "beside none", "peak memory")
    return rows(head, lines)


def with_workers(reports: list[Path], repeat: int, folder: Path) -> str:
    """A table of ingests by one worker and by two, of this machine's and of a Dask cluster."""
    local = _in_turn(
        {jobs: [*_cores(jobs), *rivals.rankscope(jobs, reports)] for jobs in WORKERS}, repeat
    )
    lines = [_workers("processes, `--jobs`", local)]
    if find_spec("distributed") is None:
        lines.append(["Dask, `--scheduler`", "– (not installed)", *[""] * 3])
    else:
        lines.append(_workers("Dask, `--scheduler`", _dask(reports, repeat, folder)))
    head = ("workers", "one: seconds", "two: seconds", "times as fast", "CPU seconds of two")
    told = (
        "Start-up included: that of rankscope and its processes, not that of the cluster, whose "
        "workers have\nread before and share the cores; the cluster's CPU time is not counted."
    )
    return f"{rows(head, lines)}\n\n{told}"


def _cores(count: int) -> list[str]:
    """What confines a command to so many cores: reading ahead, one worker uses more than one."""
    return ["taskset", "--cpu-list", ",".join(map(str, sorted(os.sched_getaffinity(0))[:count]))]


def _workers(name: str, took: Mapping[int, Cost]) -> list[str]:
    one, two = (took[count] for count in WORKERS)
    gain = f"{one.seconds / two.seconds:.2f} ×"
    return [name, f"{one.seconds:.1f}", f"{two.seconds:.1f}", gain, f"{two.cpu_s:.1f}"]


def _dask(reports: list[Path], repeat: int, folder: Path) -> dict[int, Cost]:
    from tests.ingestion.workers.dask_cluster import Cluster

    with ExitStack() as stack:
        commands = {}
        for count in WORKERS:
            cluster = Cluster(Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder))))
            stack.callback(cluster.close)
            cluster.ensure(count)
            command = rivals.rankscope(1, reports)
            at = command.index("--jobs")
            command[at : at + 2] = ["--scheduler", cluster.address]
            commands[count] = command
            cost(command, ONE_THREAD)  # workers import what they need
        return _in_turn(commands, repeat)


def _in_turn(commands: Mapping[Key, list[str]], repeat: int) -> dict[Key, Cost]:
    """The fastest of some runs of each; in turn, so that what disturbs one disturbs all."""
    settle(Path(word) for command in commands.values() for word in command if ".sqlite" in word)
    best: dict[Key, Cost] = {}
    for _ in range(repeat):
        for key, command in commands.items():
            took = cost(command, ONE_THREAD)
            sys.stderr.write(
                f"{key}: {took.seconds:.1f} s, {took.cpu_s:.1f} s CPU, {took.peak_bytes:,} bytes\n"
            )
            best[key] = min(best.get(key, took), took, key=lambda each: each.seconds)
    return best
