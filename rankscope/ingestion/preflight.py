"""Reports into a database: look at all of them first, then read what is new, one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from rankscope.errors import RankConflict, RankscopeError, ReportError, UsageError
from rankscope.measure.report import extract
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import CaptureFacts, Claim, ReportFile, ReportOutcome, ReportRows
from rankscope.sources import formats
from rankscope.sources.identify import check_distinct, check_one_run, claims_for_report, pattern

if TYPE_CHECKING:
    from rankscope.ingestion.finalize import DatabaseWriter

ANOTHER_DB = "another run? Name another --db, or replace this one with --rebuild"

ONE_RUN = "ingest the reports of one run at a time"

OWN_VARIABLES = (
    "environment RANK",
    "environment OMPI_COMM_WORLD_RANK",
    "distributedInfo",
    "--rank-pattern",
)
"""Claims that are a rank's own; a launcher's variables say nothing of the ranks it starts."""

Results = Generator[tuple[ReportFile, ReportRows | RankscopeError]]
"""Reports with what came of them, as they come."""

Extract = Callable[[ReportFile, ShapingOptions], ReportRows]

MapOver = Callable[[Extract, list[ReportFile], ShapingOptions], Results]
"""`execute.map_reports`, told where."""

Started = Callable[[list[ReportFile]], None]
"""Called with the reports that will be read."""

Progress = Callable[[ReportFile, int], None]
"""Called after each report with it and the events read from it."""


@dataclass(frozen=True, slots=True)
class ExistingRank:
    """A rank of the database that an ingest does not replace."""

    rank: int | None
    path: Path
    world_size: int | None
    utc_start_ns: int | None
    duration_ns: int | None


class IngestJob:
    """One ingest on its way; `outcomes` and `events` tell what it did."""

    def __init__(
        self,
        target: Path,
        options: ShapingOptions,
        skip: bool,
        rebuild: bool,
        ranks: Container[int] | None = None,
    ) -> None:
        self.target = target
        self.ranks = ranks
        self.options = options
        self.shaping = options.to_json()
        self.skip = skip
        self.rebuild = rebuild
        self.outcomes: list[ReportOutcome] = []
        self.events = 0

    def run(
        self,
        files: list[ReportFile],
        map_over: MapOver,
        started: Started,
        progress: Progress,
    ) -> None:
        """Read what is new or changed among `files`; each report is in whole or not at all."""
        path = self.target
        if self.rebuild:  # the old run stays until the new one is whole
            from rankscope.ingestion.finalize import check_replaceable, remove

            check_replaceable(self.target)
            formats.clear_exports(file.path for file in files)
            path = self.target.with_name(self.target.name + ".rebuild")
        known = None if self.rebuild else self._known()
        to_read = self._look_first(self._sort_out(files, known), known)
        started(to_read)
        if self.rebuild:
            remove(path)
        try:
            with closing(map_over(extract, to_read, self.options)) as results:
                self._read(path, results, progress)
        except RankscopeError:
            if self.rebuild:
                remove(path)
            raise
        if not any(outcome.status != "skipped" for outcome in self.outcomes):
            raise ReportError(
                f"none of the {len(files)} reports could be used: {self.outcomes[0].reason}",
                hint="rankscope ingest --on-error fail stops at each with what to do",
            )
        if self.rebuild:
            os.replace(path, self.target)
        self.outcomes.sort(key=lambda outcome: outcome.path)

    def _read(self, path: Path, results: Results, progress: Progress) -> None:
        from rankscope.ingestion.finalize import DatabaseWriter

        with DatabaseWriter(path, self.shaping) as filling:
            for file, result in results:
                if isinstance(result, RankscopeError):
                    self._bad(file, result)
                    progress(file, 0)
                    continue
                try:
                    self._store(filling, result)
                except RankConflict as error:
                    self._bad(file, error)
                progress(file, result.events)

    def _known(self) -> pl.DataFrame | None:
        """reports joined with ranks of the existing database; None without one."""
        if not self.target.exists():
            return None
        from rankscope.ingestion.finalize import known

        return known(self.target)

    def _sort_out(self, files: list[ReportFile], known: pl.DataFrame | None) -> list[ReportFile]:
        """The reports that are not in the database as they are now, here or elsewhere."""
        if known is None:
            return files
        to_read: list[ReportFile] = []
        for file in files:
            path = str(file.path.resolve())
            alike = known.filter(
                (pl.col("bytes") == file.bytes)
                & (pl.col("modified_ns") == file.modified_ns)
                & (pl.col("options") == self.shaping)
            )
            rows = alike.filter(pl.col("path") == path)
            if rows.is_empty():
                rows = self._moved(file, alike)
            if rows.is_empty():
                to_read.append(file)
            else:
                self.outcomes.append(_unchanged(file, rows))
        return to_read

    def _moved(self, file: ReportFile, alike: pl.DataFrame) -> pl.DataFrame:
        """Rows of a report that lies elsewhere now, its path corrected; none where it did not."""
        for (old,), rows in alike.partition_by("path", as_dict=True).items():
            if Path(old).name == file.path.name and not Path(old).exists():
                from rankscope.ingestion.finalize import move

                move(self.target, old, str(file.path.resolve()))
                return rows
        return alike.clear()

    def _look_first(self, files: list[ReportFile], known: pl.DataFrame | None) -> list[ReportFile]:
        """Find in seconds what would fail after minutes: no report, two of a rank, two runs."""
        own = pattern(self.options.rank_pattern)
        with ThreadPoolExecutor(8) as pool:
            looks = list(pool.map(_look, files))
        good: list[tuple[ReportFile, CaptureFacts, Claim | None]] = []
        for file, look in zip(files, looks, strict=True):
            try:
                if isinstance(look, RankscopeError):
                    raise look
                claims = claims_for_report(file.path, look, own)
            except ReportError as error:
                self._bad(file, error)
                continue
            claim = next(iter(claims), None)
            if self._wanted(file, claim):
                good.append((file, look, claim))
        stay = _staying(known, {str(file.path.resolve()) for file in files})
        check_distinct(
            [
                *((each.rank, each.path) for each in stay if each.rank is not None),
                *(
                    (claim.rank, file.path)
                    for file, _, claim in good
                    if claim is not None and claim.source in OWN_VARIABLES
                ),
            ],
            hint=ANOTHER_DB if stay else None,
        )
        check_one_run(
            [
                *(
                    (each.path, each.world_size, each.utc_start_ns, each.duration_ns)
                    for each in stay
                ),
                *(
                    (
                        file.path,
                        None if claim is None else claim.world_size,
                        look.utc_start_ns,
                        look.duration_ns,
                    )
                    for file, look, claim in good
                ),
            ],
            hint=ANOTHER_DB if stay else ONE_RUN,
        )
        return [file for file, _, _ in good]

    def _wanted(self, file: ReportFile, claim: Claim | None) -> bool:
        """Whether `--ranks` asks for a report; one whose rank only its events tell is read."""
        if self.ranks is None or claim is None or claim.rank in self.ranks:
            return True
        self._skipped(file, f"rank {claim.rank} was not asked for", (claim.rank,))
        return False

    def _store(self, filling: DatabaseWriter, rows: ReportRows) -> None:
        rows = self._asked_for(rows)
        if not rows.ranks:
            self._skipped(rows.file, "none of its ranks was asked for")
            return
        filling.add(rows)
        self.events += rows.events
        self.outcomes.append(
            ReportOutcome(
                path=rows.file.path,
                kind=rows.file.kind,
                ranks=tuple(sorted(part.rank.identity.rank for part in rows.ranks)),
                rank_evidence=rows.ranks[0].rank.identity.evidence,
                iterations=max(part.iterations.height for part in rows.ranks),
                bytes=rows.file.bytes,
                status="read",
            )
        )

    def _asked_for(self, rows: ReportRows) -> ReportRows:
        """The ranks of a report that `--ranks` names."""
        if self.ranks is None:
            return rows
        wanted = tuple(part for part in rows.ranks if part.rank.identity.rank in self.ranks)
        return replace(rows, ranks=wanted)

    def leave_out(self, path: Path, error: RankscopeError) -> None:
        """Stop at a report or folder that cannot be read, or list it and go on."""
        self._bad(ReportFile(path, "unknown", 0, 0), error)

    def _bad(self, file: ReportFile, error: RankscopeError) -> None:
        """Stop at a bad report, or list it and go on."""
        if not self.skip or isinstance(error, UsageError):
            raise error
        self._skipped(file, error.message)

    def _skipped(self, file: ReportFile, reason: str, ranks: tuple[int, ...] = ()) -> None:
        self.outcomes.append(
            ReportOutcome(file.path, file.kind, ranks, None, 0, file.bytes, "skipped", reason)
        )


def _look(file: ReportFile) -> CaptureFacts | RankscopeError:
    try:
        return formats.facts(file)
    except RankscopeError as error:
        return error


def _staying(known: pl.DataFrame | None, replaced: set[str]) -> list[ExistingRank]:
    if known is None:
        return []
    rows = known.filter(~pl.col("path").is_in(list(replaced)))
    return [
        ExistingRank(
            row["rank"],
            Path(row["path"]),
            row["world_size"],
            row["utc_start_ns"],
            row["duration_ns"],
        )
        for row in rows.iter_rows(named=True)
    ]


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
