"""The documents about reports: those of `ingest` and `check`."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType

from rankscope.compare.comparison import Comparison
from rankscope.model import reports
from rankscope.output.documents.common import Answer, run_of, struct_of
from rankscope.util.meaning import says


class Ingested(Struct, kw_only=True):
    """What ingest did with one report."""

    path: Annotated[str, says("the file")]
    kind: Annotated[str, says("its format")]
    ranks: Annotated[tuple[int, ...], says("its ranks")]
    rank_evidence: Annotated[str | None, says("what says which rank it is")]
    iterations: Annotated[int, says("iterations of the rank that has most")]
    bytes: Annotated[int, says("its size")]
    status: Annotated[Literal["read", "unchanged", "skipped"], says("what ingest did with it")]
    reason: Annotated[str | None, says("why it was skipped")]


class Ingest(Answer, kw_only=True, tag="rankscope/ingest/1"):
    """The reports of a run in one database."""

    reports: Annotated[tuple[Ingested, ...], says("the reports")]
    seconds: Annotated[float, says("duration of the command")]
    events: Annotated[int, says("events that were read")]


class IngestRuns(Struct, kw_only=True, tag_field="format", tag="rankscope/ingest/1"):
    """The reports of several runs (`--all-runs`), a database each."""

    runs: Annotated[
        tuple[Ingest, ...],
        says("with `--all-runs`, if there are several: this object for each run"),
    ]


class Checked(Struct, kw_only=True):
    """A report, and what it can answer."""

    path: Annotated[str, says("the file")]
    kind: Annotated[str, says("its format")]
    ranks: Annotated[tuple[int, ...], says("its ranks")]
    iterations: Annotated[int, says("its iterations")]
    can: Annotated[reports.Abilities, says("what it can answer")]
    usable: Annotated[bool, says("whether ingest takes it")]
    problems: Annotated[tuple[reports.CheckWarning, ...], says("what is wrong with it")]
    causes: Annotated[
        tuple[reports.CauseAbility, ...], says("which causes can be identified in it")
    ]


class Check(Answer, kw_only=True, tag="rankscope/check/1"):
    """Whether reports are sufficient; with `--db`: the warnings about a run."""

    reports: Annotated[tuple[Checked, ...] | UnsetType, says("the reports; absent with `--db`")] = (
        UNSET
    )
    usable: Annotated[bool, says("whether ingest takes all reports")]


def ingested(outcomes: Sequence[reports.ReportOutcome]) -> tuple[Ingested, ...]:
    """`reports` of `ingest`."""
    return tuple(struct_of(Ingested, each, path=str(each.path)) for each in outcomes)


def ingest(
    db: Path,
    comparison: Comparison,
    outcomes: Sequence[reports.ReportOutcome],
    seconds: float,
    events: int,
) -> Ingest:
    """The document of one ingest."""
    return Ingest(
        run=run_of(db, comparison.facts if comparison.comparable else None),
        warnings=comparison.warnings,
        reports=ingested(outcomes),
        seconds=seconds,
        events=events,
    )


def check(
    checked: Sequence[reports.CheckedReport], problems: Iterable[reports.RunWarning]
) -> Check:
    """The document of `check`; `problems` are those of the reports as warnings."""
    return Check(
        run=None,
        warnings=tuple(problems),
        reports=tuple(struct_of(Checked, report, path=str(report.path)) for report in checked),
        usable=all(report.usable for report in checked),
    )
