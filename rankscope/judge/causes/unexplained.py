"""No cause: the excess that no table of the reports explains, and how to record more."""

from collections.abc import Iterator

import polars as pl

from rankscope.judge.causes.blocked import in_calls, woken_late
from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector, Precedence
from rankscope.judge.causes.host import TABLE, explained, explained_part, host_finding, state_is
from rankscope.measure.host_states import OFF_CPU
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.sources.recorders import Record


def _findings(context: CauseContext) -> Iterator[Finding]:
    unknown = state_is(HostState.UNKNOWN)
    excess = explained(context, unknown)
    if excess is not None:
        off = context.host_excess(unknown & (pl.col("name") == OFF_CPU)).slow
        detail = (
            "it was off the CPU; record its calls with --trace=osrt"
            if off * 2 > excess
            else "record it with --cpuctxsw=process-tree --sample=process-tree --trace=osrt"
        )
        yield host_finding(context, CauseKind.UNEXPLAINED, "unknown", excess, detail)
    calls = in_calls(context).filter(woken_late())["name"].to_list()
    excess = explained(context, state_is(HostState.BLOCKED) & pl.col("name").is_in(calls))
    if excess is not None:
        detail = "it waits in calls as its peers do, and may get a CPU later; record all "
        detail += "processes with --cpuctxsw=system-wide"
        yield host_finding(context, CauseKind.UNEXPLAINED, "woken late", excess, detail)


def _sentence(finding: Finding) -> str:
    return f"why the thread takes {explained_part(finding)} is unknown: {finding.detail}"


DETECTOR = Detector(
    kind=CauseKind.UNEXPLAINED,
    findings=_findings,
    sentence=_sentence,
    tables=(TABLE,),
    capture=Record.HOST,
    precedence=Precedence.REST,
)
