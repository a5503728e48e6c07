"""Cause: the profiler itself takes the time; without it the rank may not be slow."""

from collections.abc import Iterator

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.host import (
    explained,
    explained_part,
    host_detector,
    host_finding,
    largest,
    state_is,
)
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.util.sanitize import sanitized


def _findings(context: CauseContext) -> Iterator[Finding]:
    own = state_is(HostState.PROFILER)
    excess = explained(context, own)
    if excess is not None:
        name = largest(context.host.filter(own)) or "profiler"
        yield host_finding(context, CauseKind.PROFILER, name, excess)


def _sentence(finding: Finding) -> str:
    return f"the profiler itself took {explained_part(finding)} ({sanitized(finding.name)})"


DETECTOR = host_detector(
    kind=CauseKind.PROFILER,
    findings=_findings,
    sentence=_sentence,
)
