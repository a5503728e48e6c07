"""The files of a report: one for each window of a profiler schedule."""

import json
from pathlib import Path

import polars as pl
from msgspec import Struct


class ReportFiles(Struct, frozen=True):
    """The files of a report in the order of time, and where each starts on its axis, ns."""

    paths: tuple[Path, ...]
    starts_ns: tuple[int, ...]

    def at(self, moment_ns: int) -> int:
        """The place of the file that holds a moment (ns on the report's axis)."""
        return sum(start <= moment_ns for start in self.starts_ns[1:])


def further(report: Path, windows: str | None) -> dict[Path, int]:
    """The files of the further windows of a report → their starts on its axis, ns.

    Args:
        windows: what the column `windows` of `reports` says.
    """
    return {report.parent / name: start for name, start in json.loads(windows or "{}").items()}


def files_of(ranks: pl.DataFrame, reports: pl.DataFrame) -> dict[int, ReportFiles]:
    """rank → the files of its report.

    Args:
        ranks, reports: tables of the run.
    """
    of = ranks.select("rank", "path").join(reports.select("path", "windows"), on="path")
    files = {}
    for rank, path, windows in of.select("rank", "path", "windows").iter_rows():
        more = further(Path(path), windows)
        files[rank] = ReportFiles((Path(path), *more), (0, *more.values()))
    return files
