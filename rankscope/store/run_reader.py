"""The tables of a database file, opened for each read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from rankscope.errors import DatabaseError
from rankscope.store.database import Database
from rankscope.store.tables import TableRequest, requested


@dataclass(frozen=True, slots=True)
class DatabaseReader:
    """A `TableReader` of a file that must not change; it can be pickled.

    `state`: `Database.state` of the file. `loaded`: tables that are in memory.
    """

    path: Path
    state: tuple[int, ...]
    loaded: Mapping[str, pl.DataFrame]

    def read(self, request: TableRequest) -> pl.DataFrame:
        """The requested columns and rows.

        Raises:
            DatabaseError: the file has changed.
        """
        if request.table in self.loaded:
            return requested(self.loaded[request.table], request)
        with Database.open(self.path) as database:
            if Database.state(self.path) != self.state:
                raise DatabaseError(
                    f"{self.path}: has changed since it was opened", hint="open it again"
                )
            return database.read(request)
