"""Cause: the thread is inside CUDA calls that its peers do not make, or that take longer."""

from collections.abc import Iterator

import polars as pl

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.host import (
    allocates,
    explained,
    explained_part,
    host_detector,
    host_finding,
    state_is,
)
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.sources.conventions.api_calls import SYNCHRONISING
from rankscope.sources.recorders import Record
from rankscope.util.sanitize import sanitized

MORE_CALLS = 0.5
"""A call that waits for the device is a cause if the rank makes more of them, by this share.

Else the host only waits longer because the device is late.
"""


def _findings(context: CauseContext) -> Iterator[Finding]:
    waits = pl.col("name").str.contains(SYNCHRONISING)
    more = pl.col("excess_count") > MORE_CALLS * pl.col("usual_count")
    rows = context.host.filter(
        state_is(HostState.CUDA_CALL) & (pl.col("name") != "") & ~allocates() & (~waits | more)
    )
    for name in rows["name"]:
        excess = explained(context, state_is(HostState.CUDA_CALL) & (pl.col("name") == name))
        if excess is not None:
            yield host_finding(context, CauseKind.CUDA_CALL, name, excess)


def _sentence(finding: Finding) -> str:
    return f"in the CUDA call {sanitized(finding.name)} {explained_part(finding)}"


DETECTOR = host_detector(
    kind=CauseKind.CUDA_CALL,
    findings=_findings,
    sentence=_sentence,
    states=(HostState.CUDA_CALL,),
    capture=Record.DEVICE,
)
