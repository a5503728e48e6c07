"""Cause: the thread waits in a call of the operating system."""

from collections.abc import Iterator

import polars as pl
from msgspec.structs import replace

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.host import (
    TABLE,
    allocates,
    explained,
    explained_part,
    host_detector,
    host_finding,
    state_is,
)
from rankscope.judge.levels import HALF
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import size

FILES = "file_accesses"

WAKE_UP_NS = 1_000_000
"""A thread that is woken on a busy CPU waits about a slice of the scheduler for it (ns)."""


def in_calls(context: CauseContext) -> pl.DataFrame:
    """Calls that block: name, excess_total_ns, `off` (the part of it off the CPU), usual_ns, calls.

    The time on the CPU inside of a call belongs to it: copying what a read has waited for.
    """
    rows = context.host.filter(
        state_is(HostState.BLOCKED, HostState.ON_CPU) & (pl.col("name") != "") & ~allocates()
    )
    off = pl.col("excess_total_ns").filter(state_is(HostState.BLOCKED)).sum()
    return (
        rows.group_by("name")
        .agg(
            pl.col("excess_total_ns", "usual_ns").sum(),
            off=off,
            calls=(pl.col("usual_count") + pl.col("excess_count"))
            .filter(state_is(HostState.BLOCKED))
            .sum(),
        )
        .filter((pl.col("off") > 0) & (pl.col("off") >= HALF * pl.col("excess_total_ns")))
    )


def woken_late() -> pl.Expr:
    """Whether the excess of a row of `in_calls` may be the wait for a CPU after the call was over.

    A call ends when the thread runs again. Peers wait in the same call nearly as long.
    """
    excess = pl.col("excess_total_ns")
    usual = excess <= HALF * pl.col("usual_ns")
    return usual & (excess <= WAKE_UP_NS * pl.col("calls"))


def _findings(context: CauseContext) -> Iterator[Finding]:
    calls = in_calls(context).filter(pl.col("excess_total_ns") > 0, ~woken_late())
    calls = calls.sort("excess_total_ns", "name", descending=[True, False])
    waits = state_is(HostState.BLOCKED, HostState.ON_CPU)
    alone = False
    for name in calls["name"]:
        excess = explained(context, waits & (pl.col("name") == name))
        if excess is not None:
            alone = True
            detail = _file(context, name, excess)
            finding = host_finding(context, CauseKind.BLOCKED, name, excess, detail)
            yield replace(finding, evidence=(TABLE, FILES)) if detail else finding
    if alone or calls.height < 2:
        return
    together = explained(context, waits & pl.col("name").is_in(calls["name"].to_list()))
    if together is not None:
        names = ", ".join(sanitized(name) for name in calls["name"].head(3))
        yield host_finding(context, CauseKind.BLOCKED, calls["name"][0], together, names)


def _file(context: CauseContext, call: str, excess_ns: float) -> str:
    """`write (model.pt, 512.0 MB per iteration)`: the file, if its accesses are the larger half."""
    rows = context.table(FILES)
    if rows is None:
        return ""
    if context.phase is not None:
        rows = rows.filter(pl.col("phase") == context.phase)
    slow = context.flagged.select("rank", "iteration")
    used = (
        rows.filter(pl.col("call") == call, pl.col("file") != "")
        .join(slow, on=["rank", "iteration"], how="semi")
        .group_by("file")
        .agg(pl.col("total_ns").sum(), pl.col("bytes").drop_nulls().sum())
        .sort("total_ns", "file", descending=[True, False])
    )
    if used.is_empty() or used["total_ns"][0] < HALF * excess_ns:
        return ""
    moved = used["bytes"][0] / slow.height
    amount = f", {size(round(moved))} per iteration" if moved >= 1 else ""
    return f"{sanitized(call)} ({sanitized(used['file'][0])}{amount})"


def _sentence(finding: Finding) -> str:
    return f"blocked in {finding.detail or sanitized(finding.name)} {explained_part(finding)}"


DETECTOR = host_detector(
    kind=CauseKind.BLOCKED,
    findings=_findings,
    sentence=_sentence,
    states=(HostState.BLOCKED,),
)
