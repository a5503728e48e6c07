"""Cause: the thread gets or returns memory."""

from collections.abc import Iterator

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.host import (
    allocates,
    explained,
    explained_part,
    host_detector,
    host_finding,
    largest,
)
from rankscope.measure.host_states import IN_KERNEL
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding
from rankscope.util.sanitize import sanitized


def _findings(context: CauseContext) -> Iterator[Finding]:
    excess = explained(context, allocates())
    if excess is not None:
        name = largest(context.host.filter(allocates()))
        yield host_finding(context, CauseKind.ALLOCATOR, name, excess)


def _sentence(finding: Finding) -> str:
    if finding.name == IN_KERNEL:
        return (
            f"in the kernel {explained_part(finding)} outside of calls, as page faults of new "
            "memory are, and mmap and munmap inside of malloc"
        )
    return f"allocating or freeing memory {explained_part(finding)} ({sanitized(finding.name)})"


DETECTOR = host_detector(
    kind=CauseKind.ALLOCATOR,
    findings=_findings,
    sentence=_sentence,
)
