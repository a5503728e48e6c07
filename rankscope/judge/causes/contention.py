"""Cause: more of a kernel than usual overlaps collectives, which share the device with it."""

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector
from rankscope.judge.causes.kernels import kernel_findings, taking_longer
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding


def _findings(context: CauseContext) -> list[Finding]:
    return kernel_findings(context, CauseKind.CONTENTION)


def _sentence(finding: Finding) -> str:
    return f"{taking_longer(finding)}, because more of it than usual overlaps collectives"


DETECTOR = Detector(
    kind=CauseKind.CONTENTION,
    findings=_findings,
    sentence=_sentence,
    kinds=("kernel",),
    remedy="look at which collectives run beside these kernels on this rank only; compare a run "
    "with fewer channels for collectives (NCCL_MAX_NCHANNELS)",
)
