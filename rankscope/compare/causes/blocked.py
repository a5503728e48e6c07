"""Cause: the thread waits in a call of the operating system."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rankscope.compare.causes.context import CauseContext
from rankscope.compare.causes.detector import Detector, Precedence
from rankscope.compare.causes.host import (
    CAPTURE,
    TABLE,
    allocates,
    explains,
    host_finding,
    of,
    state_is,
)
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.util.sanitize import sanitized

LARGER_HALF = 0.5
"""A call blocks if the thread is off the CPU for this share of its excess in the call."""


def in_calls(context: CauseContext) -> pl.DataFrame:
    """name, excess_total_ns and `off` (the part of it off the CPU) of calls that block.

    The time on the CPU inside of a call belongs to it: copying what a read has waited for.
    """
    rows = context.host.filter(
        state_is(HostState.BLOCKED, HostState.ON_CPU) & (pl.col("name") != "") & ~allocates()
    )
    off = pl.col("excess_total_ns").filter(state_is(HostState.BLOCKED)).sum()
    return (
        rows.group_by("name")
        .agg(pl.col("excess_total_ns").sum(), off=off)
        .filter((pl.col("off") > 0) & (pl.col("off") >= LARGER_HALF * pl.col("excess_total_ns")))
    )


def _findings(context: CauseContext) -> Iterator[Finding]:
    calls = in_calls(context).sort("excess_total_ns", "name", descending=[True, False])
    alone = False
    for name, excess in calls.select("name", "excess_total_ns").iter_rows():
        if explains(context, excess):
            alone = True
            yield host_finding(context, CauseKind.BLOCKED, name, excess)
    several = calls.filter(pl.col("excess_total_ns") > 0)
    together = float(several["excess_total_ns"].sum())
    if not alone and several.height > 1 and explains(context, together):
        names = [sanitized(name) for name in several["name"].head(3)]
        yield host_finding(
            context, CauseKind.BLOCKED, several["name"][0], together, ", ".join(names)
        )


def _sentence(finding: Finding) -> str:
    return f"blocked in {finding.detail or sanitized(finding.name)} {of(finding)}"


DETECTOR = Detector(
    kind=CauseKind.BLOCKED,
    findings=_findings,
    sentence=_sentence,
    remedy="take the call out of the step, or do it on another thread: write checkpoints in the "
    "background, prefetch data, look for the holder of a lock",
    tables=(TABLE,),
    capture=CAPTURE,
    precedence=Precedence.EXPLANATION,
)
