"""What is unknown of a run and prevents a conclusive verdict, and what would settle it.

A kernel may wait for other ranks although nothing shows that it communicates. It is then short on
the slowest rank, and longer on each of the others by as much as that rank has less work of its own.
All ranks look equally busy.
"""

import re
import shlex
from collections import Counter
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
"""Prefixes of labels: of kernels that are compared by name, and of the rest of a kind."""

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


def nothing_to_judge(inputs: VerdictInputs) -> Verdict | None:
    """Why nothing can be said of a run; None where something can."""
    run = inputs.run
    if run.ranks < 2:
        return inconclusive(
            "there is only one rank, so there is nothing to compare it with",
            "profile at least two ranks of the job and ingest their reports together",
        )
    seeing = run.ranks - len(run.blind_ranks)
    if not seeing and (suspected := hidden_wait(inputs)) is not None:
        return suspected
    if seeing < 2:
        return inconclusive(
            "no communication is visible, so waiting cannot be distinguished from working",
            advice(Record.COMMUNICATION, run.recorder),
        )
    if run.metric is None:
        alone = run.recorder is Recorder.INSPECTOR
        return inconclusive(
            "the work of the ranks is unknown, because "
            + ("collectives alone are recorded" if alone else "their times include waits"),
            LACKING if run.has_device else advice(Record.DEVICE, run.recorder),
        )
    if not inputs.total_ns > 0:
        return inconclusive(
            "the length of the iterations is unknown or 0",
            "select other iterations with --iter-range, or ingest with another --iteration",
        )
    return None


def may_be_unlike(judged: Judgement) -> Verdict | None:
    """The ranks look alike, but something that is unknown of them may differ."""
    run = judged.inputs.run
    if (suspected := hidden_wait(judged.inputs)) is not None:
        return suspected
    if run.metric != "work":
        return inconclusive(
            "loading is balanced, but the later phases are unknown, because their times include "
            "waits",
            f"ask for --clock gpu; {LACKING}"
            if run.has_device
            else f"{advice(Record.DEVICE, run.recorder)}; or annotate the all-reduce",
        )
    if missing := len(run.missing_ranks):
        return inconclusive(
            f"none of the {counted(run.ranks, 'rank')} with a report is slow beyond chance, but "
            f"{counted(missing, 'rank')} of the job {agreeing(missing, 'has', 'have')} none",
            "ingest the reports of the missing ranks",
        )
    if run.blind_ranks:
        return inconclusive(
            "none of the other ranks is slow beyond chance, but there are no collectives in the "
            f"reports of {counted(len(run.blind_ranks), 'rank')}",
            "record the same on every rank, and export those reports again",
        )
    return None


def unlike_outside(judged: Judgement) -> Verdict | None:
    """A rank works more before the first collective of a capture, or after the last one."""
    inputs, outside = judged.inputs, judged.inputs.outside_ns or {}
    roles = inputs.role_of
    more = {
        rank: work - median_low(outside[each] for each in outside if roles[each] == roles[rank])
        for rank, work in outside.items()
    }
    slowest = max(more, key=lambda rank: more[rank], default=None)
    if slowest is None or more[slowest] < LEAST_GAIN * inputs.total_ns:
        return None
    return inconclusive(
        f"between collectives no rank is slow beyond chance, but rank {slowest} works "
        f"{ms(more[slowest])} ({percent(more[slowest] / inputs.total_ns)} of the time) "
        "more than the median rank before the first or after the last one: it is slow, or its "
        "capture has more there",
        f"record several whole steps: {advice(Record.STEPS, inputs.run.recorder)}",
    )


def hidden_wait(inputs: VerdictInputs) -> Verdict | None:
    """Inconclusive if work is shorter on a rank by as much as all else is longer there.

    Kernels of one name are compared by themselves if all ranks launch equally many of them. Idle
    time counts only if the work takes at most half of its usual time: where the host sets the pace,
    a kernel that merely runs faster leaves its device idle as well.
    """
    activities = inputs.named_work()
    if activities is None:
        return None
    count = max(len(inputs.selected), 1)
    candidates = list[tuple[float, float, float, str, int]]()
    work = activities.filter(pl.col("kind").is_in(["kernel", "copy", "idle"]))
    work = work.group_by("rank", "kind", "name").agg(pl.col("total_ns", "count").sum())
    work = work.with_columns(
        pl.col("kind", "name").cast(pl.String),
        role=pl.col("rank").replace_strict(inputs.role_of, default=None, return_dtype=pl.String),
    )
    sizes = Counter(inputs.role_of.values())
    same = (pl.len() == pl.col("role").replace_strict(sizes)) & (pl.col("count").n_unique() == 1)
    by_name = same.over("role", "kind", "name") & (pl.col("name") != "")
    work = work.with_columns(
        label=pl.when(by_name, kind="kernel")
        .then(pl.concat_str(pl.lit(NAMED), "name"))
        .otherwise(pl.concat_str(pl.lit(REST), "kind"))
    )
    sums = work.group_by("role", "rank", "label").agg(pl.col("total_ns").sum() / count)
    for (role,), own in sums.sort("role", "rank").group_by("role", maintain_order=True):
        by_label = own.pivot("label", index="rank", values="total_ns", sort_columns=True).fill_null(
            0
        )
        idle = by_label[IDLE].to_numpy() if IDLE in by_label.columns else np.zeros(len(by_label))
        by_label = by_label.drop(IDLE, strict=False)
        lengths = by_label.drop("rank").to_numpy()
        if len(by_label) < max(sizes[str(role)], 2) or not lengths.size:
            continue
        scale = 2 if len(by_label) == 2 else 1  # the median lies between the two
        usual = np.median(lengths, axis=0)
        deviation = scale * (lengths - usual)
        kernel, shorter = deviation.argmin(axis=1), -deviation.min(axis=1)
        own_length = np.take_along_axis(lengths, kernel[:, None], axis=1)[:, 0]
        idles = np.maximum(scale * (idle - np.median(idle)), 0.0)
        longer = deviation.sum(axis=1) + shorter
        longer += np.where(own_length <= HALF * usual[kernel], idles, 0.0)
        balanced = (shorter > 0) & (HALF * shorter <= longer) & (HALF * longer <= shorter)
        for place in np.flatnonzero(balanced).tolist():
            # a wait varies most in proportion to its length
            label = by_label.columns[1 + kernel[place]]
            likely = shorter[place] ** 2 / lengths[:, kernel[place]].max()
            candidates.append(
                (likely, shorter[place], longer[place], label, by_label["rank"][place])
            )
    if not candidates:
        return None
    _, shorter, longer, label, rank = max(candidates)
    if shorter * count < LEAST_GAIN * inputs.spent_ns:
        return None
    name, settle = _suspect(work, label, rank)
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
