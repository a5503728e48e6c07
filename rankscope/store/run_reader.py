"""The tables of a database file: of a small one all in memory, else opened for each read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import polars as pl

from rankscope.errors import DatabaseError
from rankscope.model.tables import TABLES
from rankscope.store.database import Database
from rankscope.store.tables import TableRequest, requested

SMALL_BYTES = 8 * 2**20
"""Up to this size of the file all tables are read at once: to open it again takes longer."""

RUN_TABLES = ("reports", "ranks", "problems")
"""Tables that say what the run is; they are read once, and stay as they were."""


@dataclass(frozen=True, slots=True)
class DatabaseReader:
    """A `TableReader` of a file that must not change; it can be pickled.

    `state`: `Database.state` of the file. `loaded`: tables that are in memory. `missing`:
    `Database.missing`; None if `Database.open` has not checked the file yet.
    """

    path: Path
    state: tuple[int, ...]
    loaded: Mapping[str, pl.DataFrame]
    missing: Mapping[str, Sequence[str]] | None = None

    @classmethod
    def of(cls, database: Database, state: tuple[int, ...]) -> Self:
        """The reader of an open database.

        Args:
            database: open for reading.
            state: `Database.state` from before it was opened.
        """
        names = list(RUN_TABLES)
        if database.path.stat().st_size <= SMALL_BYTES:
            names = [*TABLES, *database.compared]
        loaded = {name: database.table(name) for name in names}
        return cls(database.path, state, loaded, database.missing)

    def read(self, request: TableRequest) -> pl.DataFrame:
        """The requested columns and rows.

        Raises:
            DatabaseError: the file has changed.
        """
        if request.table in RUN_TABLES:
            return requested(self.loaded[request.table], request)
        if request.table in self.loaded:
            self._check()
            return requested(self.loaded[request.table], request)
        known = self.missing
        opened = Database.open(self.path) if known is None else Database.reopen(self.path, known)
        with opened as database:
            self._check()
            return database.read(request)

    def _check(self) -> None:
        if Database.state(self.path) != self.state:
            raise DatabaseError(
                f"{self.path}: has changed since it was opened", hint="open it again"
            )
