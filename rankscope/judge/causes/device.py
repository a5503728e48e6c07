"""Cause: the device runs the same kernels more slowly."""

from msgspec.structs import replace

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.counters import TABLE, device_words
from rankscope.judge.causes.detector import Detector
from rankscope.judge.causes.kernels import kernel_findings, taking_longer
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding


def _findings(context: CauseContext) -> list[Finding]:
    findings = kernel_findings(context, CauseKind.DEVICE_SLOWER)
    detail = device_words(context) if findings else ""
    evidence = ("activities", TABLE) if detail else ("activities",)
    return [replace(each, detail=detail, evidence=evidence) for each in findings]


def _sentence(finding: Finding) -> str:
    detail = f" ({finding.detail})" if finding.detail else ""
    return f"{taking_longer(finding)} for the same work: the device is slow{detail}"


DETECTOR = Detector(
    kind=CauseKind.DEVICE_SLOWER,
    findings=_findings,
    sentence=_sentence,
    kinds=("kernel",),
)
