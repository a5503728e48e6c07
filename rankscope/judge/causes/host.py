"""Causes on the host: states in which slow ranks' training threads stayed longer than peers."""

from functools import partial

import polars as pl
from msgspec.structs import replace

from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector, Precedence
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.sources.recorders import Record
from rankscope.util.wording import ms

TABLE = "host_states"

host_detector = partial(
    Detector, tables=(TABLE,), capture=Record.HOST, precedence=Precedence.EXPLANATION
)

LEAST_HOST_SHARE = 0.3
"""Share of the excess that what the host did must explain to be named."""

MARGIN = 2.0
"""The excess must be this many times that of the upper quartile of peers in the same iterations."""

ALLOCATOR = (
    r"^(_?int_)?(malloc|calloc|realloc|free|memalign)(_consolidate)?$|^__libc_(m|c|re)alloc$"
    r"|^(sys|sbrk|madvise|systrim|brk|mremap|mprotect|posix_memalign|aligned_alloc)\w*$"
    r"|^m(un)?map(64)?$|^operator (new|delete)|^(je|tc|mi)_(m|c|re)alloc|page_fault|^clear_page"
    r"|^do_anonymous_page|^cuda(Malloc|Free|Host(Alloc|Register|Unregister))"
    r"|^kernel$|^cuMem(Alloc|Free|HostAlloc|HostRegister|Create|Map|Unmap|AddressReserve)"
)
"""Names of functions and calls that get or return memory.

`kernel`: time in the kernel outside of calls, which page faults take and calls inside of malloc."""


def explained(context: CauseContext, chosen: pl.Expr) -> float | None:
    """The time that a cause explains, over all flagged iterations (ns); None if it is too little.

    It must explain LEAST_HOST_SHARE of the excess, and be MARGIN times what peers show too.

    Args:
        chosen: of the columns `state` and `name` of HOST_STATES.
    """
    excess, peers = context.host_excess(chosen)
    explains = min(excess, context.most_by_host_ns)
    if excess <= 0 or explains < LEAST_HOST_SHARE * context.total_ns or excess < MARGIN * peers:
        return None
    return explains


def host_finding(
    context: CauseContext, cause: CauseKind, name: str, explained_ns: float, detail: str = ""
) -> Finding:
    """A finding about the training thread."""
    finding = context.finding(cause, "host", name, explained_ns, evidence=(TABLE,))
    return replace(finding, detail=detail)


def largest(rows: pl.DataFrame) -> str:
    """The name with the largest excess, of those that have one; empty without."""
    named = rows.filter(pl.col("name") != "").sort(
        "excess_total_ns", "name", descending=[True, False]
    )
    return "" if named.is_empty() else str(named["name"][0])


def explained_part(finding: Finding) -> str:
    """`24.8 ms of 25.1 ms`: what a finding explains, of the whole excess where that is more."""
    explained, whole = ms(finding.excess_ns), ms(finding.excess_ns / finding.share)
    return explained if explained == whole else f"{explained} of {whole}"


def allocates() -> pl.Expr:
    """Whether a row is about memory."""
    return pl.col("name").str.contains(ALLOCATOR)


def state_is(*states: HostState) -> pl.Expr:
    """Whether a row is of one of the states."""
    return pl.col("state").is_in([str(each) for each in states])
