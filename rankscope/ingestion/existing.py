"""A database that exists before an ingest: what it holds, and whether it may be replaced.

It is a separate module because a new database needs no DuckDB before the first report is read.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import polars as pl

from rankscope.compare.report_files import further
from rankscope.errors import DatabaseError, Unpaired, UnreadableReport
from rankscope.ingestion.finalize import compare_stored
from rankscope.model.reports import ReportFile, ReportOutcome
from rankscope.sources.discover import describe_again
from rankscope.sources.same_job import Capture
from rankscope.store import Database
from rankscope.store.connection import disk_full, not_created
from rankscope.util.atomic_io import exists
from rankscope.util.scratch import scratch_beside


class StoredReports:
    """The reports of an existing database; those that are unchanged need no reading."""

    def __init__(self, target: Path, shaping: str) -> None:
        """Load them from the database at `target`; `shaping` are this ingest's options, as JSON."""
        self._target = target
        self._shaping = shaping
        with Database.open(target) as database:
            reports = database.table("reports").drop("host")
            self._rows = reports.join(database.table("ranks"), on="path", how="left")

    @property
    def ranks(self) -> frozenset[int]:
        """Its ranks."""
        return frozenset(self._rows["rank"].drop_nulls())

    @property
    def files(self) -> list[ReportFile]:
        """Its reports of a single file that are unchanged on disk."""
        columns = ("path", "kind", "bytes", "modified_ns")
        single = self._rows.filter(pl.col("windows").is_null()).select(columns).unique()
        reports = [ReportFile(Path(path), *attributes) for path, *attributes in single.iter_rows()]
        return [each for each in reports if _on_disk(each) == each]

    def unchanged(self, file: ReportFile) -> ReportOutcome | None:
        """The outcome of a report that is stored as it is now, here or under an earlier path."""
        same = self._rows.filter(bytes=file.bytes, modified_ns=file.modified_ns)
        rows = same.filter(path=str(file.path.resolve()))
        if rows.is_empty():
            rows = self._moved(file, same)
        rows = rows.filter(options=self._shaping)
        return None if rows.is_empty() else _unchanged(file, rows)

    def not_replaced(self, files: list[ReportFile]) -> list[Capture]:
        """The ranks whose reports are not among `files`, a capture each."""
        columns = ("rank", "path", "world_size", "host", "utc_start_ns", "duration_ns")
        return [
            Capture(Path(path), () if rank is None else (rank,), *attributes)
            for rank, path, *attributes in self._of_others(files).select(columns).iter_rows()
        ]

    def conventions(self, files: list[ReportFile]) -> set[str]:
        """The conventions that named the iterations of the ranks whose reports are not `files`."""
        return {*self._of_others(files)["convention"].drop_nulls()}

    def _of_others(self, files: list[ReportFile]) -> pl.DataFrame:
        """The rows of the reports that are not among `files`."""
        replaced = [str(file.path.resolve()) for file in files]
        return self._rows.filter(~pl.col("path").is_in(replaced))

    def to_read_again(
        self, files: list[ReportFile], read: list[ReportFile], error: Unpaired
    ) -> list[ReportFile]:
        """All reports that the database now holds, to be read with other iterations.

        Raises:
            Unpaired: a report that the database had before has gone or changed. The reports that
                were added are then removed again, so that the others can be compared.
        """
        by_path = {str(file.path.resolve()): file for file in files}
        to_read = {str(file.path.resolve()): file for file in read}
        columns = ("path", "kind", "bytes", "modified_ns", "windows")
        for path, kind, size, modified, windows in self._rows.select(columns).unique().iter_rows():
            if path in to_read:
                continue
            more = tuple(further(Path(path), windows))
            report = by_path.get(path) or ReportFile(Path(path), kind, size, modified, more=more)
            now = _on_disk(report)
            if now is None or (now.bytes, now.modified_ns) != (size, modified):
                with Database.open(self._target, write=True) as database:
                    database.remove([*({*to_read} - {*self._rows["path"]})])
                    compare_stored(database)
                raise Unpaired(
                    f"{error.message}; {path} is not as it was, so that not all reports can be "
                    "read again as one iteration each",
                    hint="ingest all reports of the run into another --db",
                ) from error
            to_read[path] = report
        return [*to_read.values()]

    def _moved(self, file: ReportFile, same: pl.DataFrame) -> pl.DataFrame:
        """Rows of a report that was moved, after its path is corrected; else no rows."""
        for (old,), rows in same.partition_by("path", as_dict=True).items():
            if Path(old).name == file.path.name and not Path(old).exists():
                new = str(file.path.resolve())
                with Database.open(self._target, write=True) as database:
                    database.move(old, new)
                path = pl.when(path=old).then(pl.lit(new)).otherwise("path")
                self._rows = self._rows.with_columns(path=path)
                return rows
        return same.clear()


def _on_disk(report: ReportFile) -> ReportFile | None:
    """A report as it is now; None where it has gone."""
    try:
        return describe_again(report)
    except UnreadableReport:
        return None


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """A path for a new database that takes the place of the one at `target`, if all goes well.

    Raises:
        DatabaseError: `target` is no run, or in use, or its folder cannot be written to.
    """
    Database.check_replaceable(target)
    with ExitStack() as stack:
        with _creation_errors(target):
            path = stack.enter_context(scratch_beside(target))
        try:
            yield path
        except DatabaseError as error:
            text = error.message.replace(str(path), str(target))
            raise DatabaseError(text, hint=error.hint) from error
        with _creation_errors(target):
            # a log of changes of the old one would be read into the new one
            Path(f"{target}.wal").unlink(missing_ok=True)
            os.replace(path, target)


@contextmanager
def _creation_errors(target: Path) -> Iterator[None]:
    """Within it, errors of the system become errors that a database cannot be created."""
    try:
        yield
    except OSError as error:
        full = disk_full(target, error) if exists(target.parent) else None
        raise full or not_created(target, error.strerror or "") from error


def remove(path: Path) -> None:
    """Remove a database that nobody else uses."""
    Database.check_replaceable(path)
    path.unlink(missing_ok=True)
    Path(f"{path}.wal").unlink(missing_ok=True)


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
