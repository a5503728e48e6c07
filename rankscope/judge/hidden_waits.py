"""Kernels that may wait for other ranks, though nothing says that they communicate.

A kernel that waits is short on the rank that comes last, and as much longer on the others as that
rank's own work is shorter there. Ranks then look equally busy.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.judgement import Judgement
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict
from rankscope.util.robust import Floats
from rankscope.util.wording import percent

LEAST = 0.01
"""Least difference between ranks that is reported, as a share of the time."""

BALANCE = 0.5
"""The other kernels differ by at least this share of the difference, and at most its inverse."""


@dataclass(frozen=True, slots=True)
class HiddenWait:
    """A kernel that is shorter on a rank, by as much as the others are longer there."""

    kernel: str
    rank: int
    shorter_ns: int  # in an iteration, than the median of its role
    longer_ns: int  # all other kernels together


def hidden_wait(
    activities: pl.DataFrame, roles: Mapping[int, str], iterations: int, total_ns: int
) -> HiddenWait | None:
    """The largest one; None where there is none of at least LEAST of the time.

    Args:
        activities: ACTIVITIES of the selected iterations of all ranks.
        roles: rank → role: ranks of one role are compared.
        iterations: how many there are.
        total_ns: the time of the run in them.
    """
    kernels = (
        activities.filter(pl.col("kind") == "kernel", pl.col("name") != "")
        .group_by("rank", "name")
        .agg(pl.col("total_ns", "count").sum())
    )
    found: list[HiddenWait] = []
    for role in sorted({*roles.values()}):
        ranks = sorted(rank for rank, own in roles.items() if own == role)
        if len(ranks) < 2:
            continue
        frame = kernels.filter(pl.col("rank").is_in(ranks))
        alike = frame.group_by("name").agg(
            same=(pl.len() == len(ranks)) & (pl.col("count").n_unique() == 1)
        )
        names = alike.filter("same")["name"].sort().to_list()
        wide = (
            frame.filter(pl.col("name").is_in(names))
            .pivot("name", index="rank", values="total_ns")
            .sort("rank")
        )
        if not names:
            continue
        lengths = wide.select(names).to_numpy().astype(np.float64)
        found += _of_role(lengths, ranks, names, iterations)
    largest = max(found, key=lambda each: each.shorter_ns, default=None)
    if largest is None or largest.shorter_ns * iterations < LEAST * total_ns:
        return None
    return largest


def _of_role(
    lengths: Floats, ranks: list[int], names: list[str], iterations: int
) -> list[HiddenWait]:
    """For each rank the kernel that is most shorter there, if others are as much longer.

    Args:
        lengths: of kernels in all iterations, ns; shape (ranks, names).
        ranks: the ranks.
        names: of the kernels.
        iterations: how many there are.
    """
    apart = (lengths - np.median(lengths, axis=0)) / max(iterations, 1)
    if len(ranks) == 2:  # the median lies between them
        apart *= 2
    found = []
    for rank, row in zip(ranks, apart, strict=True):
        kernel = int(row.argmin())
        shorter, longer = -float(row[kernel]), float(np.delete(row, kernel).sum())
        if shorter > 0 and BALANCE * shorter <= longer <= shorter / BALANCE:
            found.append(HiddenWait(names[kernel], rank, round(shorter), round(longer)))
    return found


def unseen(inputs: VerdictInputs) -> Verdict | None:
    """A rule: nothing is known to communicate, but a kernel may."""
    run = inputs.run
    return _verdict(inputs) if len(run.blind_ranks) == run.ranks else None


def alike(judged: Judgement) -> Verdict | None:
    """A rule: the ranks look alike, but a kernel may wait unseen."""
    return _verdict(judged.inputs)


def _verdict(inputs: VerdictInputs) -> Verdict | None:
    activities = inputs.tables("activities", inputs.selected)
    if activities is None:
        return None
    iterations, spent_ns = len(inputs.selected), inputs.spent_ns
    wait = hidden_wait(activities, inputs.role_of, iterations, spent_ns)
    if wait is None:
        return None
    share = percent(wait.shorter_ns * iterations / spent_ns)
    return Verdict(
        kind=VerdictKind.INCONCLUSIVE,
        sentence=(
            f"Inconclusive: kernel {wait.kernel} may wait for other ranks. On rank {wait.rank} it "
            f"is {wait.shorter_ns / 1e6:.2f} ms shorter ({share} of the time), and the other "
            f"kernels are {wait.longer_ns / 1e6:.2f} ms longer: if it waits, rank {wait.rank} is "
            "slow."
        ),
        next=f"if it communicates, say so: rankscope ingest … --collective "
        f"all_reduce={shlex.quote(f'^{re.escape(wait.kernel)}$')}",
    )
