"""Two runs of a job compared: which ranks and phases got better or worse, beyond noise.

See METHOD.md#diff.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.compare.diff import noise
from rankscope.compare.diff.noise import Values
from rankscope.compare.verdict.phrases import amount
from rankscope.model.metrics import METRICS, Unit, column_of
from rankscope.model.reports import RunWarning
from rankscope.util.wording import agreeing, counted, ms, signed_percent

FALSE_ALARM = 0.02
"""Family-wise false-alarm rate, applied separately to the iteration time, the other metrics and the
ranks (Bonferroni within each family)."""

LEAST_CHANGE = 0.01
"""Least share of the iteration for a change to be reported, even if it is certain; for a metric
that is not a time, of the metric's mean over ranks before."""

LEAST_ITERATIONS = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A metric before and after; `low` and `high` bound its relative change with 95 % certainty.

    `certain`: beyond the noise of all that is compared, and at least `LEAST_CHANGE`. The
    values are in the metric's unit.
    """

    metric: str
    rank: int | None  # None: the mean over ranks
    before_ns: float | None  # an integer, except of a metric whose values are not
    after_ns: float | None
    change: float | None  # after / before - 1; as its bounds null where there was nothing before
    low: float | None
    high: float | None
    certain: bool


@dataclass(frozen=True, slots=True)
class RunDiff:
    """The answer to `rankscope diff`."""

    metrics: tuple[Change, ...]
    ranks: tuple[Change, ...]
    sentence: str
    problems: tuple[RunWarning, ...]

    @property
    def iteration(self) -> Change:
        """The change of the iteration's length."""
        return next(each for each in self.metrics if each.metric == "iteration")


def diff_runs(
    before: pl.DataFrame,
    after: pl.DataFrame,
    metrics: list[str],
    statistic: str,
    signs: tuple[str, ...] = (),
) -> RunDiff:
    """The changes from one run to the other.

    Ranks are matched by number; those of one run alone are left out, with a warning. Between runs
    that look like different jobs the numbers are given, but no change is certain.

    Args:
        before: `Comparison.rows` of the one run: rank, iteration, `<metric>_ns`.
        after: those of the other.
        metrics: what to compare; `iteration` is always among them.
        statistic: mean, median or p95 over iterations.
        signs: how the runs differ as different jobs do, by `same_job.differences`.
    """
    names = metrics if "iteration" in metrics else ["iteration", *metrics]
    both = sorted({*before["rank"]} & {*after["rank"]})
    alone = sorted({*before["rank"]} ^ {*after["rank"]})
    problems = []
    if alone:
        some = ", ".join(map(str, alone[:8])) + (", …" if len(alone) > 8 else "")
        problems.append(
            RunWarning("ranks-differ", f"ranks {some} are in one run only: left out", tuple(alone))
        )
    if len(signs) > 1 or (signs and not alone):
        problems.append(RunWarning("jobs-differ", _unlike(signs)))
    if not both:
        unknown = [Change(name, None, None, None, None, None, None, False) for name in names]
        hindrance = _unlike(signs) if len(signs) > 1 else "the runs share no rank"
        return RunDiff(tuple(unknown), (), f"Inconclusive: {hindrance}.", tuple(problems))
    old, new = (_values(frame, both, [*names, "work"]) for frame in (before, after))
    few = min(len(values["iteration"][0]) for values in (old, new))
    if few < LEAST_ITERATIONS:
        problems.append(
            RunWarning(
                "few-iterations",
                f"{counted(few, 'iteration')} {agreeing(few, 'is', 'are')} too few to tell change "
                "from noise",
            )
        )
    shifts = {name: _shift((old[name], new[name]), statistic) for name in names}
    # All ranks' iterations are one: the noise of the slowest's work is that of each.
    slowest = _noise_of_slowest((old["work"], new["work"]), statistic)
    shifts["iteration"] = shifts["iteration"].in_step(slowest)
    single = [
        each
        for name in names
        for each in shifts[name].of_ranks(name, both, FALSE_ALARM / (len(names) * len(both)))
    ]
    overall = [
        shifts[name].of_all(name, FALSE_ALARM / (1 if name == "iteration" else len(names)))
        for name in names
    ]
    whole = next(each for each in overall if each.metric == "iteration")
    judged = few >= LEAST_ITERATIONS and len(signs) < 2 and whole.before_ns is not None
    if judged:
        least = {
            each.metric: LEAST_CHANGE
            * ((whole if METRICS[each.metric].is_time else each).before_ns or 0)
            for each in overall
        }
    else:
        least = dict.fromkeys(names, np.inf)
    overall, single = (
        [_if_at_least(least[each.metric], each) for each in some] for some in (overall, single)
    )
    if before.equals(after):
        sentence = "Both are the same run: every number is equal."
    elif judged:
        sentence = _sentence(whole, single)
    elif len(signs) > 1:
        sentence = f"Inconclusive: {_unlike(signs)}."
    else:
        sentence = "Inconclusive: too few iterations to tell change from noise."
    return RunDiff(tuple(overall), tuple(single), sentence, tuple(problems))


@dataclass(frozen=True, slots=True)
class _Shift:
    """A metric's scores in both runs, and their noise; arrays of shape (ranks,), in its unit."""

    before: Values
    after: Values
    noise: Values  # standard deviation of each rank's after - before
    common: float  # that of the mean over ranks
    freedom: int  # degrees of freedom of the noise that all ranks tell together

    def of_ranks(self, metric: str, ranks: list[int], false_alarm: float) -> list[Change]:
        """A change per rank."""
        return [
            _change(metric, *row, self.freedom, false_alarm)
            for row in zip(ranks, self.before, self.after, self.noise, strict=True)
        ]

    def of_all(self, metric: str, false_alarm: float) -> Change:
        """The change of the mean over ranks."""
        before, after = float(self.before.mean()), float(self.after.mean())
        return _change(metric, None, before, after, self.common, self.freedom, false_alarm)

    def in_step(self, noise_ns: float | None) -> _Shift:
        """The same of what all ranks have in common, so that many tell no more than one does.

        Args:
            noise_ns: what it must be at least, by what the ranks have each for itself.
        """
        if noise_ns is None:
            return replace(self, freedom=2)
        return replace(
            self, noise=np.maximum(self.noise, noise_ns), common=max(self.common, noise_ns)
        )


def _shift(runs: tuple[Values, Values], statistic: str) -> _Shift:
    """The change of one metric, of shape (ranks, iterations) in each run; nan is unknown."""
    before, after = (noise.score(values, statistic) for values in runs)
    chance = max(noise.pooled(runs, statistic), noise.spread(after - before))
    own = np.hypot(*(noise.sampling(values, statistic) for values in runs))
    means = [values.mean(axis=0) for values in runs]
    together = (
        float(np.hypot(*(function(values, statistic) for values in means)))
        for function in (noise.wander, noise.sampling)
    )
    independent = chance / np.sqrt(len(before))
    return _Shift(
        before,
        after,
        np.maximum(chance, own),
        max(independent, *together),
        max(2 * int(np.count_nonzero(~np.isnan(before))), 2),
    )


def _noise_of_slowest(work: tuple[Values, Values], statistic: str) -> float | None:
    """Standard deviation of the iteration's change, by that of ranks' work; None if unknown."""
    if any(np.isnan(values).any() for values in work):
        return None
    weights = max(noise.weight_of_slowest(values) for values in work)
    return weights * noise.pooled(work, statistic)


def _values(frame: pl.DataFrame, ranks: list[int], names: list[str]) -> dict[str, Values]:
    """Per metric an array of shape (ranks, iterations); what is unknown is nan."""
    rows = frame.filter(pl.col("rank").is_in(ranks)).sort("rank", "iteration")
    shape = len(ranks), rows["iteration"].n_unique()
    return {
        name: rows[column_of(name)].cast(pl.Float64).to_numpy().reshape(shape)
        if column_of(name) in rows.columns
        else np.full(shape, np.nan)
        for name in names
    }


def _change(
    metric: str, rank: int | None, before: float, after: float, deviation: float, freedom: int,
    false_alarm: float,
) -> Change:  # fmt: skip
    if np.isnan(before) or np.isnan(after):
        return Change(metric, rank, None, None, None, None, None, False)
    apart = after - before
    is_whole = METRICS[metric].unit.is_whole
    reach = noise.quantile(0.975, freedom) * deviation
    sure = noise.quantile(1 - false_alarm / 2, freedom) * deviation
    return Change(
        metric=metric,
        rank=rank,
        before_ns=round(before) if is_whole else before,
        after_ns=round(after) if is_whole else after,
        change=float(apart / before) if before else None,
        low=max(-1.0, float((apart - reach) / before)) if before else None,  # times are positive
        high=float((apart + reach) / before) if before else None,
        certain=bool(abs(apart) > sure),
    )


def _if_at_least(least: float, change: Change) -> Change:
    """The change, certain only if it is large enough to be reported."""
    apart = abs((change.after_ns or 0) - (change.before_ns or 0))
    return replace(change, certain=change.certain and apart >= least)


def largest_first(change: Change) -> tuple[bool, str, float]:
    """A key to sort by: times first, then the other units, each with its largest change first."""
    unit = METRICS[change.metric].unit
    apart = abs((change.after_ns or 0) - (change.before_ns or 0))
    return unit is not Unit.NS, unit.value, -apart


def _unlike(signs: tuple[str, ...]) -> str:
    """The signs of different jobs in words: one alone may be a change of the job."""
    every = "; ".join(signs)
    return f"these look like different jobs: {every}" if len(signs) > 1 else f"one job? {every}"


def _sentence(whole: Change, single: list[Change]) -> str:
    """The changes in words."""
    before, after = round(whole.before_ns or 0), round(whole.after_ns or 0)
    times = f"{ms(before)} → {ms(after)} per iteration"
    span = f"95 % interval {signed_percent(whole.low or 0)} to {signed_percent(whole.high or 0)}"
    if not whole.certain:
        text = f"No change beyond noise: {times} ({span})."
    else:
        word = "slower" if after > before else "faster"
        text = f"{signed_percent(abs(whole.change or 0))[1:]} {word}: {times} ({span})."
    for word, sign in (("Worse", 1), ("Better", -1)):
        moved = sorted(
            (
                each
                for each in single
                if each.certain and each.metric not in ("iteration", "work") and each.after_ns
                is not None and sign * (each.after_ns - (each.before_ns or 0)) > 0
            ),
            key=largest_first,
        )  # fmt: skip
        named = [
            f"rank {each.rank} {each.metric} "
            f"{amount((each.after_ns or 0) - (each.before_ns or 0), METRICS[each.metric].unit)}"
            for each in moved[:3]
        ]
        if named:
            more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
            text += f" {word}: {', '.join(named)}{more}."
    return text
