"""Causes: the device idles longer, because data come late (in the load phase) or launches do."""

from functools import partial

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector
from rankscope.model.kinds import CauseKind, Phase
from rankscope.model.results import Finding
from rankscope.util.wording import ms


def _findings(context: CauseContext, *, cause: CauseKind) -> list[Finding]:
    own = CauseKind.LOADER if context.phase == Phase.LOAD else CauseKind.STARVED
    return context.findings(cause, context.large(("idle",))) if cause is own else []


LOADER = Detector(
    kind=CauseKind.LOADER,
    findings=partial(_findings, cause=CauseKind.LOADER),
    sentence=lambda finding: f"the device idles {ms(finding.excess_ns)} longer, waiting for data",
    kinds=("idle",),
)

STARVED = Detector(
    kind=CauseKind.STARVED,
    findings=partial(_findings, cause=CauseKind.STARVED),
    sentence=lambda finding: (
        f"the device idles {ms(finding.excess_ns)} longer, because the host launches late"
    ),
    kinds=("idle",),
)
