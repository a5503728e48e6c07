"""Rules that find nothing conclusive in a run, each with what would settle it.

Those before the judgement find that nothing can be said; those after it, that ranks which look
alike may not be.
"""

from __future__ import annotations

from statistics import median_low

from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.judgement import Judgement
from rankscope.match.warnings import listed
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict
from rankscope.sources.recorders import Record, Recorder, advice
from rankscope.util.wording import agreeing, counted, percent

LEAST_OUTSIDE = 0.05
"""A rank that works so much more (share of the time) outside of what is judged may be slow."""


def inconclusive(reason: str, settle: str, hosts: tuple[str, ...] = ()) -> Verdict:
    """No verdict: why, and what would settle it."""
    return Verdict(
        kind=VerdictKind.INCONCLUSIVE,
        hosts=hosts,
        sentence=f"Inconclusive: {reason}.",
        next=settle,
    )


def only_one(ranks: tuple[int, ...], metric: str) -> Verdict:
    """Ranks need more than the others, which have other roles."""
    one = len(ranks) == 1
    needing = f"{agreeing(len(ranks), 'rank')} {listed(ranks)} {'needs' if one else 'need'}"
    return inconclusive(
        f"{needing} more {metric} than the others, but {'it' if one else 'each'} is the only one "
        f"of its role: {'it' if one else 'they'} may be slow, or have more to do by design",
        "profile several replicas of the job, or say with --roles which ranks do the same work",
    )


def single_rank(inputs: VerdictInputs) -> Verdict | None:
    """There is no second rank."""
    if inputs.run.ranks >= 2:
        return None
    return inconclusive(
        "there is only one rank, so there is nothing to compare it with",
        "profile at least two ranks of the job and ingest their reports together",
    )


def no_communication(inputs: VerdictInputs) -> Verdict | None:
    """Fewer than two ranks have collectives in their reports."""
    if inputs.run.ranks - len(inputs.run.blind_ranks) >= 2:
        return None
    return inconclusive(
        "no communication is visible, so waiting cannot be distinguished from working",
        advice(Record.COMMUNICATION, inputs.run.recorder),
    )


def work_unknown(inputs: VerdictInputs) -> Verdict | None:
    """No metric shows what a rank needed without its waits."""
    if inputs.run.metric is not None:
        return None
    alone = inputs.run.recorder is Recorder.INSPECTOR
    return inconclusive(
        "the work of the ranks is unknown, because "
        + ("collectives alone are recorded" if alone else "their times include waits"),
        advice(Record.DEVICE, inputs.run.recorder),
    )


def no_time(inputs: VerdictInputs) -> Verdict | None:
    """The selected iterations have no length."""
    if inputs.total_ns > 0:
        return None
    return inconclusive(
        "the length of the iterations is unknown or 0",
        "select other iterations with --iter-range, or ingest with another --iteration",
    )


def only_loading_known(judged: Judgement) -> Verdict | None:
    """Only the load phase could be judged."""
    if judged.inputs.run.metric == "work":
        return None
    return inconclusive(
        "loading is balanced, but the later phases are unknown, because their times include waits",
        f"{advice(Record.DEVICE, judged.inputs.run.recorder)}; or annotate the all-reduce",
    )


def ranks_missing(judged: Judgement) -> Verdict | None:
    """Ranks of the job have no report."""
    run = judged.inputs.run
    if not run.missing_ranks:
        return None
    return inconclusive(
        f"none of the {counted(run.ranks, 'rank')} with a report is slow beyond chance, but "
        f"{counted(len(run.missing_ranks), 'rank')} of the job "
        f"{agreeing(len(run.missing_ranks), 'has', 'have')} none",
        "ingest the reports of the missing ranks",
    )


def ranks_blind(judged: Judgement) -> Verdict | None:
    """Ranks have no collectives in their reports."""
    run = judged.inputs.run
    if not run.blind_ranks:
        return None
    return inconclusive(
        "none of the other ranks is slow beyond chance, but there are no collectives in the "
        "reports of "
        f"{counted(len(run.blind_ranks), 'rank')}",
        "record the same on every rank, and export those reports again",
    )


def unlike_outside(judged: Judgement) -> Verdict | None:
    """A rank works more before the first collective of a capture, or after the last one."""
    inputs, outside = judged.inputs, judged.inputs.outside_ns or {}
    of_role: dict[str, list[int]] = {}
    for rank, work in outside.items():
        of_role.setdefault(inputs.role_of[rank], []).append(work)
    more = {
        rank: work - median_low(of_role[inputs.role_of[rank]]) for rank, work in outside.items()
    }
    slowest = max(more, key=lambda rank: more[rank], default=None)
    if slowest is None or more[slowest] < LEAST_OUTSIDE * inputs.total_ns:
        return None
    return inconclusive(
        f"between collectives no rank is slow beyond chance, but rank {slowest} works "
        f"{more[slowest] / 1e6:.1f} ms ({percent(more[slowest] / inputs.total_ns)} of the time) "
        "more than the median rank before the first or after the last one: it is slow, or its "
        "capture has more there",
        f"record several whole steps: {advice(Record.STEPS, inputs.run.recorder)}",
    )
