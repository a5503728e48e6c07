"""The shape of a verdict, which several documents hold."""

from typing import Annotated

from msgspec import Struct, field

from rankscope.model import results
from rankscope.model.columns import says
from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.output.documents.common import struct_of


class Finding(Struct, kw_only=True):
    """One reason of the excess, largest first."""

    kind: Annotated[CauseKind, says("the cause")]
    name: Annotated[str | None, says("the name of the activity")]
    excess_ns: Annotated[int, says("mean excess per flagged iteration")]
    share: Annotated[float, says("share of the excess")]
    suspect: Annotated[CauseKind, says("the same as `kind`, under its older name")]
    activity: Annotated[
        str,
        says("`kernel`, `kernels`, `copy`, `set`, `idle`, `range`, `host` (what the thread did)"),
    ]
    phase: Annotated[str | None, says("phase that was looked at; null: all")]
    evidence: Annotated[tuple[str, ...], says("tables that it rests on")]
    detail: Annotated[str, says("what more is known of it, in words; may be empty")]
    usual_ns: Annotated[
        int | None, says("mean per flagged iteration on the median rank; null: unknown")
    ]
    count: Annotated[int, says("how many kernels it is of")]


class Also(Struct, kw_only=True):
    """Something else that costs at least 1 % of the time."""

    kind: Annotated[VerdictKind, says("its class")] = field(name="class")
    ranks: Annotated[tuple[int, ...], says("its ranks")]
    hosts: Annotated[tuple[str, ...], says("its hosts")]
    iterations: Annotated[tuple[int, ...], says("the iterations in which its ranks are slow")]
    cause: Annotated[str | None, says("the phase with most of its excess")]
    excess_ns: Annotated[int, says("its mean excess over the role's median")]
    gain_ns: Annotated[
        int | None,
        says(
            "what repairing it would save in addition; where gains are bounds, or the verdict's "
            "ranks have more to do, what repairing it alone would save"
        ),
    ]
    period: Annotated[int | None, says("k, where its ranks are slow in every k-th iteration")]
    since: Annotated[int | None, says("the iteration from which on its ranks are slow")]
    sentence: Annotated[str, says("what it is, in words")]


class Leading(Struct, kw_only=True):
    """The ranks that lead where the verdict names none."""

    ranks: Annotated[tuple[int, ...], says("the ranks that lead")]
    gain_ns: Annotated[
        int, says("what fixing the leading ranks would save, over the selected iterations")
    ]
    gain: Annotated[float, says("`gain_ns` as a fraction of the time")]
    chance: Annotated[
        float | None,
        says(
            "how likely ranks lead as clearly in a run in which nobody in particular is slow; "
            "null where no chance is involved"
        ),
    ]


class Verdict(Struct, kw_only=True):
    """Who is slow, in what, when, and what it costs."""

    kind: Annotated[VerdictKind, says("the class of the verdict")] = field(name="class")
    ranks: Annotated[
        tuple[int, ...],
        says(
            "the slow ranks; empty for `balanced`, `communication`, `rotating`, `structural` and "
            "`inconclusive`"
        ),
    ]
    roles: Annotated[tuple[str, ...], says("the role of a structural verdict")]
    hosts: Annotated[tuple[str, ...], says("hosts that are slow as a whole")]
    cause: Annotated[str | None, says("the phase with most of the excess")]
    cause_share: Annotated[float | None, says("the share of that phase in the excess")]
    excess_ns: Annotated[
        int | None, says("mean excess over the role's median in `verdict.iterations`")
    ]
    excess: Annotated[
        float | None, says("`excess_ns` as a fraction of the role's median iteration")
    ]
    iterations: Annotated[
        tuple[int, ...], says("the selected iterations in which the ranks are slow")
    ]
    iterations_share: Annotated[
        float | None, says("the share of `iterations` in the selected ones")
    ]
    period: Annotated[int | None, says("k, where the ranks are slow in every k-th iteration")]
    gain_ns: Annotated[int | None, says("what a repair would save over the selected iterations")]
    gain: Annotated[float | None, says("`gain_ns` as a fraction of the time")]
    gain_is_bound: Annotated[
        bool,
        says(
            "`true` where the gains are at most these (METHOD.md#what-if says when), or where "
            "waiting for the network is all there is"
        ),
    ]
    gain_all_ns: Annotated[
        int | None,
        says(
            "what would be saved if every rank and role were at its median, and every transfer "
            "as usual; less than `leading.gain_ns` where most ranks may be slow, because that "
            "compares them with the fast ones"
        ),
    ]
    gain_all: Annotated[float | None, says("`gain_all_ns` as a fraction of the time")]
    more_work_ranks: Annotated[tuple[int, ...], says("the ranks that are given more to do")]
    costless_ranks: Annotated[
        tuple[int, ...],
        says(
            "ranks that are slow beyond chance, but whose repair would save less than 1 % of the "
            "time"
        ),
    ]
    also: Annotated[tuple[Also, ...], says("up to three others that cost at least 1 % of the time")]
    sentence: Annotated[str, says("the answer in words")]
    next: Annotated[str, says("what would settle it or what to look at")]
    since: Annotated[int | None, says("the first iteration of a lasting change")]
    spells: Annotated[
        tuple[tuple[int, int], ...], says("first and last iteration of each slow spell")
    ]
    interval: Annotated[tuple[float, float] | None, says("95 % bootstrap interval of `excess`")]
    findings: Annotated[tuple[Finding, ...], says("reasons of the excess, largest first")]
    leading: Annotated[
        Leading | None,
        says("of some `inconclusive` and `rotating` verdicts: the ranks that lead; else null"),
    ]
    holders: Annotated[
        tuple[int, ...],
        says(
            "of a `rotating` verdict: the ranks that hold most of what imbalance costs, each in "
            "different iterations; no accusation"
        ),
    ]
    settles: Annotated[
        int | None,
        says(
            "about how many iterations would settle an `inconclusive` verdict; null where that "
            "is unknown, or another capture is needed"
        ),
    ]


def verdict_of(verdict: results.Verdict) -> Verdict:
    """The document of a verdict."""
    return struct_of(
        Verdict,
        verdict,
        also=tuple(struct_of(Also, each) for each in verdict.also),
        findings=tuple(struct_of(Finding, each) for each in verdict.findings),
        leading=None if verdict.leading is None else struct_of(Leading, verdict.leading),
    )
