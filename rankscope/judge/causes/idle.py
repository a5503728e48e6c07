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
    sentence=lambda found: f"the device idles {ms(found.excess_ns)} longer, waiting for data",
    kinds=("idle",),
    remedy="compare storage and CPU load of this rank's host with the others'; give the loader "
    "more workers or a deeper prefetch queue",
)

STARVED = Detector(
    kind=CauseKind.STARVED,
    findings=partial(_findings, cause=CauseKind.STARVED),
    sentence=lambda found: (
        f"the device idles {ms(found.excess_ns)} longer, because the host launches late"
    ),
    kinds=("idle",),
    remedy="look at the rank's host threads between the launches: the program's own work, "
    "synchronising calls, other load on the cores",
)
