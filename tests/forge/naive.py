"""Reads rows of forged reports back."""

import sqlite3
from pathlib import Path
from typing import Any

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
