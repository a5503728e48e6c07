"""Cause: the profiler itself takes the time; without it the rank may not be slow."""

from collections.abc import Iterator

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector, Precedence
from rankscope.judge.causes.host import (
    TABLE,
    explained,
    explained_part,
    host_finding,
    largest,
    state_is,
)
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.sources.recorders import Record
from rankscope.util.sanitize import sanitized


def _findings(context: CauseContext) -> Iterator[Finding]:
    own = state_is(HostState.PROFILER)
    excess = explained(context, own)
    if excess is not None:
        name = largest(context.host.filter(own)) or "profiler"
        yield host_finding(context, CauseKind.PROFILER, name, excess)


def _sentence(finding: Finding) -> str:
    return f"the profiler itself took {explained_part(finding)} ({sanitized(finding.name)})"


DETECTOR = Detector(
    kind=CauseKind.PROFILER,
    findings=_findings,
    sentence=_sentence,
    tables=(TABLE,),
    capture=Record.HOST,
    precedence=Precedence.EXPLANATION,
)
