"""Rows of what threads did, put into a forged report: `with_host_rows`.

Of ten rows four are switches, three are calls, and half a one is a sample, with five frames. Half
of the switches and calls are of the training thread. They cover the whole capture evenly, so that
all of it has to be accounted for.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

FIRST_ID, NAMES = 800_000, 600
"""Ids of the strings that name calls, functions and modules, and how many there are."""

CALL_NS = 1_500
FRAMES = 5

TABLES = (
    "CREATE TABLE SCHED_EVENTS (start INTEGER NOT NULL, cpu INTEGER NOT NULL, "
    "isSchedIn INTEGER NOT NULL, globalTid INTEGER)",
    "CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, "
    "eventClass INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL, "
    "returnValue INTEGER NOT NULL, nestingLevel INTEGER, callchainId INTEGER NOT NULL)",
    "CREATE TABLE COMPOSITE_EVENTS (id INTEGER NOT NULL PRIMARY KEY, start INTEGER NOT NULL, "
    "cpu INTEGER, threadState INTEGER, globalTid INTEGER, cpuCycles INTEGER NOT NULL)",
    "CREATE TABLE SAMPLING_CALLCHAINS (id INTEGER NOT NULL, symbol INTEGER NOT NULL, "
    "module INTEGER NOT NULL, stackDepth INTEGER NOT NULL, PRIMARY KEY (id, stackDepth))",
)
"""As nsys 2023.4 declares them; of callchains only the columns that are read."""


def with_host_rows(report: Path, rows: int, path: Path) -> Path:
    """A copy of a report at `path`, with about so many rows of two threads."""
    shutil.copy(report, path)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("PRAGMA synchronous = OFF")
        for table in TABLES:
            file.execute(table)
        thread, begin, end = file.execute(
            "SELECT globalTid, min(start), max(end) FROM NVTX_EVENTS WHERE text = 'forward' "
            "GROUP BY 1"
        ).fetchone()
        rng = np.random.default_rng(1)

        def times(count: int) -> list[int]:
            return [int(at) for at in np.sort(rng.integers(begin, end, count))]

        switches, calls, samples = 4 * rows // 10, 3 * rows // 10, rows // 20
        file.executemany(
            "INSERT INTO SCHED_EVENTS VALUES (?, 0, ?, ?)",
            ((at, i % 2, thread + i % 4 // 2) for i, at in enumerate(times(switches))),
        )
        file.executemany(
            "INSERT INTO OSRT_API VALUES (?, ?, 31, ?, ?, 0, 0, 0)",
            (
                (at, at + CALL_NS, thread + i % 2, FIRST_ID + i % 40)
                for i, at in enumerate(times(calls))
            ),
        )
        file.executemany(
            "INSERT INTO COMPOSITE_EVENTS VALUES (?, ?, 0, 1, ?, 1)",
            ((i + 1, at, thread + i % 2) for i, at in enumerate(times(samples))),
        )
        file.executemany(
            "INSERT INTO SAMPLING_CALLCHAINS VALUES (?, ?, ?, ?)",
            (
                (i + 1, FIRST_ID + (7 * i + depth) % NAMES, FIRST_ID + NAMES, depth)
                for i in range(samples)
                for depth in range(FRAMES)
            ),
        )
        file.executemany(
            "INSERT INTO StringIds VALUES (?, ?)",
            ((FIRST_ID + i, f"function_{i}") for i in range(NAMES + 1)),
        )
    return path
