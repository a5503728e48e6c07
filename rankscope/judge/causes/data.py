"""Cause: the rank has more to compute than the others."""

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector
from rankscope.judge.causes.kernels import kernel_findings, taking_longer
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding


def _findings(context: CauseContext) -> list[Finding]:
    return kernel_findings(context, CauseKind.MORE_WORK)


def _sentence(finding: Finding) -> str:
    return f"{taking_longer(finding)} for more work"


DETECTOR = Detector(
    kind=CauseKind.MORE_WORK,
    findings=_findings,
    sentence=_sentence,
    kinds=("kernel",),
    remedy="compare what the ranks are given: batch sizes, sequence lengths, layers, experts",
)
