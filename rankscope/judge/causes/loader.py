"""Cause: the device idles in the load phase, because data come late."""

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector
from rankscope.model.kinds import CauseKind, Phase
from rankscope.model.results import Finding
from rankscope.util.wording import ms


def _findings(context: CauseContext) -> list[Finding]:
    if context.phase != Phase.LOAD:
        return []
    return context.findings(CauseKind.LOADER, context.large(("idle",)))


def _sentence(finding: Finding) -> str:
    return f"the device idles {ms(finding.excess_ns)} longer, waiting for data"


DETECTOR = Detector(
    kind=CauseKind.LOADER,
    findings=_findings,
    sentence=_sentence,
    kinds=("idle",),
    remedy="compare storage and CPU load of this rank's host with the others'; give the loader "
    "more workers or a deeper prefetch queue",
)
