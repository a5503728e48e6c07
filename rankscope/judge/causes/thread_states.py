"""Causes that a state of the training thread shows: the profiler, memory, or other threads."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector, Precedence
from rankscope.judge.causes.host import (
    TABLE,
    allocates,
    explained,
    explained_part,
    host_finding,
    largest,
    state_is,
)
from rankscope.measure.host_states import IN_KERNEL
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.sources.recorders import Record
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import ms


def _largest(context: CauseContext, *, cause: CauseKind, chosen: pl.Expr) -> Iterator[Finding]:
    """A finding, named after the function or call with most of the excess."""
    excess = explained(context, chosen)
    if excess is not None:
        name = largest(context.host.filter(chosen)) or str(cause)
        yield host_finding(context, cause, name, excess)


def _preempted(context: CauseContext) -> Iterator[Finding]:
    off_cpu = state_is(HostState.OFF_CPU)
    excess = explained(context, off_cpu)
    if excess is not None:
        rows = context.host.filter(off_cpu)
        times = max(float(rows["excess_count"].sum()), 1.0)
        detail = f"{ms(float(rows['excess_total_ns'].sum()) / times)} at a time"
        yield host_finding(context, CauseKind.PREEMPTED, "preempted", excess, detail)


def _allocation(finding: Finding) -> str:
    if finding.name == IN_KERNEL:
        return (
            f"in the kernel {explained_part(finding)} outside of calls, as page faults of new "
            "memory are, and mmap and munmap inside of malloc"
        )
    return f"allocating or freeing memory {explained_part(finding)} ({sanitized(finding.name)})"


PROFILER = Detector(
    kind=CauseKind.PROFILER,
    findings=partial(_largest, cause=CauseKind.PROFILER, chosen=state_is(HostState.PROFILER)),
    sentence=lambda finding: (
        f"the profiler itself took {explained_part(finding)} ({sanitized(finding.name)})"
    ),
    tables=(TABLE,),
    capture=Record.HOST,
    precedence=Precedence.EXPLANATION,
)

ALLOCATOR = Detector(
    kind=CauseKind.ALLOCATOR,
    findings=partial(_largest, cause=CauseKind.ALLOCATOR, chosen=allocates()),
    sentence=_allocation,
    tables=(TABLE,),
    capture=Record.HOST,
    precedence=Precedence.EXPLANATION,
)

PREEMPTED = Detector(
    kind=CauseKind.PREEMPTED,
    findings=_preempted,
    sentence=lambda finding: (
        f"off the CPU {explained_part(finding)} without waiting in a call, {finding.detail}: "
        "preempted, throttled, or waiting for pages of a mapped file"
    ),
    tables=(TABLE,),
    states=(HostState.ON_CPU, HostState.OFF_CPU),
    capture=Record.HOST,
    precedence=Precedence.EXPLANATION,
)
