"""Two runs of a job compared: which ranks and phases got better or worse, beyond noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.compare.flags import RESAMPLES
from rankscope.compare.words import ms
from rankscope.records import Problem

Values = NDArray[np.float64]

BLOCK = 5
"""Neighbouring iterations are drawn together: speeds wander slowly."""

PARTS_OF_RUN = 3

LEAST_CHANGE = 0.01
"""Changes below this share of the iteration are not told, however sure."""

LEAST_ITERATIONS = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A metric before and after; `low` and `high` bound its relative change in 95 % of resamples,
    widened by how far the metric wanders within a run.

    `certain`: the interval excludes 0 and the change is at least 1 % of the iteration.
    """

    metric: str
    rank: int | None  # None: the mean over ranks
    before_ns: int | None
    after_ns: int | None
    change: float | None  # after / before - 1; as its bounds null where there was nothing before
    low: float | None
    high: float | None
    certain: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer to `rankscope diff`."""

    metrics: tuple[Change, ...]
    ranks: tuple[Change, ...]
    sentence: str
    problems: tuple[Problem, ...]

    @property
    def iteration(self) -> Change:
        """The change of the iteration's length."""
        return next(each for each in self.metrics if each.metric == "iteration")


def compare_runs(
    before: pl.DataFrame, after: pl.DataFrame, metrics: list[str], statistic: str
) -> Comparison:
    """What changed from one run to the other.

    Ranks are matched by number; those of one run alone are left out and told.

    Args:
        before: rows of `Analysis.chosen` of the one run: rank, iteration, `<metric>_ns`.
        after: those of the other.
        metrics: what to compare; `iteration` is always among them.
        statistic: mean, median or p95 over iterations.
    """
    names = metrics if "iteration" in metrics else ["iteration", *metrics]
    both = sorted({*before["rank"]} & {*after["rank"]})
    alone = sorted({*before["rank"]} ^ {*after["rank"]})
    problems = []
    if alone:
        told = ", ".join(map(str, alone[:8])) + (", …" if len(alone) > 8 else "")
        problems.append(
            Problem("ranks-differ", f"ranks {told} are in one run only: left out", tuple(alone))
        )
    if not both:
        unknown = [Change(name, None, None, None, None, None, None, False) for name in names]
        return Comparison(tuple(unknown), (), _sentence(unknown, [], 0), tuple(problems))
    tables = [_values(frame, both, names) for frame in (before, after)]
    few = min(table["iteration"].shape[1] for table in tables)
    samples = [_resampled(table["iteration"].shape[1]) for table in tables]
    scale = float(_score(tables[0]["iteration"], statistic).mean())
    overall, single = [], []
    for name in names:
        old, new = (_score(table[name], statistic) for table in tables)
        old_drawn, new_drawn = (
            np.stack([_score(table[name][:, picks], statistic) for picks in sample])
            for table, sample in zip(tables, samples, strict=True)
        )
        apart = new_drawn - old_drawn  # shape (resamples, ranks)
        wander = np.maximum(*(_wander(table[name], statistic) for table in tables))
        together = max(_wander(table[name].mean(axis=0)[None, :], statistic)[0] for table in tables)
        limit = scale if few >= LEAST_ITERATIONS else np.inf
        overall.append(
            _change(name, None, old.mean(), new.mean(), apart.mean(axis=1), together, limit)
        )
        single += [
            _change(name, rank, old[place], new[place], apart[:, place], wander[place], limit)
            for place, rank in enumerate(both)
        ]
    if few < LEAST_ITERATIONS:
        problems.append(
            Problem("few-iterations", f"{few} iterations are too few to tell change from noise")
        )
    return Comparison(
        tuple(overall), tuple(single), _sentence(overall, single, few), tuple(problems)
    )


def _values(frame: pl.DataFrame, ranks: list[int], names: list[str]) -> dict[str, Values]:
    """Per metric an array of shape (ranks, iterations); iterations that lack it are nan."""
    rows = frame.filter(pl.col("rank").is_in(ranks)).sort("rank", "iteration")
    count = rows["iteration"].n_unique()
    return {
        name: rows[f"{name}_ns"].cast(pl.Float64).to_numpy().reshape(len(ranks), count)
        for name in names
    }


def _resampled(count: int) -> NDArray[np.int64]:
    """Iterations to draw, in blocks; shape (resamples, about count)."""
    draw = np.random.default_rng(0)
    block = min(BLOCK, count)
    starts = draw.integers(0, count - block + 1, size=(RESAMPLES, -(-count // block)))
    return (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, :count]


def _score(values: Values, statistic: str) -> Values:
    """Each rank's score; shape (ranks,) of (ranks, iterations)."""
    if statistic == "mean":
        return np.asarray(values.mean(axis=1))
    share, method = (0.5, "lower") if statistic == "median" else (0.95, "higher")
    return np.asarray(np.quantile(values, share, axis=1, method=method))  # type: ignore[call-overload]


def _wander(values: Values, statistic: str) -> Values:
    """How far each rank's score moves between the thirds of a run; shape (ranks,).

    Speeds wander over whole runs, to which resampling within a run is blind.
    """
    if values.shape[1] < PARTS_OF_RUN:
        return np.zeros(values.shape[0])
    thirds = np.array_split(values, PARTS_OF_RUN, axis=1)
    scores = np.stack([_score(third, statistic) for third in thirds])
    return np.asarray(scores.max(axis=0) - scores.min(axis=0))


def _change(
    metric: str, rank: int | None, before: float, after: float, apart: Values, wander: float,
    scale: float,
) -> Change:  # fmt: skip
    if np.isnan(before) or np.isnan(after):
        return Change(metric, rank, None, None, None, None, None, False)
    low = float(np.quantile(apart, 0.025)) - wander
    high = float(np.quantile(apart, 0.975)) + wander
    return Change(
        metric=metric,
        rank=rank,
        before_ns=round(before),
        after_ns=round(after),
        change=float(after / before - 1) if before else None,
        low=float(low / before) if before else None,
        high=float(high / before) if before else None,
        certain=bool((low > 0 or high < 0) and abs(after - before) >= LEAST_CHANGE * scale),
    )


def _sentence(overall: list[Change], single: list[Change], few: int) -> str:
    """What changed, in words."""
    whole = next(each for each in overall if each.metric == "iteration")
    if few < LEAST_ITERATIONS or whole.before_ns is None or whole.after_ns is None:
        return "Inconclusive: too few iterations, or ranks that the runs do not share."
    times = f"{ms(whole.before_ns)} → {ms(whole.after_ns)} per iteration"
    span = f"95 % interval {whole.low or 0:+.1%} to {whole.high or 0:+.1%}"
    if not whole.certain:
        text = f"No change beyond noise: {times} ({span})."
    else:
        word = "slower" if whole.after_ns > whole.before_ns else "faster"
        text = f"{abs(whole.change or 0):.1%} {word}: {times} ({span})."
    for word, sign in (("Worse", 1), ("Better", -1)):
        moved = sorted(
            (
                each
                for each in single
                if each.certain and each.metric not in ("iteration", "work") and each.after_ns
                is not None and sign * (each.after_ns - (each.before_ns or 0)) > 0
            ),
            key=lambda each: -abs((each.after_ns or 0) - (each.before_ns or 0)),
        )  # fmt: skip
        told = [
            f"rank {each.rank} {each.metric} {ms((each.after_ns or 0) - (each.before_ns or 0))}"
            for each in moved[:3]
        ]
        if told:
            more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
            text += f" {word}: {', '.join(told)}{more}."
    return text
