"""Reports as large as wanted: `python -m tests.bench.reports MEGABYTES FOLDER`.

A forged report of one rank is small; each of its kernels and API calls becomes many, and each
kernel brings an operator's range as torch's emit_nvtx writes it, so that an iteration has about
1,000 kernels, 1,500 calls and 1,000 ranges, like one of a real model. More megabytes are more
iterations. The tables, the columns and the order of the rows are those of the forged report.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from pathlib import Path

from tests.forge import forge, scene

TIMES = 30
"""Kernels and calls made of each that was forged."""

ITERATIONS_PER_MB = 4.6

OPERATORS = ("aten::linear", "aten::addmm", "aten::layer_norm", "aten::gelu", "aten::add_")


def large_report(megabytes: float, path: Path) -> Path:
    """A report of one rank at `path`, of about so many megabytes."""
    iterations = max(4, round(megabytes * ITERATIONS_PER_MB))
    with tempfile.TemporaryDirectory() as name:
        forge(scene("plain", ranks=1, iterations=iterations), Path(name))
        [source] = Path(name).glob("*.sqlite")
        path.unlink(missing_ok=True)
        connection = sqlite3.connect(path)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("ATTACH ? AS small", (str(source),))
            with connection:
                _fill(connection)
        finally:
            connection.close()
    return path


def _fill(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TEMP TABLE part (i)")
    connection.executemany("INSERT INTO part VALUES (?)", [(i,) for i in range(TIMES)])
    tables = connection.execute("SELECT name, sql FROM small.sqlite_master").fetchall()
    for table, sql in tables:
        connection.execute(sql)
        columns = [row[1] for row in connection.execute(f"PRAGMA small.table_info({table})")]
        if table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
            wanted = ", ".join(PARTED.get(column, f'"{column}"') for column in columns)
            source = f"small.{table}, part ORDER BY 1"
        elif table == "NVTX_EVENTS":
            wanted = ", ".join(f'"{column}"' for column in columns)
            operators = ", ".join(_of_operator(column) for column in columns)
            source = (
                f"small.{table} UNION ALL SELECT {operators} "
                "FROM small.CUPTI_ACTIVITY_KIND_RUNTIME c, part "
                "WHERE c.correlationId IN (SELECT correlationId "
                "FROM small.CUPTI_ACTIVITY_KIND_KERNEL) ORDER BY 1"
            )
        else:
            wanted, source = "*", f"small.{table}"
        connection.execute(f"INSERT INTO {table} SELECT {wanted} FROM {source}")


PARTED = {
    "start": f'"start" + ("end" - "start") * i / {TIMES}',
    "end": f'"start" + ("end" - "start") * (i + 1) / {TIMES}',
    "correlationId": f'"correlationId" * {TIMES} + i',
}


def _of_operator(column: str) -> str:
    names = " ".join(f"WHEN {i} THEN '{name}'" for i, name in enumerate(OPERATORS))
    values = {
        **{name: PARTED[name] for name in ("start", "end")},
        "eventType": "59",
        "text": f"CASE (c.rowid + i) % {len(OPERATORS)} {names} END "
        f"|| ', seq = ' || (c.correlationId * {TIMES} + i)",
        "globalTid": '"globalTid"',
        "domainId": "0",
    }
    return values.get(column, "NULL")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reports", description=__doc__)
    parser.add_argument("megabytes", type=float)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args(arguments)
    args.folder.mkdir(parents=True, exist_ok=True)
    path = large_report(args.megabytes, args.folder / f"report_{args.megabytes:g}MB_rank0.sqlite")
    print(f"{path}: {path.stat().st_size / 1e6:,.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
