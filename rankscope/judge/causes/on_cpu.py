"""Cause: the thread computes longer, by the functions of its samples."""

import math
import re
from collections.abc import Iterator

import polars as pl

from rankscope.judge.causes.blocked import in_calls
from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.host import (
    allocates,
    explained,
    explained_part,
    host_detector,
    host_finding,
    largest,
    state_is,
)
from rankscope.model.host_events import COLLECTING
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import percent

FILLS = r"^_*mem(set|cpy|move|pcpy)"
"""Functions that touch memory first, where it is new: the samples do not show the page faults."""


def _findings(context: CauseContext) -> Iterator[Finding]:
    own = (
        state_is(HostState.ON_CPU)
        & ~allocates()
        & (pl.col("name") != COLLECTING)
        & ~pl.col("name").is_in(in_calls(context)["name"].to_list())
    )
    excess = explained(context, own)
    if excess is None:
        return
    rows = context.host.filter(own)
    name = largest(rows)
    whole = float(rows["excess_total_ns"].sum())
    part = float(rows.filter(pl.col("name") == name)["excess_total_ns"].sum()) / max(whole, 1)
    samples = float(rows.filter(pl.col("name") != "")["excess_count"].sum())
    detail = ""
    if name and part > 0:
        part = min(part, 1.0)
        error = math.sqrt(part * (1 - part) / max(samples, 1))
        detail = f"{percent(part)} ± {percent(error)} of it in {sanitized(name)}"
        if re.search(FILLS, name):
            detail += "; in new memory, page faults are part of it"
    yield host_finding(context, CauseKind.ON_CPU, name or "on the CPU", excess, detail)


def _sentence(finding: Finding) -> str:
    where = finding.detail or "no samples say in which function"
    return f"computing {explained_part(finding)} on the CPU, {where}"


DETECTOR = host_detector(
    kind=CauseKind.ON_CPU,
    findings=_findings,
    sentence=_sentence,
    states=(HostState.ON_CPU,),
)
