"""Reads forged reports back in the slowest and simplest way, to check the truth against them.

It sees what any reader sees, ranges and rows, and decides instant by instant. It understands only
reports whose phases, loading included, are named and whose launches are all recorded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.forge.ownership import EXPOSED, PHASES

NEAR_NS = 1_000_000

DeviceRow = tuple[int, int, int, int, bool, bool]
"""start, end, launch, stream, is a copy, is an NCCL kernel."""


def rows_of(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a query over a report."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def device_ops(path: Path) -> list[DeviceRow]:
    """What ran on the device, in order of launch."""
    return rows_of(
        path,
        """
        SELECT k.start, k."end", r.start, k.streamId, 0, s.value LIKE 'nccl%'
        FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)
        UNION ALL
        SELECT m.start, m."end", r.start, m.streamId, 1, 0
        FROM CUPTI_ACTIVITY_KIND_MEMCPY m
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)
        ORDER BY 3, 1
        """,
    )


def synchronisations(path: Path) -> list[tuple[int, int]]:
    """Start and end of each call that waited for the device."""
    return rows_of(
        path,
        'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId '
        "WHERE value LIKE '%Synchronize%'",
    )


def device_accounts(path: Path) -> Iterator[tuple[int, dict[str, int]]]:
    """Each iteration's ordinal and the time of each owner on the device, ns."""
    ranges = rows_of(
        path,
        'SELECT start, "end", COALESCE(text, value) FROM NVTX_EVENTS '
        "LEFT JOIN StringIds ON id = textId ORDER BY start",
    )

    def open_at(time: int) -> str:
        names = [name for start, end, name in ranges if start <= time < end and name in PHASES]
        return names[-1] if names else "other"

    ops = device_ops(path)
    waits = [(op[2], op[0]) for op in ops if not op[5]] + synchronisations(path)
    steps = [(start, end) for start, end, name in ranges if name.startswith("step ")]
    mine = [
        [op for op in ops if before < op[2] <= end and not op[5]]
        for before, (_, end) in zip([0, *(e for _, e in steps)], steps, strict=False)
    ]
    edges = [steps[0][0], *(max(op[1] for op in work) for work in mine)]
    for i, (begin, end) in enumerate(pairwise(edges)):
        shares = dict.fromkeys((*PHASES, EXPOSED), 0)
        near = [op for op in ops if op[1] > begin - NEAR_NS and op[0] < end + NEAR_NS]
        cuts = {t for op in near for t in op[:3]} | {t for r in ranges for t in r[:2]}
        cuts |= {since for since, _ in waits}
        points = [begin, *sorted(t for t in cuts if begin < t < end), end]
        for left, right in pairwise(points):
            running = [op for op in near if op[0] <= left < op[1]]
            work = sorted((op[4], op[2]) for op in running if not op[5])
            coming = min((op for op in ops if op[0] > left and not op[5]), default=None)
            if work:
                owner = open_at(work[0][1])
            elif any(a <= left and until >= op[1] for op in running for a, until in waits):
                owner = EXPOSED  # asked for before, and had only after the collective
            else:
                owner = open_at(left if coming is None else min(left, coming[2]))
            shares[owner] += right - left
        yield i, shares
