"""Rules that find nothing conclusive in a run, each with what would settle it.

Those before the judgement find that nothing can be said; those after it, that ranks which look
alike may not be.

A kernel that waits for other ranks, though nothing says that it communicates, is short on the rank
that comes last, and as much longer on the others as that rank's own work is shorter there. Ranks
then look equally busy.
"""

import re
import shlex
from statistics import median_low

import numpy as np
import polars as pl

from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.judgement import Judgement
from rankscope.judge.levels import HALF, LEAST_GAIN
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict
from rankscope.sources.recorders import Record, Recorder, advice
from rankscope.util.wording import agreeing, counted, ms, percent

NAMED, REST = "kernel ", "other "
"""Beginnings of labels: of kernels that count by name, and of the rest of a kind."""

IDLE = f"{REST}idle"

LACKING = "rankscope check PATH... says which records of the device are missing"
"""What to do where every rank has records of its device."""


def inconclusive(reason: str, settle: str, hosts: tuple[str, ...] = ()) -> Verdict:
    """No verdict: why, and what would settle it."""
    return Verdict(
        kind=VerdictKind.INCONCLUSIVE,
        hosts=hosts,
        sentence=f"Inconclusive: {reason}.",
        next=settle,
    )


def single_rank(inputs: VerdictInputs) -> Verdict | None:
    """There is no second rank."""
    if inputs.run.ranks >= 2:
        return None
    return inconclusive(
        "there is only one rank, so there is nothing to compare it with",
        "profile at least two ranks of the job and ingest their reports together",
    )


def unseen(inputs: VerdictInputs) -> Verdict | None:
    """Nothing is known to communicate, but a kernel may."""
    run = inputs.run
    return _hidden_wait(inputs) if len(run.blind_ranks) == run.ranks else None


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
        LACKING if inputs.run.has_device else advice(Record.DEVICE, inputs.run.recorder),
    )


def no_time(inputs: VerdictInputs) -> Verdict | None:
    """The selected iterations have no length."""
    if inputs.total_ns > 0:
        return None
    return inconclusive(
        "the length of the iterations is unknown or 0",
        "select other iterations with --iter-range, or ingest with another --iteration",
    )


def alike(judged: Judgement) -> Verdict | None:
    """The ranks look alike, but a kernel may wait unseen."""
    return _hidden_wait(judged.inputs)


def only_loading_known(judged: Judgement) -> Verdict | None:
    """Only the load phase could be judged."""
    run = judged.inputs.run
    if run.metric == "work":
        return None
    return inconclusive(
        "loading is balanced, but the later phases are unknown, because their times include waits",
        f"ask for --clock gpu; {LACKING}"
        if run.has_device
        else f"{advice(Record.DEVICE, run.recorder)}; or annotate the all-reduce",
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
    if slowest is None or more[slowest] < LEAST_GAIN * inputs.total_ns:
        return None
    return inconclusive(
        f"between collectives no rank is slow beyond chance, but rank {slowest} works "
        f"{more[slowest] / 1e6:.1f} ms ({percent(more[slowest] / inputs.total_ns)} of the time) "
        "more than the median rank before the first or after the last one: it is slow, or its "
        "capture has more there",
        f"record several whole steps: {advice(Record.STEPS, inputs.run.recorder)}",
    )


def _hidden_wait(inputs: VerdictInputs) -> Verdict | None:
    """Work that is shorter on a rank of a role, by as much as all else is longer there.

    Kernels of a name count for themselves if all ranks have as many of it; the rest of the kernels
    is one, and so are all copies. Idling counts where the work lasts half as long as usual: a
    kernel that only runs faster leaves its device idle as well where the host sets the pace.
    """
    activities = inputs.named_work()
    if activities is None:
        return None
    count, found = len(inputs.selected), list[tuple[float, float, float, tuple[str, str], int]]()
    work = activities.filter(pl.col("kind").is_in(["kernel", "copy", "idle"]))
    work = work.group_by("rank", "kind", "name").agg(pl.col("total_ns", "count").sum())
    work = work.with_columns(pl.col("kind", "name").cast(pl.String))
    for role in sorted({*inputs.role_of.values()}):
        ranks = sorted(rank for rank, own in inputs.role_of.items() if own == role)
        same = (pl.len() == len(ranks)) & (pl.col("count").n_unique() == 1)
        own = work.filter(pl.col("rank").is_in(ranks)).with_columns(
            label=pl.when(same.over("kind", "name"), pl.col("name") != "", kind="kernel")
            .then(pl.concat_str(pl.lit(NAMED), "name"))
            .otherwise(pl.concat_str(pl.lit(REST), "kind"))
        )
        wide = (
            own.group_by("rank", "label")
            .agg(pl.col("total_ns").sum())
            .pivot("label", index="rank", values="total_ns", sort_columns=True)
            .fill_null(0)
            .sort("rank")
        )
        names = [name for name in wide.columns if name not in ("rank", IDLE)]
        if len(ranks) < 2 or wide.height < len(ranks) or not names:
            continue
        lengths = wide[names].to_numpy()
        idle = wide[IDLE].to_numpy() if IDLE in wide.columns else np.zeros(len(ranks))
        lengths = np.hstack((lengths, idle[:, None]))
        usual = np.median(lengths, axis=0)
        apart = (lengths - usual) / max(count, 1)
        if len(ranks) == 2:  # the median lies between them
            apart *= 2
        for rank, row, own_lengths in zip(ranks, apart, lengths, strict=True):
            kernel = int(row[:-1].argmin())
            shorter, longer = -float(row[kernel]), float(np.delete(row[:-1], kernel).sum())
            if own_lengths[kernel] <= HALF * usual[kernel]:
                longer += max(float(row[-1]), 0.0)
            if shorter > 0 and HALF * shorter <= longer <= shorter / HALF:
                # what waits varies most for its length
                likely = shorter * shorter / float(lengths[:, kernel].max())
                found.append((likely, shorter, longer, _suspect(own, names[kernel], rank), rank))
    _, shorter, longer, (name, settle), rank = max(found, default=(0.0, 0.0, 0.0, ("", ""), 0))
    if not found or shorter * count < LEAST_GAIN * inputs.spent_ns:
        return None
    return inconclusive(
        f"{name} may wait for other ranks. On rank {rank} it takes {ms(round(shorter))} less "
        f"({percent(shorter * count / inputs.spent_ns)} of the time), and all else takes "
        f"{ms(round(longer))} more: if it waits, rank {rank} is slow",
        settle,
    )


def _suspect(work: pl.DataFrame, label: str, rank: int) -> tuple[str, str]:
    """What may wait, in words, and what settles it."""
    if label == f"{REST}copy":
        return "copying", "find out from the code whether these copies wait for other devices"
    own = work.filter(label=label, rank=rank).sort("total_ns", descending=True)
    name = next(iter(own["name"]), "")
    if not name:
        return "a kernel without a name", "find out from the code whether it waits for others"
    pattern = re.escape(name)
    if not label.startswith(NAMED):  # other ranks have other numbers in it
        pattern = re.sub("[0-9]+", "[0-9]+", pattern)
    option = f"--collective all_reduce={shlex.quote(f'^{pattern}$')}"
    several = "work such as " * (own.height > 1)
    return f"{several}kernel {name}", f"if it communicates, say so: rankscope ingest … {option}"
