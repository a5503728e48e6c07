"""Without `--iteration`: iterations that all reports of a run can have, and a warning that says so.

A report alone selects the best iterations that it has (`segment.choice`). Ranks are comparable only
if all reports have the same kind, so results without named iterations wait here until every report
is read. See METHOD.md#iterations.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
from msgspec.structs import replace

from rankscope.errors import NoIterations, RankscopeError, UnlikeOthers
from rankscope.ingestion.workers import Results
from rankscope.model.options import AUTO, WHOLE, ShapingOptions
from rankscope.model.reports import ENDS_ALONE, ReportFile, ReportRows, RunWarning
from rankscope.sources.recorders import Record, advice, recorder_of
from rankscope.util.wording import agreeing, and_more, counted

Read = Callable[[list[ReportFile], ShapingOptions], Results]
"""Reads reports, in workers."""

HELD_BYTES = 2**28
"""Rows that wait are kept in memory up to this size, then in a temporary file."""

ALIKE = 1.5
"""Steps of all ranks are alike if the longest median is at most this many times the shortest."""

OTHERWISE = "--iteration REGEX selects ranges by name"

TAKEN = {
    AUTO: f"no range is named like an iteration: {OTHERWISE}, whole takes each capture as one "
    "iteration",
    WHOLE: "each capture is one iteration (--iteration whole), because no range is named like an "
    f"iteration and steps are not certain on every rank: {OTHERWISE}",
}
"""Values of `--iteration` → the warning that it was taken."""


def read_alike(
    read: Read, files: list[ReportFile], options: ShapingOptions, present: Iterable[str] = ()
) -> Results:
    """Yield each report with its rows, of iterations that all reports have, or with its error.

    If other reports show that a report needs another kind of iterations, it is yielded again. The
    reading begins at once, if that of `read` does.

    Args:
        read: reads reports with the options that it is given.
        options: the user's options.
        present: conventions of the ranks that the database has already.
    """
    results = _alike_or_as_before(read, files, options, present)
    return _unproposed(results) if options.iteration in (AUTO, WHOLE) else results


def _unproposed(results: Results) -> Results:
    """Yield results without names that may be those of iterations: the user wants none."""
    with closing(results):
        for file, rows in results:
            if isinstance(rows, RankscopeError):
                yield file, rows
            else:
                others = (each for each in rows.problems if each.code != "iterations-unnamed")
                yield file, replace(rows, problems=tuple(others))


def _alike_or_as_before(
    read: Read, files: list[ReportFile], options: ShapingOptions, present: Iterable[str]
) -> Results:
    """As `read_alike`, with all that reports hold."""
    before = {convention if convention in TAKEN else None for convention in present}
    if before == {WHOLE}:
        because = None if options.iteration in (None, AUTO) else "those in the database are"
        return read_captures(read, files, options, because)
    if options.iteration not in (None, AUTO):
        return read(files, options)
    if before == {AUTO}:
        return _with_warning(read(files, replace(options, iteration=AUTO)), AUTO)
    return _alike(read, read(files, options), options, before)


def read_captures(
    read: Read, files: list[ReportFile], options: ShapingOptions, because: str | None = None
) -> Results:
    """Yield each report as one iteration, with the warning that says why, or its error."""
    return _with_warning(read(files, replace(options, iteration=WHOLE)), WHOLE, because)


def _alike(read: Read, first: Results, options: ShapingOptions, before: set[str | None]) -> Results:
    """Yield as `read_alike` does, of reports whose own iterations may differ in kind."""
    named: list[ReportFile] = []
    with _PendingReports() as pending:
        with closing(first) as results:
            for file, result in results:
                if isinstance(result, RankscopeError):
                    yield file, result
                elif result.taken is None:
                    named.append(file)
                    yield file, result
                else:
                    pending.add(file, result)
        if before or named:
            yield from _reconcile_unnamed(read, named, pending, options, stored=bool(before))
        elif pending.taken == {AUTO} and not pending.alike():
            yield from read_captures(read, pending.files, options)
        elif len(pending.taken) < 2:
            yield from pending.rows()
        else:
            yield from _in_common(read, pending, options)


def _in_common(read: Read, pending: _PendingReports, options: ShapingOptions) -> Results:
    """Yield the steps if all reports have them, else each capture as one iteration."""
    with _PendingReports() as steps:
        if pending.alike() and _all_steps(read, pending.other_than(AUTO), options, steps):
            yield from pending.rows(AUTO)
            yield from steps.rows()
            return
    yield from pending.rows(WHOLE)
    others = pending.other_than(WHOLE)
    yield from read_captures(read, others, options)


def _reconcile_unnamed(
    read: Read,
    named: list[ReportFile],
    pending: _PendingReports,
    options: ShapingOptions,
    stored: bool,
) -> Results:
    """Yield steps for all, if all have them; else errors of the reports without names.

    If these are at least as many as the others, each capture is one iteration, unless the database
    has `stored` ranks already, whose iterations stay.
    """
    if not pending.files:
        return
    count = len(pending.files)
    lacking = (
        f"{counted(count, 'report')} ({and_more([each.path.name for each in pending.files], 1)}) "
        f"{agreeing(count, 'has', 'have')} no ranges named like iterations, though others do"
    )
    if not stored:
        others = [*named, *pending.other_than(AUTO)]
        with _PendingReports() as steps:
            if _all_steps(read, others, options, steps):
                yield from pending.rows(AUTO, lacking)
                yield from steps.rows(because=lacking)
                return
        if len(named) <= max(count, 1):
            because = f"{lacking}, and steps are not certain on every rank: {OTHERWISE}"
            yield from read_captures(read, [*named, *pending.files], options, because)
            return
    for file in pending.files:
        unlike = NoIterations if stored else UnlikeOthers
        lacks = "has no ranges named like iterations, though other reports do"
        remedy = (
            "--iteration whole takes each capture as one iteration; or "
            f"{advice(Record.STEPS, recorder_of([file.kind]))}"
        )
        if file.path in pending.cut:
            lacks = "ends amid its events, before its first iteration does"
            remedy = "was it still being written, or cut while copying? Copy it again"
        skip = "rankscope ingest --on-error skip leaves such reports out"
        yield file, unlike(f"{file.path}: {lacks}", hint=f"{skip}; {remedy}")


def _all_steps(
    read: Read, files: list[ReportFile], options: ShapingOptions, into: _PendingReports
) -> bool:
    """Whether all reports have steps of about one length; their rows go into `into`."""
    with closing(read(files, replace(options, iteration=AUTO))) as results:
        for file, result in results:
            if isinstance(result, RankscopeError) or result.taken != AUTO:
                return False
            into.add(file, result)
    return into.alike()


def _with_warning(results: Results, taken: str | None, because: str | None = None) -> Results:
    """Yield results with the warning about iterations that were chosen by default."""
    with closing(results):
        for file, result in results:
            if isinstance(result, RankscopeError):
                yield file, result
            else:
                yield file, _warned(result, taken, because)


def _warned(rows: ReportRows, taken: str | None, because: str | None = None) -> ReportRows:
    ranks = tuple(part.rank.identity.rank for part in rows.ranks)
    if taken is None:
        return rows
    if taken == AUTO:
        steps = [
            RunWarning(each.code, f"{each.message}; {because or TAKEN[AUTO]}", each.ranks)
            if each.code == "steps-found"
            else each
            for each in rows.problems
        ]
        return replace(rows, problems=tuple(steps))
    text = TAKEN.get(taken) or (
        f"no range is named like an iteration: --iteration '{taken}' was taken; steps end with "
        "these ranges, and where they begin is unknown: load includes all that the host does "
        "between them and forward; another REGEX, auto (detected steps) or whole (each capture is "
        "one iteration) chooses otherwise"
    )
    if because is not None:
        text = f"each capture is one iteration (--iteration whole): {because}"
    code = "capture-whole" if taken == WHOLE else ENDS_ALONE
    return replace(rows, problems=(*rows.problems, RunWarning(code, text, ranks)))


def _usual_length(measures: pl.DataFrame) -> float:
    """The median length of a rank's steps (ns): on the device, where it is known.

    A host may launch several steps ahead, and wait in others; the devices of all ranks meet.
    """
    medians = measures.group_by("clock").agg(pl.col("iteration_ns").median())
    by_clock = dict(medians.iter_rows())
    return float(by_clock.get("gpu") or by_clock["host"])


class _PendingReports:
    """Reports whose rows wait until all reports are read."""

    def __init__(self) -> None:
        self.files: list[ReportFile] = []
        self.taken: set[str | None] = set()
        self.cut: set[Path] = set()  # reports that end amid their events
        self._kinds: list[str | None] = []
        self._places: list[int] = []
        self._steps: list[float] = []  # median length of the detected steps of a rank, ns
        self._store = tempfile.SpooledTemporaryFile(HELD_BYTES)  # noqa: SIM115

    def __enter__(self) -> _PendingReports:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def add(self, file: ReportFile, rows: ReportRows) -> None:
        """Keep the rows of a report."""
        self.files.append(file)
        self.taken.add(rows.taken)
        if any(each.code == "report-cut" for each in rows.problems):
            self.cut.add(file.path)
        self._kinds.append(rows.taken)
        self._places.append(self._store.tell())
        if rows.taken == AUTO:
            self._steps += (_usual_length(part.measures) for part in rows.ranks)
        pickle.dump(rows, self._store, pickle.HIGHEST_PROTOCOL)

    def alike(self) -> bool:
        """Whether the detected steps of all ranks last about equally long: they train together."""
        return max(self._steps, default=0.0) <= ALIKE * min(self._steps, default=0.0)

    def other_than(self, kind: str) -> list[ReportFile]:
        """The reports whose iterations are of another kind."""
        return [file for file, own in zip(self.files, self._kinds, strict=True) if own != kind]

    def rows(
        self, kind: str | None = None, because: str | None = None
    ) -> Iterator[tuple[ReportFile, ReportRows]]:
        """Yield the reports (of a kind) with their rows and the warning that says their kind."""
        for file, own, place in zip(self.files, self._kinds, self._places, strict=True):
            if kind in (None, own):
                self._store.seek(place)
                rows: ReportRows = pickle.load(self._store)
                yield file, _warned(rows, rows.taken, because) if own else rows
