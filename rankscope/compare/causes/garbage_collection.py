"""Cause: Python collects garbage, as a range around the collection shows."""

from __future__ import annotations

import polars as pl

from rankscope.compare.causes.context import CauseContext
from rankscope.compare.causes.detector import Detector, Precedence
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import ms

RANGE = r"(?i)\bgc\b|gc\.collect|garbage"
"""Names of ranges around a garbage collection."""


def is_garbage_collection() -> pl.Expr:
    """Whether a row of activities is a range around a garbage collection."""
    return (pl.col("kind") == "range") & pl.col("name").str.contains(RANGE)


def _findings(context: CauseContext) -> list[Finding]:
    rows = context.large(("range",)).filter(is_garbage_collection())
    return context.findings(CauseKind.GARBAGE_COLLECTION, rows)


def _sentence(finding: Finding) -> str:
    return f"{ms(finding.excess_ns)} of garbage collection ({sanitized(finding.name)})"


DETECTOR = Detector(
    kind=CauseKind.GARBAGE_COLLECTION,
    findings=_findings,
    sentence=_sentence,
    remedy="collect garbage at the same iteration on all ranks: gc.disable(), and gc.collect() "
    "every few hundred iterations",
    capture="annotate garbage collection with a range, for example by gc.callbacks",
    precedence=Precedence.EXPLANATION,
)
