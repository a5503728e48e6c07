"""Kernels that take longer, classified for the causes `device`, `data` and `contention`."""

from __future__ import annotations

import polars as pl

from rankscope.compare.causes.context import LEAST_SHARE, CauseContext
from rankscope.compare.causes.more_work import SAME
from rankscope.compare.verdict.phrases import ms
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding
from rankscope.util.sanitize import sanitized

CLEARED = 0.5
"""Where kernels that overlap no collective show less than this share of a kernel's excess, the
rest comes from competition with collectives for the device."""


def more_work() -> pl.Expr:
    """Whether a kernel's launch count or size differs from the usual one."""
    return pl.any_horizontal(
        pl.col(f"excess_{amount}").fill_null(0).abs()
        > SAME * pl.max_horizontal(pl.col(f"usual_{amount}").fill_null(0), 1)
        for amount in ("count", "size")
    )


def only_beside_collectives() -> pl.Expr:
    """Whether a kernel is slower only where a collective overlaps it."""
    clear = pl.col("clear_excess_ns")
    return (clear < CLEARED * pl.col("excess_total_ns")).fill_null(False)


def kernel_findings(context: CauseContext, cause: CauseKind, which: pl.Expr) -> list[Finding]:
    """Findings about the kernels of a cause: each large one, and all small ones as one.

    Args:
        context: what is looked at.
        cause: of these findings.
        which: the rows of `context.activities` that the cause explains.
    """
    found = context.findings(cause, context.large(("kernel",)).filter(which))
    excess = pl.col("excess_total_ns")
    small = context.activities.filter(
        (pl.col("kind") == "kernel") & (excess > 0) & (excess < LEAST_SHARE * context.total_ns)
    ).filter(which)
    together = float(small["excess_total_ns"].sum())
    if small.height > 1 and context.matters(together):
        found.append(context.finding(cause, "kernels", f"{small.height} smaller kernels", together))
    return found


def taking_longer(finding: Finding) -> str:
    """`kernel gemm takes 6.0 ms longer`, `12 smaller kernels take 6.0 ms longer`."""
    name = sanitized(finding.name)
    subject = f"{name} take" if finding.kind == "kernels" else f"kernel {name} takes"
    return f"{subject} {ms(finding.excess_ns)} longer"
