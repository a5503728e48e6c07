"""One ingest from start to end: reports found, workers started, rows stored, ranks compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable
from contextlib import closing
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rankscope.errors import (
    RankConflict,
    RankscopeError,
    ReportError,
    UnlikeOthers,
    Unpaired,
    UnreadableReport,
    UsageError,
)
from rankscope.ingestion.workers import Results, WorkerPool, map_reports
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import CaptureFacts, Claim, ReportFile, ReportOutcome, ReportRows
from rankscope.sources.discover import discover
from rankscope.util.atomic_io import DEFAULT_DB, exists
from rankscope.util.scratch import remove_abandoned
from rankscope.util.wording import agreeing, counted

if TYPE_CHECKING:
    from rankscope.ingestion.existing import StoredReports
    from rankscope.ingestion.finalize import DatabaseWriter

Extract = Callable[[ReportFile, ShapingOptions], ReportRows]

MapReports = Callable[[Extract, list[ReportFile], ShapingOptions], Results]
"""`workers.map_reports` with its workers chosen."""

Started = Callable[[list[ReportFile]], None]
"""Called with the reports that will be read."""

Progress = Callable[[ReportFile, int], None]
"""Called after each report, with the report and the number of events read from it."""


class Ingested(Struct, frozen=True):
    """What an ingest did."""

    outcomes: tuple[ReportOutcome, ...]
    seconds: float
    events: int


def ingest_reports(
    paths: Iterable[str | Path],
    db: str | Path = DEFAULT_DB,
    options: ShapingOptions | None = None,
    *,
    jobs: int | None = None,
    scheduler: str | Path | None = None,
    on_error: str = "fail",
    rebuild: bool = False,
    ranks: Container[int] | None = None,
    run: int | None = None,
    label: str | None = None,
    started: Started | None = None,
    progress: Progress | None = None,
) -> Ingested:
    """Read reports into a run's database; other parameters, and errors, as of `rankscope.ingest`.

    Importing this module does not import polars, so that workers start without delay.
    """
    if on_error not in ("fail", "skip"):
        raise UsageError(f"--on-error {on_error}", hint="fail or skip")
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}", hint="at least 1")
    if jobs is not None and scheduler is not None:
        raise UsageError(
            "--jobs with --scheduler",
            hint="leave out --jobs: a cluster brings its own workers",
        )
    address = None if scheduler is None else str(scheduler)
    begin = time.monotonic()
    target, paths = Path(db), list(paths)
    remove_abandoned(target.parent, target.name)
    unread: list[tuple[Path, ReportError]] = []
    files = discover(paths, lambda *each: unread.append(each))
    with closing(WorkerPool(jobs)) as pool:
        if scheduler is None and (rebuild or not exists(target)):
            pool.start(files)
        from rankscope.ingestion.preflight import check_one_rank, reports_to_read, select_run
        from rankscope.ingestion.runs import ingest_command
        from rankscope.sources.conventions import vocabulary  # heavy: imported beside the workers
        from rankscope.sources.identify import pattern

        options = options or ShapingOptions()
        rank_pattern = pattern(options.rank_pattern)
        stored = None
        if exists(target) and not rebuild:
            from rankscope.ingestion.existing import StoredReports

            stored = StoredReports(target, options.to_json())
        before = [] if stored is None else stored.files
        files, copies = reports_to_read(files, rank_pattern, before)
        check_one_rank(options, files)
        if run is not None:
            files = select_run(files, run, rank_pattern)
        vocabulary(options)  # raises for a wrong pattern before any report is read
        skip = on_error == "skip"
        command = ingest_command(paths, target, run)
        beside = scheduler is None and ranks is None and not skip
        job = IngestJob(target, options, skip, rebuild, ranks, command, stored, beside)
        for path, error in unread:
            job.leave_out(path, error)
        job.leave_out_copies(copies)
        job.run(
            files,
            partial(map_reports, pool=pool, scheduler=address),
            started or (lambda _: None),
            progress or (lambda *_: None),
        )
    if label is not None:
        from rankscope.store import Database
        from rankscope.store.connection import AFTERWARDS_S

        with Database.open(target, write=True, patience_s=AFTERWARDS_S) as database:
            database.note("label", label)
    return Ingested(tuple(job.outcomes), time.monotonic() - begin, job.events)


class IngestJob:
    """One ingest in progress; `outcomes` and `events` describe its result."""

    def __init__(
        self,
        target: Path,
        options: ShapingOptions,
        skip: bool,
        rebuild: bool,
        ranks: Container[int] | None = None,
        command: str = "rankscope ingest",
        stored: StoredReports | None = None,
        beside: bool = False,
    ) -> None:
        """Prepare an ingest.

        Args:
            skip: leave out bad reports.
            ranks: those to ingest; None: all.
            command: that of this ingest, for messages.
            stored: the reports that the database had before.
            beside: workers read while reports are checked, which leave out none or fail.
        """
        self.target = target
        self.beside = beside
        self.ranks = ranks
        self.ranks_again: frozenset[int] = frozenset()  # of the database, to be read again
        self.options = options
        self.shaping = options.to_json()
        self.skip = skip
        self.rebuild = rebuild
        self.command = command
        self.stored = stored
        self.outcomes: list[ReportOutcome] = []
        self.events = 0
        self.copies = 0  # of reports, left out

    def run(
        self, files: list[ReportFile], map_over: MapReports, started: Started, progress: Progress
    ) -> None:
        """Read the new and changed reports among `files`; each is stored whole or not at all."""
        if self.rebuild:  # the old run stays until the new one is complete
            from rankscope.ingestion.existing import replaced
            from rankscope.sources.nsys import export

            with replaced(self.target) as path:
                export.clear(file.path for file in files)
                self._run(path, files, map_over, started, progress)
        else:
            self._run(self.target, files, map_over, started, progress)
        self.outcomes.sort(key=lambda outcome: outcome.path)

    def _run(
        self,
        path: Path,
        files: list[ReportFile],
        map_over: MapReports,
        started: Started,
        progress: Progress,
    ) -> None:
        """Read them into the database at `path`."""
        from rankscope.ingestion.iteration_defaults import read_alike, read_captures
        from rankscope.ingestion.kept_rows import extract_or_take
        from rankscope.measure.report import extract

        changed = self._new_or_changed(files)
        others = [] if self.stored is None else self.stored.not_replaced(files)
        self.options = replace(self.options, alone=len(files) == 1 and not others)
        read = partial(map_over, extract if self.rebuild else extract_or_take)

        def reading(files: list[ReportFile]) -> Results:
            present = set() if self.stored is None else self.stored.conventions(files)
            return read_alike(read, files, self.options, present)

        begun = reading(changed) if self.beside else None  # nothing is stored before the checks
        to_read = self._checked(changed)
        started(to_read)
        try:
            try:
                with closing(begun or reading(to_read)) as results:
                    self._read(path, results, progress)
            except Unpaired as error:
                to_read = self._all_again(path, files, to_read, error)
                captures = read_captures(read, to_read, self.options, error.message)
                with closing(captures) as results:
                    self._read(path, results, progress)
        except RankscopeError as error:
            done = sum(outcome.status == "read" for outcome in self.outcomes)
            if done and exists(path) and not self.rebuild:
                error.hint += (
                    f"; {counted(done, 'report')} {agreeing(done, 'is', 'are')} stored in {path}: "
                    "ingest goes on with the others"
                )
            raise
        only_copies = self.stored is not None and self.copies == len(self.outcomes)
        if not only_copies and not any(outcome.status != "skipped" for outcome in self.outcomes):
            count = len(self.outcomes)
            whole = "no report" if count == 1 else f"none of the {counted(count, 'report')}"
            raise ReportError(
                f"{whole} could be used: {self.outcomes[0].reason}",
                hint="rankscope ingest --on-error fail stops at the first one and says what to do",
            )

    def _all_again(
        self, path: Path, files: list[ReportFile], to_read: list[ReportFile], error: Unpaired
    ) -> list[ReportFile]:
        """The reports to read again, because the database at `path` would repeat the error."""
        from rankscope.ingestion import existing

        self.outcomes = [each for each in self.outcomes if each.status != "read"]
        self.events = 0
        if self.stored is None:
            existing.remove(path)
            return to_read
        self.ranks_again = self.stored.ranks
        return self.stored.to_read_again(files, to_read, error)

    def leave_out(self, path: Path, error: RankscopeError) -> None:
        """Raise the error of a report or folder that cannot be read, or list it as skipped."""
        self._bad(ReportFile(path, "unknown", 0, 0), error)

    def leave_out_copies(self, copies: dict[Path, Path]) -> None:
        """List copies of reports as skipped."""
        self.copies = len(copies)
        for copy, report in copies.items():
            self._skipped(ReportFile(copy, "unknown", 0, 0), f"{copy} is a copy of {report}")

    def _new_or_changed(self, files: list[ReportFile]) -> list[ReportFile]:
        """The reports that the database does not hold as they are now."""
        if self.stored is None:
            return files
        to_read: list[ReportFile] = []
        for file in files:
            outcome = self.stored.unchanged(file)
            if outcome is None:
                to_read.append(file)
            else:
                self.outcomes.append(outcome)
        return to_read

    def _checked(self, files: list[ReportFile]) -> list[ReportFile]:
        """The reports to read, after the checks of `preflight`."""
        from rankscope.ingestion.preflight import capture_facts, of_one_run
        from rankscope.sources.identify import claims_for_report, pattern

        rank_pattern = pattern(self.options.rank_pattern)
        described: list[tuple[ReportFile, CaptureFacts, Claim | None]] = []
        for file, facts in zip(files, capture_facts(files), strict=True):
            try:
                if isinstance(facts, RankscopeError):
                    raise facts
                claims = claims_for_report(
                    file.path, facts, rank_pattern, self.options.rank, file.numbers
                )
            except ReportError as error:
                self._bad(file, error)
                continue
            claim = next(iter(claims), None)
            if self._is_selected(file, claim):
                described.append((file, facts, claim))
        existing = [] if self.stored is None else self.stored.not_replaced(files)
        kept, left_out = of_one_run(existing, described, self.skip, self.command)
        for file, reason in left_out:
            self._skipped(file, reason)
        return [file for file, _, _ in kept]

    def _is_selected(self, file: ReportFile, claim: Claim | None) -> bool:
        """Whether `--ranks` selects a report; True if only its events can say which rank it is."""
        if self.ranks is None or claim is None or claim.rank in self.ranks:
            return True
        self._skipped(file, f"rank {claim.rank} is not among --ranks", (claim.rank,))
        return False

    def _read(self, path: Path, results: Results, progress: Progress) -> None:
        from rankscope.ingestion.finalize import DatabaseWriter

        with DatabaseWriter(path, self.shaping) as database:
            for file, result in results:
                if isinstance(result, RankscopeError):
                    self._bad(file, result)
                    progress(file, 0)
                    continue
                try:
                    self._store(database, result)
                except RankConflict as error:
                    self._bad(file, error)
                progress(file, result.events)

    def _store(self, database: DatabaseWriter, rows: ReportRows) -> None:
        if self.ranks is not None:
            wanted = [
                number in self.ranks or number in self.ranks_again
                for number in (part.rank.identity.rank for part in rows.ranks)
            ]
            rows = replace(rows, ranks=tuple(compress(rows.ranks, wanted)))
        if not rows.ranks:
            self._skipped(rows.file, "none of its ranks is among --ranks")
            return
        database.add(rows)
        self.events += rows.events
        # A report is read again if others have no iterations of its kind.
        self.outcomes = [each for each in self.outcomes if each.path != rows.file.path]
        self.outcomes.append(
            ReportOutcome(
                path=rows.file.path,
                kind=rows.file.kind,
                ranks=tuple(sorted(rank.rank.identity.rank for rank in rows.ranks)),
                rank_evidence=rows.ranks[0].rank.identity.evidence.name,
                iterations=max(rank.iterations.height for rank in rows.ranks),
                bytes=rows.file.bytes,
                status="read",
            )
        )

    def _bad(self, file: ReportFile, error: RankscopeError) -> None:
        """Raise the error of a bad report, or list the report as skipped."""
        if not isinstance(error, UnlikeOthers) and (not self.skip or isinstance(error, UsageError)):
            if isinstance(error, UnreadableReport) and not self.options.alone:
                error.hint += f"; or leave such reports out: {self.command} --on-error skip"
            raise error
        self._skipped(file, error.message)

    def _skipped(self, file: ReportFile, reason: str, ranks: tuple[int, ...] = ()) -> None:
        self.outcomes.append(
            ReportOutcome(file.path, file.kind, ranks, None, 0, file.bytes, "skipped", reason)
        )
