"""The database that an ingest fills: what it holds, what is added, what is derived from it.

It is a separate module because DuckDB and the comparison load while reports are already read.
"""

import logging
from pathlib import Path
from typing import Self

from rankscope.compare.cache import cached_comparison, to_tables
from rankscope.compare.comparison import Stage
from rankscope.compare.stages import compare
from rankscope.errors import DatabaseError, RankscopeError, ReportError, Unpaired, UsageError
from rankscope.model.options import Options
from rankscope.model.reports import ReportRows
from rankscope.sources.identify import check_distinct
from rankscope.store import Database, ReportWriter, stored_path
from rankscope.store.connection import AFTERWARDS_S
from rankscope.store.tables import RunTables
from rankscope.util.atomic_io import exists

LOG = logging.getLogger("rankscope.ingestion")


class DatabaseWriter:
    """A database that reports are added to: a context manager that compares them at its end.

    The database is created with the first report, and removed if it gets none. Reports are compared
    also after an error that the user can fix, so that what is derived fits the reports. After an
    interrupt they are not, so that nobody has to wait: the next ingest compares them.
    """

    def __init__(self, path: Path, shaping: str) -> None:
        """Fill the one at `path`; `shaping` are the options of the reports, as JSON."""
        self._path = path
        self._shaping = shaping
        self._taken: dict[int, str] = {}  # rank of the database → its report
        self._database: Database | None = None
        self._incoming: ReportWriter | None = None
        self._is_new = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._database is None and self._was_interrupted():
            self._database = open_or_create(self._path)
        if self._database is None:
            return
        with self._database as database:
            try:
                if self._incoming is not None:
                    self._incoming.flush()
            finally:
                if self._is_new and database.table("reports").is_empty():
                    self._path.unlink()  # as long as nobody else can open it
            if kind is None or issubclass(kind, RankscopeError):
                compare_stored(database)

    def add(self, rows: ReportRows) -> None:
        """Store a report, in place of what its path had.

        Raises:
            RankConflict: another report has one of its ranks.
        """
        if self._database is None or self._incoming is None:
            self._is_new = not exists(self._path)
            self._database = open_or_create(self._path)
            self._incoming = ReportWriter(self._database, self._shaping)
            ranks_there = self._database.table("ranks").select("rank", "path")
            self._taken = dict(ranks_there.iter_rows())
        path = stored_path(rows.file.path)
        kept = {rank: taken_path for rank, taken_path in self._taken.items() if taken_path != path}
        ranks = [part.rank.identity.rank for part in rows.ranks]
        check_distinct(
            [
                *((rank, Path(kept[rank])) for rank in ranks if rank in kept),
                *((rank, rows.file.path) for rank in ranks),
            ]
        )
        self._taken = kept | dict.fromkeys(ranks, path)
        self._incoming.add(rows)

    def _was_interrupted(self) -> bool:
        """Whether an earlier ingest wrote reports, but stopped before it compared them."""
        if not exists(self._path):
            return False
        with Database.open(self._path) as database:
            return not database.is_finished


def compare_stored(database: Database) -> None:
    """Compare the reports that a database holds now, and cache the result in it."""
    database.shrink_cache()
    tables = RunTables(database.name, database)
    if not tables.ranks.is_empty():
        try:
            comparison = compare(tables, Options())
            cached = to_tables(comparison)
        except Unpaired:
            raise
        except (UsageError, ReportError):  # no iterations to compare
            comparison, cached = compare(tables, Options(), until=Stage.OUTLIERS), {}
        rows, clock = comparison.rank_iterations(), comparison.clock
        del comparison  # DuckDB needs the memory
        database.replace_comparison(rows, clock, cached)
        if cached and not _readable(database, tables):
            database.replace_comparison(rows, clock, {})
    database.checkpoint()


def _readable(database: Database, tables: RunTables) -> bool:
    """Whether commands can read the cached answers; else they compare the ranks themselves."""
    try:
        database.check_compared()
        cached_comparison(tables, database.comparison_table)
    except DatabaseError as error:
        LOG.error("answers are not cached: %s", error.message)
        return False
    return True


def open_or_create(path: Path) -> Database:
    """The database at `path`, to write to; commands that read it are waited for."""
    if not exists(path):
        return Database.create(path)
    return Database.open(path, write=True, patience_s=AFTERWARDS_S)
