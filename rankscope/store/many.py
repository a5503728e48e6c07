"""Small tables of many databases, one after the other.

Opening a database of its own takes DuckDB ten times as long as attaching it to one that is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
import polars as pl

from rankscope.model.tables import TABLES
from rankscope.store.ddl import quoted
from rankscope.store.migrations import SCHEMA_VERSION


class ManyDatabases:
    """Reads small tables of databases; use as a context manager, in one thread."""

    def __enter__(self) -> Self:
        self._connection = duckdb.connect(":memory:", config={"threads": 1})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def read(
        self, path: Path, stored: Sequence[str], compared: Sequence[str]
    ) -> dict[str, pl.DataFrame] | None:
        """Whole tables of a database of the present schema whose comparison is finished.

        Args:
            path: the database.
            stored: of `TABLES`; columns that the file lacks are null.
            compared: of `COMPARED_TABLES`.

        Returns:
            Table → its rows; None where the database is another one, or cannot be read: `Database`
            says what is wrong with it.
        """
        try:
            self._connection.execute(f"attach {quoted(str(path))} as run (read_only)")
        except duckdb.Error:
            return None
        try:
            meta = dict(self._connection.execute("select key, value from run.meta").fetchall())
            if meta.get("schema_version") != str(SCHEMA_VERSION):
                return None
            if "rank_iterations_clock" not in meta:
                return None
            tables = {name: self._connection.sql(f"from run.{name}").pl() for name in compared}
            for name in stored:
                frame = self._connection.sql(f"from run.{name}").pl()
                schema = TABLES[name].schema
                missing = [each for each in schema if each not in frame.columns]
                tables[name] = frame.with_columns(
                    pl.lit(None, schema[each]).alias(each) for each in missing
                )
            return tables
        except duckdb.Error:
            return None
        finally:
            self._connection.execute("detach run")
