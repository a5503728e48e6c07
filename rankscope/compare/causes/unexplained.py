"""No cause: what no table of the reports tells, and what to record for it."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rankscope.compare.causes.context import CauseContext
from rankscope.compare.causes.detector import Detector, Precedence
from rankscope.compare.causes.host import (
    CAPTURE,
    TABLE,
    explains,
    host_finding,
    of,
    state_is,
)
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding

OFF_CPU = "off_cpu"
"""Name of unknown time in which the thread was off the CPU, and no call was recorded."""


def _findings(context: CauseContext) -> Iterator[Finding]:
    rows = context.host.filter(state_is(HostState.UNKNOWN))
    excess = float(rows["excess_total_ns"].sum())
    if rows.is_empty() or not explains(context, excess):
        return
    off = float(rows.filter(pl.col("name") == OFF_CPU)["excess_total_ns"].sum())
    detail = (
        "the thread was off the CPU, but its calls were not recorded: --trace=osrt"
        if off * 2 > excess
        else "what the thread did was not recorded: --cpuctxsw=process-tree --sample=process-tree "
        "--trace=osrt"
    )
    yield host_finding(context, CauseKind.UNEXPLAINED, "unknown", excess, detail)


def _sentence(finding: Finding) -> str:
    return f"{of(finding)} unexplained, {finding.detail}"


DETECTOR = Detector(
    kind=CauseKind.UNEXPLAINED,
    findings=_findings,
    sentence=_sentence,
    remedy="record what the host does on this rank, a median one and a fast one",
    tables=(TABLE,),
    capture=CAPTURE,
    precedence=Precedence.REST,
)
