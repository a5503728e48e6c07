"""A database that is there before an ingest: what it holds, and whether it may be replaced.

A module apart because a new database needs no DuckDB before the first report is read.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rankscope.ingestion.preflight import ExistingRank
from rankscope.model.reports import ReportFile, ReportOutcome
from rankscope.store import Database


class StoredReports:
    """The reports of an existing database; those that are unchanged need no reading."""

    def __init__(self, target: Path, shaping: str) -> None:
        """Load them from the database at `target`; `shaping` are this ingest's options, as JSON."""
        self._target = target
        self._shaping = shaping
        with Database.open(target) as database:
            ranks = database.table("ranks").drop("host")
            self._rows = database.table("reports").join(ranks, on="path", how="left")

    def unchanged(self, file: ReportFile) -> ReportOutcome | None:
        """The outcome of a report that is stored as it is now, here or under an earlier path."""
        same = self._rows.filter(
            (pl.col("bytes") == file.bytes)
            & (pl.col("modified_ns") == file.modified_ns)
            & (pl.col("options") == self._shaping)
        )
        rows = same.filter(pl.col("path") == str(file.path.resolve()))
        if rows.is_empty():
            rows = self._moved(file, same)
        return None if rows.is_empty() else _unchanged(file, rows)

    def not_replaced(self, files: list[ReportFile]) -> list[ExistingRank]:
        """The ranks whose reports are not among `files`."""
        replaced = [str(file.path.resolve()) for file in files]
        rows = self._rows.filter(~pl.col("path").is_in(replaced))
        columns = ("rank", "path", "world_size", "utc_start_ns", "duration_ns")
        return [
            ExistingRank(rank, Path(path), *rest)
            for rank, path, *rest in rows.select(columns).iter_rows()
        ]

    def conventions(self, files: list[ReportFile]) -> set[str]:
        """The conventions that named the iterations of the ranks whose reports are not `files`."""
        replaced = [str(file.path.resolve()) for file in files]
        return {*self._rows.filter(~pl.col("path").is_in(replaced))["convention"].drop_nulls()}

    def _moved(self, file: ReportFile, same: pl.DataFrame) -> pl.DataFrame:
        """Rows of a report that was moved, after its path is corrected; else no rows."""
        for (old,), rows in same.partition_by("path", as_dict=True).items():
            if Path(old).name == file.path.name and not Path(old).exists():
                with Database.open(self._target, write=True) as database:
                    database.move(old, str(file.path.resolve()))
                return rows
        return same.clear()


def check_replaceable(path: Path) -> None:
    """Raises `DatabaseError` unless `path` is free, a run, or a damaged one nobody uses."""
    Database.check_replaceable(path)


def remove(path: Path) -> None:
    """Remove what an interrupted --rebuild left, unless one is writing it right now."""
    Database.check_replaceable(path)
    path.unlink(missing_ok=True)
    path.with_name(path.name + ".wal").unlink(missing_ok=True)


def _unchanged(file: ReportFile, rows: pl.DataFrame) -> ReportOutcome:
    return ReportOutcome(
        path=file.path,
        kind=file.kind,
        ranks=tuple(sorted(rows["rank"].drop_nulls())),
        rank_evidence=rows["evidence"][0],
        iterations=rows["iterations"].max(),  # type: ignore[arg-type]
        bytes=file.bytes,
        status="unchanged",
    )
