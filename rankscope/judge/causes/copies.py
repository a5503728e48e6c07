"""Cause: copies between host and device, or memory fills, take longer."""

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding
from rankscope.util.wording import ms


def _findings(context: CauseContext) -> list[Finding]:
    return context.findings(CauseKind.COPIES, context.large(("copy", "set")))


def _sentence(finding: Finding) -> str:
    return f"copies take {ms(finding.excess_ns)} longer"


DETECTOR = Detector(
    kind=CauseKind.COPIES,
    findings=_findings,
    sentence=_sentence,
    kinds=("copy", "set"),
)
