"""`python -m tests.bench.plain rows|frames PROCESSES REPORT...`: rankscope's columns by sqlite3.

What a script of one's own does at the least: fetch the rows, and do nothing with them (`rows`),
or have them as data frames (`frames`).
"""

import sqlite3
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

OF_DEVICE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
GRID = ("gridX", "gridY", "gridZ")
PAYLOADS = ("uint64Value", "int64Value", "uint32Value", "int32Value")
COLUMNS = {
    "StringIds": ("id", "value"),
    "NVTX_EVENTS": (
        *("start", "end", "eventType", "text", "globalTid", "textId", "domainId"),
        *PAYLOADS,
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "globalTid", "correlationId"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        *OF_DEVICE,
        *("shortName", "demangledName", "graphNodeId"),
        *GRID,
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (*OF_DEVICE, "bytes", "graphNodeId"),
}
TEXT = ("text", "value")
ROWS = 50_000
"""Fetched at once: all of them would not fit into memory."""


def read(path: str) -> int:
    """Rows read of a report."""
    connection = sqlite3.connect(Path(path).resolve().as_uri() + "?mode=ro", uri=True)
    connection.text_factory = bytes  # what is no UTF-8 must not stop it
    rows = 0
    for table, columns in COLUMNS.items():
        have = {row[1].decode() for row in connection.execute(f"PRAGMA table_info({table})")}
        names = ", ".join(f'"{name}"' for name in columns if name in have)
        if not names:  # no such table
            continue
        cursor = connection.execute(f"SELECT {names} FROM {table}")
        while fetched := cursor.fetchmany(ROWS):
            rows += len(fetched)
    connection.close()
    return rows


def frames(path: str) -> int:
    """Rows read of a report, all of them kept as frames."""
    import polars as pl  # here: its threads would not survive the fork

    connection = sqlite3.connect(Path(path).resolve().as_uri() + "?mode=ro", uri=True)
    kept = []
    for table, columns in COLUMNS.items():
        names = ", ".join(f'"{name}"' for name in columns)
        cursor = connection.execute(f"SELECT {names} FROM {table}")
        schema = {name: pl.String if name in TEXT else pl.Int64 for name in columns}
        parts = []
        while fetched := cursor.fetchmany(ROWS):
            parts.append(pl.DataFrame(fetched, schema, orient="row"))
        kept.append(pl.concat(parts))
    connection.close()
    return sum(frame.height for frame in kept)


def main(arguments: list[str]) -> int:
    """Print how many rows all the reports have."""
    kind, processes, *paths = arguments
    with ProcessPoolExecutor(int(processes)) as pool:
        print(sum(pool.map({"rows": read, "frames": frames}[kind], paths)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
