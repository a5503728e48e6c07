"""Reads the tables of a database file, while it is open or by opening it again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Self

import polars as pl
from msgspec import Struct

from rankscope.errors import DatabaseChanged
from rankscope.store.connection import PATIENCE_S
from rankscope.store.database import Database
from rankscope.store.door import Known
from rankscope.store.tables import TableRequest, requested

SMALL_BYTES = 8 * 2**20
"""Largest file whose tables are read in advance: opening it again would take longer."""

RUN_TABLES = ("reports", "ranks", "problems")
"""Tables that describe the run; they are read once and kept."""


class DatabaseReader(Struct, frozen=True):
    """A `TableReader` of a file that must not change; it can be pickled.

    `state`: `Database.state` of the file. `loaded`: tables in memory. `known`: `Database.known`.
    """

    path: Path
    state: tuple[int, ...]
    loaded: dict[str, pl.DataFrame]
    known: Known
    _kept: dict[int, list[Database]] = {}

    @classmethod
    def of(cls, database: Database, state: tuple[int, ...]) -> Self:
        """The reader of an open database."""
        loaded = {name: database.table(name) for name in RUN_TABLES}
        return cls(database.path, state, loaded, database.known)

    def expect(self, database: Database, name: str) -> None:
        """Read a table in advance, if the file is small."""
        if self.path.stat().st_size <= SMALL_BYTES:
            self.loaded[name] = database.table(name)

    def read(self, request: TableRequest) -> pl.DataFrame:
        """The requested columns and rows.

        Raises:
            DatabaseChanged: the file has changed.
        """
        if request.table in self.loaded:
            return requested(self.loaded[request.table], request)
        with self.kept_open():
            kept = self._kept[get_ident()]
            if not kept:
                kept.append(self._opened())
            return kept[0].read(request)

    @contextmanager
    def held(self, database: Database) -> Iterator[None]:
        """Within it, this thread reads from an open database, which the caller closes."""
        thread = get_ident()
        self._kept[thread] = [database]
        try:
            yield
        finally:
            self._kept.pop(thread, None)

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Within it, this thread opens the file once, at the first read that needs it."""
        thread = get_ident()
        if thread in self._kept:
            yield
            return
        kept = self._kept[thread] = []
        try:
            yield
        finally:
            del self._kept[thread]
            for database in kept:
                database.close()

    def _opened(self) -> Database:
        """The file, opened again for reading.

        Raises:
            DatabaseChanged: the file has changed.
        """
        database = Database.reopen(self.path, self.known)
        if Database.state(self.path) == self.state:
            return database
        database.close()
        raise DatabaseChanged(f"{self.path}: has changed since it was opened", hint="open it again")


@contextmanager
def opened(
    path: Path, patience_s: float = PATIENCE_S
) -> Iterator[tuple[Database, tuple[int, ...]]]:
    """A run, open for reading, and its `Database.state`.

    Raises:
        DatabaseError: missing, locked, damaged, or of another version.
    """
    while True:
        state = Database.state(path)
        with Database.open(path, patience_s=patience_s) as database:
            if Database.state(path) == state:
                yield database, state
                return
