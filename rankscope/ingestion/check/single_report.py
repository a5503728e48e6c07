"""One report → what it can answer, and the warnings that need no other report."""

from collections.abc import Iterator

import polars as pl
from msgspec import Struct

from rankscope import errors
from rankscope.errors import NoIterations, RankscopeError
from rankscope.ingestion.check.remedies import launcher_of, remedy, with_remedy
from rankscope.judge.causes.detector import Detector
from rankscope.judge.causes.host import TABLE as HOST_TABLE
from rankscope.judge.causes.registry import DETECTORS
from rankscope.model.kinds import CauseKind
from rankscope.model.options import WHOLE
from rankscope.model.reports import (
    Abilities,
    CauseAbility,
    CheckedReport,
    CheckWarning,
    RankRows,
    ReportFile,
    ReportRows,
)
from rankscope.sources.recorders import Record, Recorder, advice, recorder_of
from rankscope.util.wording import counted

CODES = {
    errors.NoIterations: "no-iterations",
    errors.UnlikeOthers: "no-iterations",
    errors.UnknownRank: "rank-unknown",
    errors.RankConflict: "rank-conflict",
    errors.UsageError: "rank-unknown",  # of --rank-pattern, the only one that a report can cause
    errors.ToolError: "nsys-failed",
}
"""Errors that leave a report without rows → warning codes."""

FEW_ITERATIONS = 5
"""Fewer complete iterations than this rarely show who is slow beyond chance."""

OWN_HINTS = ("unreadable", "nsys-failed", "no-iterations", "rank-unknown", "rank-conflict")
"""Codes whose remedy is the error's hint, which knows the file, if it has one."""

LIKE_DAMAGE = ("launches-missing", "records-missing")
"""Codes of what a damaged export lacks; the profiler may have lost it as well."""


class Examined(Struct, frozen=True):
    """The rows of a report; without iterations, the error and the rows of the whole capture."""

    rows: ReportRows
    unmarked: NoIterations | None

    @property
    def has_steps(self) -> bool:
        """Whether it has iterations, and not only the whole capture as one."""
        return self.unmarked is None and all(
            part.rank.convention != WHOLE for part in self.rows.ranks
        )


def unreadable(file: ReportFile, error: RankscopeError) -> CheckedReport:
    """A report that cannot be read, with the reason."""
    code = CODES.get(type(error), "unreadable")
    hint = error.hint if code in OWN_HINTS else None
    if hint and code == "rank-unknown" and recorder_of([file.kind]) is Recorder.NSYS:
        hint = f"{hint}; rankscope capture writes a report for each rank, named by it"
    problem = with_remedy(code, _without_path(error, file), hint=hint, fatal=True)
    return CheckedReport(file.path, file.kind, (), 0, Abilities(), (problem,))


def checked(examined: Examined) -> CheckedReport:
    """The answers that one report allows, and the warnings about it alone."""
    rows, marked = examined.rows, examined.unmarked is None
    has_collectives = all(not part.collectives.is_empty() for part in rows.ranks)
    return CheckedReport(
        path=rows.file.path,
        kind=rows.file.kind,
        ranks=tuple(sorted(part.rank.identity.rank for part in rows.ranks)),
        iterations=_complete(rows) if marked else 0,
        can=Abilities(
            iterations=examined.has_steps,
            phases=marked and all(code != "no-phases" for code, _ in _noted(rows)),
            gpu=all(part.rank.has_device for part in rows.ranks),
            collectives=has_collectives,
            clocks=has_collectives and rows.facts.utc_start_ns is not None,
        ),
        problems=tuple(_problems(examined)),
        causes=causes(rows),
        work_known=all(part.rank.work_known for part in rows.ranks),
    )


def _problems(examined: Examined) -> Iterator[CheckWarning]:
    rows, unmarked = examined.rows, examined.unmarked
    launcher = launcher_of(rows.file, rows.facts)
    if unmarked is not None:
        message = _without_path(unmarked, rows.file)
        yield with_remedy("no-iterations", message, hint=unmarked.hint, fatal=True)
    noted = [each for each in _noted(rows) if unmarked is None or each[0] != "no-phases"]
    codes = {code for code, _ in noted}
    for code, message in noted:
        hint = None
        if code in LIKE_DAMAGE and "rows-broken" in codes:
            again = remedy("rows-broken", launcher)
            hint = f"{again}; if they are missing there as well, {remedy(code, launcher)}"
        yield with_remedy(code, message, launcher, hint=hint)
    # those of a rank's process: helper processes do not count
    pids = {None, *(part.rank.identity.pid for part in rows.ranks)}
    if lost := sorted({loss.text for loss in rows.facts.losses if loss.pid in pids}):
        yield with_remedy("events-lost", f"nsys says: {' '.join(lost)}", launcher)
    yield from _device_problems(rows, unmarked is None, launcher)
    if examined.has_steps and _complete(rows) < FEW_ITERATIONS:
        yield with_remedy(
            "few-iterations",
            f"holds {counted(_complete(rows), 'complete iteration')}: too few to show a pattern",
            launcher,
        )
    if rows.facts.utc_start_ns is None:
        yield with_remedy("no-utc", "does not contain its start time in UTC", launcher)


def _device_problems(rows: ReportRows, marked: bool, launcher: str) -> Iterator[CheckWarning]:
    if all(part.rank.has_device for part in rows.ranks):
        lost = any(code == "records-missing" for code, _ in _noted(rows))
        if marked and not lost and not all(part.rank.clock_gpu for part in rows.ranks):
            yield with_remedy(
                "gpu-sparse",
                "in more than 10 % of the iterations no GPU work belongs to a phase; phases are "
                "timed on the host clock",
                launcher,
            )
    elif all(code != "waits-hidden" for code, _ in _noted(rows)):
        yield with_remedy(
            "gpu-missing", "contains no GPU work; phases are timed on the host clock", launcher
        )


def _noted(rows: ReportRows) -> list[tuple[str, str]]:
    """Codes and messages of the stages' warnings, each once."""
    problems = [*rows.problems, *(problem for part in rows.ranks for problem in part.problems)]
    return list(dict.fromkeys((problem.code, problem.message) for problem in problems))


def _complete(rows: ReportRows) -> int:
    """The number of complete iterations, of the rank with the fewest."""
    return min(int(part.iterations["complete"].sum()) for part in rows.ranks)


def _without_path(error: RankscopeError, file: ReportFile) -> str:
    """The message without the path, which the table shows."""
    return error.message.removeprefix(f"{file.path}: ")


def causes(rows: ReportRows) -> tuple[CauseAbility, ...]:
    """Every cause in the order of `CauseKind`: whether all ranks of the report can show it."""
    detectors = {each.kind: each for each in DETECTORS}
    recorder = recorder_of([rows.file.kind])
    abilities = []
    for kind in CauseKind:
        if kind is not CauseKind.UNEXPLAINED:
            told = all(_tells(detectors[kind], part) for part in rows.ranks)
            capture = None if told else advice(_needed(detectors[kind], recorder), recorder)
            abilities.append(CauseAbility(kind.value, told, capture))
    return tuple(abilities)


def _needed(detector: Detector, recorder: Recorder) -> Record:
    """The missing recording; the PyTorch profiler never records states of host threads."""
    only_host = detector.tables == (HOST_TABLE,)
    return Record.HOST if only_host and recorder is Recorder.PYTORCH else detector.capture


def _tells(detector: Detector, part: RankRows) -> bool:
    """Whether a rank has the tables of a detector, and knows the states that it looks at."""
    tables = {"activities": part.activities, "host_states": part.host_states}

    def has(name: str) -> bool:
        return name in tables and not tables[name].is_empty()

    known = all(map(has, detector.tables)) or any(map(has, detector.alternatives))
    recorded = part.rank.has_device and detector.capture is Record.DEVICE
    if known and detector.kinds and not recorded:  # a device that was recorded lacks none of them
        kinds = [str(kind) for kind in detector.kinds]
        known = not part.activities.filter(pl.col("kind").is_in(kinds)).is_empty()
    if known and detector.states:
        states = [str(state) for state in detector.states]
        known = not part.host_states.filter(pl.col("state").is_in(states)).is_empty()
    return known
