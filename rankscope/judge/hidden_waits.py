"""Kernels that may wait for other ranks although nothing shows that they communicate.

Such a kernel is short on the slowest rank. On each of the others it is longer by as much as these
have less work of their own: all ranks look equally busy.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.levels import HALF, LEAST_GAIN
from rankscope.util.sanitize import literal
from rankscope.util.wording import ms, percent

NAMED, REST = "kernel ", "other "
"""Prefixes of labels: of kernels that are compared by name, and of the rest of a kind."""

IDLE = f"{REST}idle"


class _Candidate(NamedTuple):
    """Work of a rank that may hide a wait; the likeliest is the largest."""

    likelihood: float  # a wait varies most in proportion to its length
    shorter_ns: float  # than usual, in an iteration
    longer_ns: float  # all else
    label: str
    rank: int


def hidden_wait(inputs: VerdictInputs, *, blind: bool = False) -> tuple[str, str] | None:
    """Why a rank may be slow although all look alike, and what would settle it, in words.

    Its work of one kind is shorter by as much as all else is longer there. None without such work.

    Args:
        blind: no communication is visible. Then the work may be shorter by more: beside other work,
            what waits takes longer than it costs.
    """
    activities = inputs.named_work()
    if activities is None:
        return None
    count = max(inputs.run.iterations, 1)
    sizes = Counter(inputs.role_of.values())
    work = _labelled(activities, inputs.role_of, sizes)
    sums = work.group_by("role", "rank", "label").agg(pl.col("total_ns").sum() / count)
    candidates = [
        candidate
        for (role,), own in sums.sort("role", "rank").group_by("role", maintain_order=True)
        for candidate in _balanced(own, sizes[str(role)], blind=blind)
    ]
    if not candidates:
        return None
    _, shorter, longer, label, rank = max(candidates)
    if shorter * count < LEAST_GAIN * inputs.spent_ns:
        return None
    name, settle = _suspect(work, label, rank)
    reason = (
        f"{name} may wait for other ranks. On rank {rank} it takes {ms(round(shorter))} less "
        f"({percent(shorter * count / inputs.spent_ns)} of the time), and all else takes "
        f"{ms(round(longer))} more: if it waits, rank {rank} is slow"
    )
    return reason, settle


def _labelled(activities: pl.DataFrame, roles: dict[int, str], sizes: Counter[str]) -> pl.DataFrame:
    """rank, kind, name, total_ns, count, role and label: what is compared across ranks.

    Kernels of one name are compared by themselves if all ranks launch equally many of them.
    """
    work = activities.filter(pl.col("kind").is_in(["kernel", "copy", "idle"])).with_columns(
        pl.col("kind", "name").cast(pl.String),
        role=pl.col("rank").replace_strict(roles, default=None, return_dtype=pl.String),
    )
    same = (pl.len() == pl.col("role").replace_strict(sizes)) & (pl.col("count").n_unique() == 1)
    by_name = same.over("role", "kind", "name") & (pl.col("name") != "")
    return work.with_columns(
        label=pl.when(by_name, kind="kernel")
        .then(pl.concat_str(pl.lit(NAMED), "name"))
        .otherwise(pl.concat_str(pl.lit(REST), "kind"))
    )


def _balanced(own: pl.DataFrame, size: int, *, blind: bool) -> Iterator[_Candidate]:
    """Ranks of a role whose shortest work makes up for all that is longer.

    Idle time counts only if the work takes at most half of its usual time: where the host sets the
    pace, a kernel that merely runs faster leaves its device idle as well.

    Args:
        own: rank, label and total_ns of the role.
        size: the number of its ranks.
        blind: as in `hidden_wait`.
    """
    by_label = own.pivot("label", index="rank", values="total_ns", sort_columns=True).fill_null(0)
    idle = by_label[IDLE].to_numpy() if IDLE in by_label.columns else np.zeros(len(by_label))
    by_label = by_label.drop(IDLE, strict=False)
    lengths = by_label.drop("rank").to_numpy()
    if len(by_label) < max(size, 2) or not lengths.size:
        return
    scale = 2 if len(by_label) == 2 else 1  # the median lies between the two
    usual = np.median(lengths, axis=0)
    deviation = scale * (lengths - usual)
    kernel, shorter = deviation.argmin(axis=1), -deviation.min(axis=1)
    own_length = np.take_along_axis(lengths, kernel[:, None], axis=1)[:, 0]
    idles = np.maximum(scale * (idle - np.median(idle)), 0.0)
    longer = deviation.sum(axis=1) + shorter
    longer += np.where(own_length <= HALF * usual[kernel], idles, 0.0)
    balanced = (shorter > 0) & (longer > 0) & (HALF * longer <= shorter)
    if not blind:
        balanced &= HALF * shorter <= longer
    for place in np.flatnonzero(balanced).tolist():
        likelihood = shorter[place] ** 2 / lengths[:, kernel[place]].max()
        label = by_label.columns[1 + kernel[place]]
        yield _Candidate(likelihood, shorter[place], longer[place], label, by_label["rank"][place])


def _suspect(work: pl.DataFrame, label: str, rank: int) -> tuple[str, str]:
    """What may wait, in words, and what settles it."""
    if label == f"{REST}copy":
        return "copying", "find out from the code whether these copies wait for other devices"
    own = work.filter(label=label, rank=rank).sort("total_ns", descending=True)
    name = next(iter(own["name"]), "")
    if not name:
        return "a kernel without a name", "find out from the code whether it waits for others"
    pattern = literal(name)
    if not label.startswith(NAMED):  # other ranks have other numbers in it
        pattern = re.sub("[0-9]+", "[0-9]+", pattern)
    option = f"--collective all_reduce={shlex.quote(f'^{pattern}$')}"
    several = "work such as " * (own.height > 1)
    return f"{several}kernel {name}", f"if it communicates, say so: rankscope ingest … {option}"
