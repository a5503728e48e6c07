"""Causes that rows of `activities` show: copies or a range take longer, or the device idles."""

from functools import partial

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector, Precedence
from rankscope.judge.causes.garbage_collection import is_garbage_collection
from rankscope.model.kinds import CauseKind, Phase
from rankscope.model.results import Finding
from rankscope.sources.recorders import Record
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import ms


def _large(context: CauseContext, *, cause: CauseKind, kinds: tuple[str, ...]) -> list[Finding]:
    """A finding for each large activity of these kinds, except garbage collections."""
    return context.findings(cause, context.large(kinds).filter(~is_garbage_collection()))


def _idle(context: CauseContext, *, cause: CauseKind) -> list[Finding]:
    own = CauseKind.LOADER if context.phase == Phase.LOAD else CauseKind.STARVED
    return _large(context, cause=cause, kinds=("idle",)) if cause is own else []


COPIES = Detector(
    kind=CauseKind.COPIES,
    findings=partial(_large, cause=CauseKind.COPIES, kinds=("copy", "set")),
    sentence=lambda finding: f"copies take {ms(finding.excess_ns)} longer",
    kinds=("copy", "set"),
)

LOADER = Detector(
    kind=CauseKind.LOADER,
    findings=partial(_idle, cause=CauseKind.LOADER),
    sentence=lambda finding: f"the device idles {ms(finding.excess_ns)} longer, waiting for data",
    kinds=("idle",),
)

STARVED = Detector(
    kind=CauseKind.STARVED,
    findings=partial(_idle, cause=CauseKind.STARVED),
    sentence=lambda finding: (
        f"the device idles {ms(finding.excess_ns)} longer, because the host launches late"
    ),
    kinds=("idle",),
)

RANGE = Detector(
    kind=CauseKind.RANGE,
    findings=partial(_large, cause=CauseKind.RANGE, kinds=("range",)),
    sentence=lambda finding: (
        f"range {sanitized(finding.name)} takes {ms(finding.excess_ns)} longer"
    ),
    capture=Record.PARTS,
    precedence=Precedence.SURROUNDING,
)
