"""Kernels that take longer: because of the device, of more work, or of contention."""

from functools import partial

import polars as pl

from rankscope.judge.causes.context import LEAST_SHARE, CauseContext
from rankscope.judge.causes.detector import Detector
from rankscope.judge.causes.more_work import SAME, at_usual_speed
from rankscope.judge.levels import HALF
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import FACTOR, ms, percent

GIVEN = 0.33
"""More work is the cause where it explains this share of a kernel's excess if time is proportional
to work. A third, because the time of attention grows with the square of the length."""

NOTABLE = 0.05
"""Kernels count if their excess is at least this share of the largest of the cause."""


def kernels(context: CauseContext) -> pl.DataFrame:
    """ACTIVITY_EXCESS of the kernels with `cause`, a CauseKind.

    `more_work`: more launches or blocks than usual explain a third of the excess.
    `contention`: else, more of it than usual overlaps collectives, and the same launches at the
    same overlap do not explain the larger half; or only those beside collectives do.
    `device_slower`: else. See METHOD.md#causes.
    """
    rows = context.activities.filter(pl.col("kind") == "kernel")
    excess, usual = pl.col("excess_total_ns"), pl.col("usual_ns")
    ratio = pl.max_horizontal(
        pl.when(pl.col(f"usual_{amount}") > 0).then(
            1 + pl.col(f"excess_{amount}") / pl.col(f"usual_{amount}")
        )
        for amount in ("count", "size")
    )
    more = at_usual_speed(usual, ratio, usual + excess) - usual

    def slower(by: str) -> pl.Expr:
        return pl.col("total_ns") * (1 - 1 / (1 + pl.col(by)))

    contended = (pl.col("more_overlap") > SAME) & (slower("slowdown") < HALF * excess)
    as_fast = pl.col("clear") < pl.min_horizontal(SAME, HALF * pl.col("beside"))
    contended |= (slower("beside") >= HALF * excess) & as_fast
    return rows.join(context.slowdowns, on="name", how="left").with_columns(
        cause=pl.when((usual == 0) | ((more > SAME * usual) & (more >= GIVEN * excess)))
        .then(pl.lit(str(CauseKind.MORE_WORK)))
        .when(contended)
        .then(pl.lit(str(CauseKind.CONTENTION)))
        .otherwise(pl.lit(str(CauseKind.DEVICE_SLOWER)))
    )


def kernel_findings(context: CauseContext, cause: CauseKind) -> list[Finding]:
    """Findings about the kernels of a cause that take notably longer.

    Each kernel is a finding if some are large; if none is, all small ones together are one.
    """
    rows = kernels(context).filter(cause=str(cause))
    excess = pl.col("excess_total_ns")
    notable = rows.filter((excess > 0) & (excess >= NOTABLE * excess.max()))
    if not notable.filter(excess >= LEAST_SHARE * context.total_ns).is_empty():
        return context.findings(cause, notable)
    together = float(notable["excess_total_ns"].sum())
    if notable.height < 2 or not context.matters(together):
        return []
    name, usual = f"{notable.height} smaller kernels", float(notable["usual_ns"].sum())
    count = notable.height
    return [context.finding(cause, "kernels", name, together, usual, count=count)]


def taking_longer(finding: Finding) -> str:
    """`kernel gemm takes 6.0 ms or 40 % longer`, `kernel gemm takes 2.5 times as long or 6.0 ms
    longer`, `12 smaller kernels take 6.0 ms longer`.
    """
    name = sanitized(finding.name)
    subject = f"{name} take" if finding.activity == "kernels" else f"kernel {name} takes"
    share = finding.excess_ns / finding.usual_ns if finding.usual_ns else 0.0
    if 1 + share >= FACTOR:
        return f"{subject} {1 + share:,.1f} times as long or {ms(finding.excess_ns)} longer"
    part = f" or {percent(share)}" if share else ""
    return f"{subject} {ms(finding.excess_ns)}{part} longer"


def _for_more_work(finding: Finding) -> str:
    """With the reason: a kernel that others do not run may stand for another one of theirs."""
    longer = taking_longer(finding)
    if finding.usual_ns == 0:
        return f"{longer.removesuffix(' longer')}, and other ranks do not run it"
    return f"{longer} for more work"


MORE = Detector(
    kind=CauseKind.MORE_WORK,
    findings=partial(kernel_findings, cause=CauseKind.MORE_WORK),
    sentence=_for_more_work,
    kinds=("kernel",),
)

CONTENTION = Detector(
    kind=CauseKind.CONTENTION,
    findings=partial(kernel_findings, cause=CauseKind.CONTENTION),
    sentence=lambda finding: f"{taking_longer(finding)}, mostly beside collectives",
    kinds=("kernel",),
)
