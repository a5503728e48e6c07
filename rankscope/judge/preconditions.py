"""What is unknown of a run and prevents a conclusive verdict, and what would settle it."""

import polars as pl

from rankscope.judge.hidden_waits import hidden_wait
from rankscope.judge.inputs import RunSummary, VerdictInputs
from rankscope.judge.judgement import Judgement
from rankscope.judge.levels import HALF, LEAST_GAIN, MUCH
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Leading, Verdict
from rankscope.sources.recorders import Record, Recorder, advice
from rankscope.util.wording import MOST_LISTED, agreeing, counted, ms, percent, ranks_text

LACKING = "rankscope check PATH... says which records of the device are missing"
"""What to do where every rank has records of its device."""


def inconclusive(reason: str, settle: str, leading: Leading | None = None) -> Verdict:
    """No verdict: why, what would settle it, and who leads."""
    sentence = f"Inconclusive: {reason}."
    return Verdict(kind=VerdictKind.INCONCLUSIVE, sentence=sentence, next=settle, leading=leading)


def nothing_to_judge(inputs: VerdictInputs) -> Verdict | None:
    """Why nothing can be said of a run; None where something can."""
    run = inputs.run
    if run.ranks < 2:
        only, settle = (
            "the job has a single rank",
            "rankscope plot phases shows where its time goes, and rankscope diff compares it with "
            "another run of the job",
        )
        if run.world_size != 1:
            only = "only one rank has a report"
            settle = "profile at least two ranks of the job and ingest their reports together"
        return inconclusive(f"{only}, so there is nothing to compare it with", settle)
    if not run.keep_time:
        return inconclusive(
            f"{ranks_text(run.far_ranks, MOST_LISTED)} "
            f"{agreeing(len(run.far_ranks), 'seems', 'seem')} to be of another run than the "
            "others: the clocks of the hosts are a minute or more apart, and the collectives drift "
            "apart as no clocks do",
            "ingest the reports of each run alone",
        )
    seeing = run.ranks - len(run.blind_ranks)
    if seeing < 2:
        unseen = (
            "no communication is visible, so waiting cannot be distinguished from working",
            advice(Record.COMMUNICATION, run.recorder),
        )
        return inconclusive(*((None if seeing else hidden_wait(inputs, blind=True)) or unseen))
    if run.metric is None:
        alone = run.recorder is Recorder.INSPECTOR
        return inconclusive(
            "the work of the ranks is unknown, because "
            + ("collectives alone are recorded" if alone else "their times include waits"),
            _of_device(run),
        )
    if inputs.total_ns > 0:
        return None
    return inconclusive(
        "the length of the iterations is unknown or 0",
        "select other iterations with --iter-range, or ingest with another --iteration",
    )


def _of_device(run: RunSummary) -> str:
    """How the device's times would be known."""
    if not run.has_device:
        return advice(Record.DEVICE, run.recorder)
    return "ask for --clock gpu" if run.host_asked else LACKING


def may_be_unlike(judged: Judgement) -> Verdict | None:
    """The ranks look alike, but something that is unknown of them may differ."""
    run = judged.inputs.run
    if (suspected := hidden_wait(judged.inputs)) is not None:
        return inconclusive(*suspected)
    if run.metric != "work":
        return inconclusive(
            "loading is balanced, but the later phases are unknown, because their times include "
            "waits",
            _of_device(run) + "; or annotate the all-reduce" * (not run.has_device),
        )
    if missing := len(run.missing_ranks):
        return inconclusive(
            f"none of the {counted(run.ranks, 'rank')} with a report is slow beyond chance, but "
            f"{counted(missing, 'rank')} of the job {agreeing(missing, 'has', 'have')} none"
            f"{_held_up_by_missing(judged.inputs)}",
            "ingest, or record, the reports of the missing ranks",
        )
    if run.blind_ranks:
        return inconclusive(
            "none of the other ranks is slow beyond chance, but there are no collectives in the "
            f"reports of {counted(len(run.blind_ranks), 'rank')}",
            "record the same on every rank, and export those reports again",
        )
    return None


def _held_up_by_missing(inputs: VerdictInputs) -> str:
    """A clause on the most that ranks without a report may cost; empty if that is little."""
    share = (inputs.least_held_up_ns or 0) / inputs.total_ns
    if share < MUCH:
        return ""
    return (
        f"; even the rank that waits least is in communication for {percent(share)} of the time: "
        "in transfers, or waiting, perhaps for these"
    )


def began_apart(judged: Judgement) -> Verdict | None:
    """The others wait for the rank that began the first recorded iteration last."""
    run, total = judged.inputs.run, judged.inputs.total_ns
    if run.began is None or run.began.waited_ns < MUCH * total:
        return None
    rank, waited = run.began
    first = "its capture" if run.of_captures else f"iteration {judged.inputs.numbers[0]}"
    return inconclusive(
        f"no rank is slow beyond chance in what was recorded, but the others wait {ms(waited)} "
        f"({percent(waited / total)} of the time) for rank {rank}, which began {first} last: what "
        "it did before is in no report",
        f"record several whole steps: {advice(Record.STEPS, run.recorder)}",
    )


def late_by_unmatched(judged: Judgement) -> Verdict | None:
    """The others wait for ranks that spend about as much more time in calls without a match.

    In a pipeline that is how its stages wait for each other.
    """
    inputs, held = judged.inputs, judged.inputs.held_up
    if held is None or inputs.stages():
        return None
    # half of the ranks may be late
    waited = int(held["wait_ns"].quantile(0.5, "higher") or 0)
    usual = int(held["unmatched_ns"].quantile(0.5, "lower") or 0)
    unmatched = pl.col("unmatched_ns")  # at most 0 where others hide more of the same transfers
    late = held.filter(
        pl.col("wait_ns") <= HALF * waited, unmatched - usual >= HALF * waited, unmatched > 0
    )
    if waited < MUCH * inputs.total_ns or late.is_empty():
        return None
    ranks = tuple(late["rank"])
    share, more = waited / inputs.total_ns, float(late["unmatched_ns"].to_numpy().mean()) - usual
    return inconclusive(
        f"no rank works longer beyond chance, but the others wait {ms(waited)} ({percent(share)} "
        f"of the time) for {ranks_text(ranks, MOST_LISTED)}, which "
        f"{agreeing(len(ranks), 'spends', 'spend')} {ms(more)} more in communication that could "
        "not be matched across ranks: a link may be slow, or what they wait for there is late",
        "capture more iterations: such calls are matched by when they end",
        Leading(ranks, waited, share, None),
    )


def unlike_outside(judged: Judgement) -> Verdict | None:
    """A rank works more before the first collective of a capture, or after the last one."""
    inputs, work = judged.inputs, pl.col("outside_ns")
    if inputs.outside is None:
        return None
    more = work - work.quantile(0.5, "lower").over("role")
    rank, more_ns = inputs.outside.select("rank", more).sort("outside_ns", "rank").row(-1)
    if more_ns < LEAST_GAIN * inputs.total_ns:
        return None
    return inconclusive(
        f"between collectives no rank is slow beyond chance, but rank {rank} works {ms(more_ns)} "
        f"({percent(more_ns / inputs.total_ns)} of the time) more than the median rank before the "
        "first or after the last one: it is slow, or its capture has more there",
        f"record several whole steps: {advice(Record.STEPS, inputs.run.recorder)}",
    )
