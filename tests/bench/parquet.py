"""Exports as folders of Parquet files, as `nsys recipe` makes and keeps them beside reports."""

import time
from contextlib import closing
from pathlib import Path

import polars as pl
from pyarrow import parquet

from rankscope.sources.columns.sqlite import SQLiteColumns
from tests.bench.plain import COLUMNS, TEXT

UNSIGNED = ("globalTid", "globalPid", "domainId")
MORE = {"NVTX_EVENTS": ["endGlobalTid"], "CUPTI_ACTIVITY_KIND_RUNTIME": ["end"]}
EMPTY = ("CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_MEMCPY")
"""Recipes export empty tables, too."""


def beside_reports(reports: list[Path], folder: Path) -> list[Path]:
    """Stand-ins of .nsys-rep files with their Parquet folders beside them.

    A recipe looks at the report itself only where its export is older or lacks a column, so an
    empty file does; what it measures is without the export.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / f"{report.stem}.nsys-rep" for report in reports]
    new = [pair for pair in zip(reports, made, strict=True) if not pair[1].exists()]
    for _, file in new:
        file.touch()
    time.sleep(0.05)  # an export must be newer than its report
    for report, file in new:
        _export(report, file.with_name(f"{file.stem}_pqtdir"))
    return made


def folders(reports: list[Path], folder: Path) -> list[Path]:
    """The Parquet folders alone."""
    made = beside_reports(reports, folder)
    return [file.with_name(f"{file.stem}_pqtdir") for file in made]


def _export(report: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with closing(SQLiteColumns(report)) as file:
        for table, columns in COLUMNS.items():
            names = [*columns, *MORE.get(table, [])]
            integers = [name for name in names if name not in TEXT]
            text = [name for name in names if name in TEXT]
            if file.has(table):
                frame = file.read(table, integers, text)
                _write(frame, folder / f"{table}.parquet")
    for table in EMPTY:
        if not (path := folder / f"{table}.parquet").exists():
            columns = COLUMNS["CUPTI_ACTIVITY_KIND_MEMCPY"]
            _write(pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64)), path)


def _write(frame: pl.DataFrame, path: Path) -> None:
    unsigned = [pl.col(name).cast(pl.UInt64) for name in UNSIGNED if name in frame.columns]
    # NVIDIA's pandas knows no string views: written by pyarrow, with plain strings.
    table = frame.with_columns(unsigned).to_arrow(compat_level=pl.CompatLevel.oldest())
    parquet.write_table(table, path, compression="none")
