"""One report in other shapes: folders of Parquet or Arrow files, exports of other ages."""

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

FOLDERS = ("parquetdir", "arrowdir")
"""Kinds of exports that are folders."""

KINDS = ("sqlite", *FOLDERS)
"""Kinds of exports."""

BOOLEAN = {"isSchedIn", "unresolved"}
UNSIGNED = {"globalTid", "globalPid", "rangeId", "category", "domainId", "uint64Value"}
TEXT = {"text", "value", "name", "jsonText", "shortText"}
BLANKS = {"text": "", "int64Value": 0, "uint64Value": 0, "uint32Value": 0, "int32Value": 0}
"""What exports of 2020, whose columns are all NOT NULL, write for "none"."""


def as_export(report: Path, kind: str, into: Path, rows: int = 7) -> Path:
    """A SQLite export in another kind, with unsigned ids and tiny row groups, or as it is."""
    if kind == "sqlite":
        return report
    folder = into / f"{report.stem}_{'pqtdir' if kind == 'parquetdir' else 'arwdir'}"
    folder.mkdir(parents=True)
    connection = sqlite3.connect(report)
    connection.text_factory = bytes
    for (name,) in connection.execute("select name from sqlite_master where type = 'table'"):
        table = name.decode()
        if table == "META_DATA_CAPTURE":  # never in these
            continue
        cursor = connection.execute(f'select * from "{table}"')
        columns = [column[0] for column in cursor.description]
        values = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(columns)
        arrays = [_array(*pair) for pair in zip(columns, values, strict=True)]
        _write(pa.table(arrays, names=columns), folder / table, kind, rows)
    connection.close()
    return folder


def _array(name: str, values: tuple[object, ...]) -> pa.Array:
    if name in UNSIGNED:
        return pa.array(
            [int(v) % 2**64 if isinstance(v, int) else None for v in values], pa.uint64()
        )
    if name in BOOLEAN:
        return pa.array([None if value is None else bool(value) for value in values], pa.bool_())
    if any(isinstance(value, bytes) for value in values):
        raw = [v if v is None or isinstance(v, bytes) else str(v).encode() for v in values]
        return pa.array(raw, pa.binary()).view(pa.string())  # as nsys: whatever the bytes are
    if any(isinstance(value, float) for value in values):
        return pa.array(values, pa.float64())
    return pa.array(values, pa.int64())


def _write(table: pa.Table, path: Path, kind: str, rows: int) -> None:
    if kind == "parquetdir":
        parquet.write_table(table, f"{path}.parquet", row_group_size=rows, compression="none")
        return
    with pa.OSFile(f"{path}.arrow", "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=rows)


def as_of_2020(report: Path) -> Path:
    """A SQLite export in place as schema 2.9 has it: fewer tables, nothing null."""
    connection = sqlite3.connect(report)
    tables = {name for (name,) in connection.execute("select name from sqlite_master")}
    with connection:
        for table in (
            "META_DATA_CAPTURE",
            "META_DATA_EXPORT",
            "EXPORT_META_DATA",
            "PROCESSES",
            "TARGET_INFO_GPU",
            "ThreadNames",
        ):
            if table in tables:
                connection.execute(f"drop table {table}")
        for column, blank in BLANKS.items():
            connection.execute(
                f"update NVTX_EVENTS set {column} = ? where {column} is null", (blank,)
            )
        connection.execute("alter table NVTX_EVENTS drop column jsonText")
        connection.execute("alter table NVTX_EVENTS drop column jsonTextId")
    connection.close()
    return report


def scripted_nsys(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    """An nsys that is a script of the shell, so that it does what a real one seldom does."""
    script = folder / "nsys"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setenv("RANKSCOPE_NSYS", str(script))
    return script
