"""Cause: the thread is off the CPU without waiting in a call: others run in its place."""

from collections.abc import Iterator

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.host import (
    explained,
    explained_part,
    host_detector,
    host_finding,
    state_is,
)
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.util.wording import ms


def _findings(context: CauseContext) -> Iterator[Finding]:
    off_cpu = state_is(HostState.OFF_CPU)
    excess = explained(context, off_cpu)
    if excess is None:
        return
    rows = context.host.filter(off_cpu)
    mean_ns = float(rows["excess_total_ns"].sum()) / max(float(rows["excess_count"].sum()), 1.0)
    detail = f"{ms(mean_ns)} at a time"
    yield host_finding(context, CauseKind.PREEMPTED, "preempted", excess, detail)


def _sentence(finding: Finding) -> str:
    return (
        f"off the CPU {explained_part(finding)} without waiting in a call, {finding.detail}: "
        "preempted, throttled, or waiting for pages of a mapped file"
    )


DETECTOR = host_detector(
    kind=CauseKind.PREEMPTED,
    findings=_findings,
    sentence=_sentence,
    states=(HostState.ON_CPU, HostState.OFF_CPU),
)
