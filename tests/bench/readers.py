"""`python -m tests.bench.readers`: ingest of the same reports, read in three ways.

SQLite exports by the compiled page reader, the same exports by SQLite itself (through ADBC), and
folders of Parquet files with the same tables. Writes a table into MEASUREMENTS.md. Linux.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rankscope.sources.columns.sqlite_pages.loader import SWITCH
from tests.bench.costs import cost, machine, settle
from tests.bench.reports import large_reports
from tests.bench.tables import put, rows
from tests.sources.exports import as_folder

HEAD = ("read from", "seconds", "CPU seconds", "seconds, ratio", "CPU seconds, ratio")

PAGES, LIBRARY, PARQUET = "SQLite, by the compiled reader", "SQLite, by ADBC", "Parquet"

ROW_GROUP = 2**17
"""Rows in a row group of the Parquet files."""


def readers(megabytes: float, count: int, numbered: bool, repeat: int, folder: Path) -> str:
    """The table: the least seconds and CPU seconds of each way, one process.

    Args:
        megabytes: Of each SQLite export, about.
        count: How many reports.
        numbered: Each operator's range has a name of its own, as emit_nvtx gives.
        repeat: How many runs of each way, the ways in turn.
        folder: Where reports and databases go.
    """
    reports = large_reports(megabytes, folder / "sqlite", count, numbered=numbered)
    folders = [as_folder(each, "parquetdir", folder / "parquet", ROW_GROUP) for each in reports]
    ways = {PAGES: (reports, "1"), LIBRARY: (reports, "0"), PARQUET: (folders, "0")}
    settle([*reports, *folders])
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    _ingest(reports, "1", folder)  # compiles the reader where that was not done before
    for _ in range(repeat):
        for way, (inputs, switch) in ways.items():
            taken[way].append(_ingest(inputs, switch, folder))
    best = {way: [min(each) for each in zip(*runs, strict=True)] for way, runs in taken.items()}
    first = best[PAGES]
    lines = [
        [
            way,
            *(f"{value:.1f}" for value in values),
            *(f"{value / base:.2f} ×" for value, base in zip(values, first, strict=True)),
        ]
        for way, values in best.items()
    ]
    size = reports[0].stat().st_size / 1e6
    names = "numbered" if numbered else "plain"
    title = f"{count} SQLite exports of {size:.0f} MB each, names of ranges {names}; 1 process:"
    return f"{title}\n\n{rows(HEAD, lines)}"


def _ingest(inputs: Sequence[Path], switch: str, folder: Path) -> tuple[float, float]:
    """Seconds and CPU seconds of one ingest."""
    options = ["--db", str(folder / "run.duckdb"), "--rebuild", "--jobs", "1"]
    command = [sys.executable, "-m", "rankscope", "ingest", *map(str, inputs), *options]
    taken = cost(command, {SWITCH: switch})
    return taken.seconds, taken.cpu_s


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.readers", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=160.0, help="of each report")
    parser.add_argument("--reports", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each way; the best counts")
    parser.add_argument("--temp", type=Path, help="folder for the reports (1 GB)")
    parser.add_argument("--print", action="store_true", help="print the tables, write no file")
    args = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    tables = []
    for numbered in (False, True):
        with tempfile.TemporaryDirectory(prefix="readers-", dir=args.temp) as name:
            tables.append(readers(args.megabytes, args.reports, numbered, args.repeat, Path(name)))
    head = (
        f"`python -m tests.bench.readers --megabytes {args.megabytes:g} --reports {args.reports} "
        f"--repeat {args.repeat}`: whole commands,\nthe ways in turn, the least of {args.repeat} "
        f"runs, reports in the file cache. On {machine()}, load {load:.1f} before."
    )
    text = "\n\n".join([head, *tables])
    if args.print:
        sys.stdout.write(text + "\n")
    else:
        put(text, "readers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
