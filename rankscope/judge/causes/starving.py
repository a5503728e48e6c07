"""Cause: the device idles outside the load phase, because the host launches late."""

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector
from rankscope.model.kinds import CauseKind, Phase
from rankscope.model.results import Finding
from rankscope.util.wording import ms


def _findings(context: CauseContext) -> list[Finding]:
    if context.phase == Phase.LOAD:
        return []
    return context.findings(CauseKind.STARVED, context.large(("idle",)))


def _sentence(finding: Finding) -> str:
    return f"the device idles {ms(finding.excess_ns)} longer, because the host launches late"


DETECTOR = Detector(
    kind=CauseKind.STARVED,
    findings=_findings,
    sentence=_sentence,
    kinds=("idle",),
    remedy="look at the rank's host threads between the launches: the program's own work, "
    "synchronising calls, other load on the cores",
)
