"""Reports as large as wanted: `python -m tests.bench.reports MEGABYTES FOLDER [RANKS]`.

A forged report of one rank is small; each of its kernels and API calls becomes many, and each
kernel brings an operator's range, with a plain name or numbered as torch's emit_nvtx writes it,
so that an iteration has about 1,000 kernels, 1,500 calls and 1,000 ranges, like one of a real
model. More megabytes are more iterations. The tables, the columns and the order of the rows are
those of the forged report. Kernels of NCCL stay whole, and each has its range in NCCL's domain.
"""

import argparse
import os
import sqlite3
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from tests.forge import forge, scene

TIMES = 30
"""Kernels and calls made of each that was forged."""

ITERATIONS_PER_MB = 4.6

OPERATORS = ("aten::linear", "aten::addmm", "aten::layer_norm", "aten::gelu", "aten::add_")


def large_report(megabytes: float, path: Path) -> Path:
    """A report of one rank at `path`, of about so many megabytes."""
    with tempfile.TemporaryDirectory() as name:
        forge(scene("plain", ranks=1, iterations=_iterations(megabytes)), Path(name))
        [source] = Path(name).glob("*.sqlite")
        return enlarge(source, path)


def large_reports(
    megabytes: float, folder: Path, ranks: int, *, numbered: bool = True
) -> list[Path]:
    """Reports of a job in rank order; the last rank's forward takes 8 ms longer.

    Args:
        megabytes: Of each, about.
        numbered: Each operator's range has a name of its own, as emit_nvtx gives.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        forge(scene("planted", ranks=ranks, iterations=_iterations(megabytes)), Path(name))
        files = [f"report_rank_{rank}.sqlite" for rank in range(ranks)]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # SQLite needs no GIL
            return [
                *pool.map(
                    lambda file: enlarge(Path(name) / file, folder / file, numbered=numbered), files
                )
            ]


def repeated(source: Path, path: Path, times: int) -> Path:
    """An export whose events come so many times, one capture after the other, at `path`.

    Tables with a key stay as they are: rankscope reads no events of such.
    """
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("ATTACH ? AS once", (str(source),))
        kinds = "name, sql FROM once.sqlite_master WHERE type = 'table'"
        columns, keyed = {}, set[str]()
        for table, sql in file.execute(f"SELECT {kinds}").fetchall():
            file.execute(sql)
            described = file.execute(f"PRAGMA once.table_info({table})").fetchall()
            columns[table] = [row[1] for row in described]
            keyed |= {table for row in described if row[5]}
        events = [table for table in columns.keys() - keyed if "start" in columns[table]]
        until = {name: 0 for name in ("start", "end", "correlationId")}
        for table in events:
            for name in until.keys() & {*columns[table]}:
                [most] = file.execute(f"SELECT max({name}) FROM once.{table}").fetchone()
                until[name] = max(until[name], most or 0)
        shifts = {"correlationId": until["correlationId"] + 1}
        shifts |= dict.fromkeys(("start", "end"), max(until["start"], until["end"]))
        file.execute("CREATE TEMP TABLE part (i)")
        file.executemany("INSERT INTO part VALUES (?)", [(i,) for i in range(times)])
        for table, names in columns.items():
            values = [f'"{name}"' for name in names]
            rows = f"once.{table}"
            if table in events:
                values = [f'"{name}" + i * {shifts[name]}' if name in shifts else f'"{name}"'
                          for name in names]  # fmt: skip
                rows += ", part ORDER BY i"
            elif table == "ANALYSIS_DETAILS":
                values = [f'"{name}" * {times}' if name == "duration" else f'"{name}"'
                          for name in names]  # fmt: skip
            file.execute(f"INSERT INTO {table} SELECT {', '.join(values)} FROM {rows}")
    return path


def _iterations(megabytes: float) -> int:
    return max(4, round(megabytes * ITERATIONS_PER_MB))


def enlarge(source: Path, path: Path, *, numbered: bool = True) -> Path:
    """A forged report with many kernels, calls and ranges for each of its own, at `path`."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("ATTACH ? AS small", (str(source),))
        with connection:
            _fill(connection, NUMBERED if numbered else OPERATOR)
    finally:
        connection.close()
    return path


def _fill(connection: sqlite3.Connection, operator: dict[str, str]) -> None:
    connection.execute("CREATE TEMP TABLE part (i)")
    connection.executemany("INSERT INTO part VALUES (?)", [(i,) for i in range(TIMES)])
    tables = connection.execute("SELECT name, sql FROM small.sqlite_master").fetchall()
    for table, sql in tables:
        connection.execute(sql)
        columns = [row[1] for row in connection.execute(f"PRAGMA small.table_info({table})")]
        changed = CHANGED.get(table, WHOLE)
        wanted = ", ".join(changed.get(name, f'"{name}"') for name in columns)
        source = f"small.{table}"
        if table == KERNELS:
            source += f", part WHERE i = 0 OR NOT {OF_NCCL} ORDER BY 1"
        elif table == CALLS:
            source += ", part ORDER BY 1"
        elif table == "NVTX_EVENTS":
            for values, rows in (
                (operator, f"small.{CALLS} c, part WHERE {_launches('1')}"),
                (COLLECTIVE, f"small.{CALLS} c WHERE {_launches(OF_NCCL)}"),
                (DOMAIN, f"(SELECT globalTid FROM small.{CALLS} LIMIT 1)"),
            ):
                made = ", ".join(values.get(column, "NULL") for column in columns)
                source += f" UNION ALL SELECT {made} FROM {rows}"
            source += " ORDER BY 1"
        connection.execute(f"INSERT INTO {table} SELECT {wanted} FROM {source}")


def _launches(which: str) -> str:
    """Condition of the calls that launched some kernels."""
    return f"c.correlationId IN (SELECT correlationId FROM small.{KERNELS} WHERE {which})"


KERNELS, CALLS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"

OF_NCCL = "(shortName IN (SELECT id FROM small.StringIds WHERE value LIKE 'nccl%'))"

PARTED = {
    "start": f'"start" + ("end" - "start") * i / {TIMES}',
    "end": f'"start" + ("end" - "start") * (i + 1) / {TIMES}',
    "correlationId": f'"correlationId" * {TIMES} + i',
}
"""Columns of a part of a kernel."""

CALLED = PARTED | {
    "start": f'"start" + ("end" - "start") * (10 * i + 2) / {10 * TIMES}',
    "end": f'"start" + ("end" - "start") * (10 * i + 8) / {10 * TIMES}',
}
"""Columns of a part of a call, inside the range of its operator."""

WHOLE = {"correlationId": f'"correlationId" * {TIMES}'}
"""Columns of what stays whole: the first part of its call launched it."""

ENDED = f'CASE WHEN {OF_NCCL} THEN "end" ELSE {PARTED["end"]} END'

CHANGED = {KERNELS: {**PARTED, "end": ENDED}, CALLS: CALLED}

NAMES = " ".join(f"WHEN {i} THEN '{name}'" for i, name in enumerate(OPERATORS))

OPERATOR = {
    **{name: PARTED[name] for name in ("start", "end")},
    "eventType": "59",
    "text": f"CASE (c.rowid + i) % {len(OPERATORS)} {NAMES} END",
    "globalTid": "globalTid",
    "domainId": "0",
}
"""Columns of an operator's range, one for each kernel's launch; others are null."""

NUMBERED = {
    **OPERATOR,
    "text": f"{OPERATOR['text']} || ', seq = ' || (c.correlationId * {TIMES} + i)",
}
"""The same with a name of its own for each, as torch's emit_nvtx gives."""

COLLECTIVE = {
    **{name: f'"{name}"' for name in ("start", "end", "globalTid")},
    "eventType": "59",
    "text": "'ncclAllReduce'",
    "domainId": "7",
}

DOMAIN = {
    "start": "0",
    "eventType": "75",
    "text": "'NCCL'",
    "globalTid": "globalTid",
    "domainId": "7",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reports", description=__doc__)
    parser.add_argument("megabytes", type=float)
    parser.add_argument("folder", type=Path)
    parser.add_argument("ranks", type=int, nargs="?", default=1)
    args = parser.parse_args(arguments)
    for path in large_reports(args.megabytes, args.folder, args.ranks):
        print(f"{path}: {path.stat().st_size / 1e6:,.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
