"""Cause: Python collects garbage, as a range around the collection or samples of the CPU show."""

import polars as pl

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector, Precedence
from rankscope.judge.causes.host import TABLE, explained, host_finding
from rankscope.model.host_events import COLLECTING
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding
from rankscope.sources.recorders import Record
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import ms

RANGE = r"(?i)\bgc\b|gc\.collect|garbage"
"""Names of ranges around a garbage collection."""


def is_garbage_collection() -> pl.Expr:
    """Whether a row of activities is a range around a garbage collection."""
    return (pl.col("kind") == "range") & pl.col("name").str.contains(RANGE)


def _findings(context: CauseContext) -> list[Finding]:
    rows = context.large(("range",)).filter(is_garbage_collection())
    findings = context.findings(CauseKind.GARBAGE_COLLECTION, rows)
    return findings or _sampled(context)


def _sampled(context: CauseContext) -> list[Finding]:
    """Garbage collection in samples of the CPU, where no range shows it."""
    excess = explained(context, pl.col("name") == COLLECTING)
    if excess is None:
        return []
    return [host_finding(context, CauseKind.GARBAGE_COLLECTION, "samples", excess)]


def _sentence(finding: Finding) -> str:
    return f"{ms(finding.excess_ns)} of garbage collection ({sanitized(finding.name)})"


DETECTOR = Detector(
    kind=CauseKind.GARBAGE_COLLECTION,
    findings=_findings,
    sentence=_sentence,
    alternatives=(TABLE,),
    capture=Record.GARBAGE,
    precedence=Precedence.EXPLANATION,
)
