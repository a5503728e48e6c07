"""Cause: a range of the program takes longer, whatever happens inside it."""

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector, Precedence
from rankscope.judge.causes.garbage_collection import is_garbage_collection
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding
from rankscope.sources.recorders import Record
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import ms


def _findings(context: CauseContext) -> list[Finding]:
    rows = context.large(("range",)).filter(~is_garbage_collection())
    return context.findings(CauseKind.RANGE, rows)


def _sentence(finding: Finding) -> str:
    return f"range {sanitized(finding.name)} takes {ms(finding.excess_ns)} longer"


DETECTOR = Detector(
    kind=CauseKind.RANGE,
    findings=_findings,
    sentence=_sentence,
    capture=Record.PARTS,
    precedence=Precedence.SURROUNDING,
)
