"""Readers may ask for no table that an export of rankscope's own leaves out."""

from collections.abc import Callable

import pytest

from rankscope.sources.columns.folders import ParquetColumns
from rankscope.sources.columns.sqlite import SQLiteColumns
from rankscope.sources.nsys import python_samples
from rankscope.sources.nsys.export import TABLES

Has = Callable[..., bool]

ALLOWED = {*TABLES, python_samples.TABLE}


@pytest.fixture(autouse=True)
def _only_exported_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (SQLiteColumns, ParquetColumns):
        has = columns.has

        def asked(self: object, table: str, *names: str, has: Has = has) -> bool:
            assert table in ALLOWED, f"add {table} to rankscope/sources/nsys/export.py"
            return has(self, table, *names)

        monkeypatch.setattr(columns, "has", asked)
