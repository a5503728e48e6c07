"""Writes reports into a database, several small ones in one transaction."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from rankscope.model.reports import ReportRows
from rankscope.model.tables import PER_RANK, TABLES
from rankscope.store.database import Database

WAIT_S, LONGEST_WAIT_S = 0.5, 5.0
"""Reports that come within this time of the last transaction share the next one, as its fixed cost
equals that of reading a small report. A process that is killed loses the reports that wait."""

WRITING_SHARE = 0.1
"""Largest share of the time for writing: after a slow transaction reports wait longer."""

MOST_ROWS = 4_000_000
"""Waiting rows, about 0.25 GB, that are written without further delay. A report costs half of what
it costs in transactions of a million rows, as DuckDB writes fewer row groups again."""


class ReportWriter:
    """Writes the rows of reports into a database, each report whole or not at all."""

    def __init__(
        self,
        database: Database,
        options: str,
        *,
        wait_s: float = WAIT_S,
        most_rows: int = MOST_ROWS,
    ) -> None:
        """Write to a database.

        Args:
            options: the options that shaped the rows, for the column `options` of `reports`.
            wait_s: reports that come within this time of a transaction share the next one.
            most_rows: waiting rows that are written without further delay.
        """
        self._database = database
        self._options = options
        self._waiting: list[ReportRows] = []
        self._least_wait_s, self._most_rows = wait_s, most_rows
        self._written, self._wait_s = -wait_s, wait_s

    def add(self, rows: ReportRows) -> None:
        """Write a report's rows, now or with those of the next reports, or in `flush`."""
        self._waiting = [each for each in self._waiting if each.file.path != rows.file.path]
        self._waiting.append(rows)
        ranks = [part for each in self._waiting for part in each.ranks]
        count = sum(getattr(part, name).height for part in ranks for name in PER_RANK)
        if count >= self._most_rows or time.monotonic() - self._written >= self._wait_s:
            self.flush()

    def flush(self) -> None:
        """Write the reports that wait."""
        reports, self._waiting = self._waiting, []
        if reports:
            begin = time.monotonic()
            self._database.write(tables(reports, self._options))
            self._written = time.monotonic()
            took = self._written - begin
            self._wait_s = min(max(took / WRITING_SHARE, self._least_wait_s), LONGEST_WAIT_S)


def tables(reports: Sequence[ReportRows], options: str) -> dict[str, pl.DataFrame]:
    """Table of the schema → the rows of reports for it."""
    ranks = [part for rows in reports for part in rows.ranks]
    return {
        "reports": _frame([_report(rows, options) for rows in reports]),
        "ranks": _frame([each for rows in reports for each in _ranks(rows)]),
        **{name: pl.concat(getattr(part, name) for part in ranks) for name in PER_RANK},
        "problems": pl.DataFrame(
            [each for rows in reports for each in _problems(rows)],
            schema=TABLES["problems"].schema,
            orient="row",
        ),
    }


def stored_path(path: Path) -> str:
    """The path of a report in the database."""
    return str(path.resolve())


def _frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    return pl.DataFrame(rows, infer_schema_length=None)


def _report(rows: ReportRows, options: str) -> dict[str, object]:
    return {
        "path": stored_path(rows.file.path),
        "kind": rows.file.kind,
        "bytes": rows.file.bytes,
        "modified_ns": rows.file.modified_ns,
        "options": options,
        "host": rows.facts.host,
        "utc_start_ns": rows.facts.utc_start_ns,
        "duration_ns": rows.facts.duration_ns,
        "exporter": rows.facts.exporter,
        "software": rows.facts.hardware.software,
        "windows": _windows(rows),
        "events": rows.events,
        "iterations": max(part.iterations.height for part in rows.ranks),
    }


def _windows(rows: ReportRows) -> str | None:
    """The further windows of a report, as JSON; None without any."""
    if not rows.file.more:
        return None
    folder = rows.file.path.resolve().parent
    paths = [os.path.relpath(path.resolve(), folder) for path in rows.file.more]
    return json.dumps(dict(zip(paths, rows.windows, strict=True)))


def _ranks(rows: ReportRows) -> list[dict[str, object]]:
    path = stored_path(rows.file.path)
    return [
        {
            "rank": part.rank.identity.rank,
            "path": path,
            "pid": part.rank.identity.pid,
            "local_rank": part.rank.identity.local_rank,
            "world_size": part.rank.identity.world_size,
            "host": part.rank.identity.host,
            "evidence": part.rank.identity.evidence.name,
            "numbered": part.rank.numbered,
            "convention": part.rank.convention,
            "has_device": part.rank.has_device,
            "clock_gpu": part.rank.clock_gpu,
            "work_known": part.rank.work_known,
            "gpu_uuid": part.rank.gpu and part.rank.gpu.uuid,
            "gpu_name": part.rank.gpu and part.rank.gpu.name,
            "gpu_bus": part.rank.gpu and part.rank.gpu.bus,
            "adapters": " ".join(rows.facts.hardware.adapters) or None,
            "cpu": rows.facts.hardware.cpu,
        }
        for part in rows.ranks
    ]


def _problems(rows: ReportRows) -> list[tuple[str, str, str, list[int]]]:
    path = stored_path(rows.file.path)
    problems = [*rows.problems, *(each for part in rows.ranks for each in part.problems)]
    return [(path, each.code, each.message, list(each.ranks)) for each in problems]
