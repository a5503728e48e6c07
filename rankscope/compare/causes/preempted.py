"""Cause: the thread is off the CPU without waiting for anything: others run in its place."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.compare.causes.context import CauseContext
from rankscope.compare.causes.detector import Detector, Precedence
from rankscope.compare.causes.host import (
    CAPTURE,
    TABLE,
    explained,
    host_finding,
    of,
    state_is,
)
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding


def _findings(context: CauseContext) -> Iterator[Finding]:
    excess = explained(context, state_is(HostState.OFF_CPU))
    if excess is not None:
        yield host_finding(context, CauseKind.PREEMPTED, "preempted", excess)


def _sentence(finding: Finding) -> str:
    return f"off the CPU {of(finding)} without waiting in a call: preempted or throttled"


DETECTOR = Detector(
    kind=CauseKind.PREEMPTED,
    findings=_findings,
    sentence=_sentence,
    remedy="see what else runs on the rank's cores, and which quota it has: taskset -p, "
    "cat /sys/fs/cgroup/cpu.stat; record all processes with --cpuctxsw=system-wide",
    tables=(TABLE,),
    states=(HostState.ON_CPU, HostState.OFF_CPU),
    capture=CAPTURE,
    precedence=Precedence.EXPLANATION,
)
