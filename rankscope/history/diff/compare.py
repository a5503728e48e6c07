"""Two runs of a job compared: which ranks and phases got better or worse, beyond noise.

See METHOD.md#diff.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.errors import UsageError
from rankscope.history.diff.noise import Values
from rankscope.history.diff.shifts import (
    Change,
    Shift,
    noise_of_slowest,
    shift,
    shift_from_baseline,
    values_of,
    where_known,
)
from rankscope.judge.levels import HALF
from rankscope.judge.phrases import amount
from rankscope.model.kinds import NAMED_PHASES, Phase
from rankscope.model.metrics import METRICS, WAITS, Need, Unit
from rankscope.model.reports import RunWarning
from rankscope.util.wording import (
    MOST_LISTED,
    agreeing,
    counted,
    interval,
    ms,
    percent,
    ranks_text,
    slower_or_faster,
)

FALSE_ALARM = 0.02
"""Family-wise false-alarm rate, applied separately to the iteration time, the other metrics and the
ranks (Bonferroni within each family)."""

LEAST_CHANGE = 0.01
"""Least share of the iteration for a change to be reported, even if it is certain; for a metric
that is not a time, of the metric's mean over ranks before."""

LEAST_ITERATIONS = 5
"""Fewest iterations of a run to tell change from noise."""

MOST_METRICS = 3
"""Metrics that a sentence names."""

LEAST_BASELINE = 3
"""Runs of a baseline: the variance of two has one degree of freedom, which shows nothing."""


class RunDiff(Struct, frozen=True):
    """The answer to `rankscope diff`.

    `metrics`: the changes of means over ranks; `ranks`: those of each rank. `is_same`: both are
    one run. `is_judged`: the runs are of one job and long enough, so that changes can be certain.
    `clock`: that of the numbers. `baseline`: databases and labels of the runs of a baseline, by
    start time.
    """

    metrics: tuple[Change, ...]
    ranks: tuple[Change, ...]
    sentence: str
    problems: tuple[RunWarning, ...]
    is_same: bool = False
    is_judged: bool = True
    clock: str = ""
    baseline: tuple[tuple[Path, str | None], ...] = ()

    @property
    def iteration(self) -> Change:
        """The change of the iteration's length."""
        return next(each for each in self.metrics if each.metric == "iteration")


def diff_runs(
    before: pl.DataFrame | Sequence[pl.DataFrame],
    after: pl.DataFrame,
    metrics: list[str],
    statistic: str,
    signs: tuple[str, ...] = (),
) -> RunDiff:
    """The changes from one run, or from the mean of several, to another run.

    Ranks are matched by number; a rank that a run lacks is left out, with a warning. Between runs
    that look like different jobs the numbers are given, but no change is certain.

    Args:
        before: `Comparison.rows` of one run, or of at least `LEAST_BASELINE`: rank, iteration,
            `<metric>_ns`. The noise is that within the one run, or that between several.
        metrics: what to compare; `iteration` is always among them.
        statistic: mean, median or p95 over iterations.
        signs: how the runs differ as different jobs do, by `same_job.differences`.

    Raises:
        UsageError: several runs, but fewer than `LEAST_BASELINE`.
    """
    earlier = [before] if isinstance(before, pl.DataFrame) else [*before]
    if 1 < len(earlier) < LEAST_BASELINE:
        raise UsageError(
            f"a baseline of {counted(len(earlier), 'run')}",
            hint=f"give at least {LEAST_BASELINE} runs: fewer do not show how much runs differ",
        )
    names = metrics if "iteration" in metrics else ["iteration", *metrics]
    runs = [*earlier, after]
    both = sorted(set.intersection(*({*run["rank"]} for run in runs)))
    alone = sorted(set.union(*({*run["rank"]} for run in runs)) - {*both})
    problems = [*_differ(alone, signs)]
    if not both:
        hindrance = _unlike(signs) if len(signs) > 1 else "the runs share no rank"
        sentence = f"Inconclusive: {hindrance}."
        return RunDiff(tuple(map(Change, names)), (), sentence, tuple(problems), is_judged=False)
    values = [values_of(frame, both, [*names, "work"]) for frame in runs]
    if Phase.OTHER in names:
        named = np.array([_phases_named(frame, both) for frame in runs])
        alike = (named == named[0]).all(axis=(0, 1))
        for each in values:
            each[Phase.OTHER] = np.where(alike[:, None], each[Phase.OTHER], np.nan)
    known = [{name for name in names if not np.isnan(each[name]).all()} for each in values]
    if partly := [name for name in names if 0 < sum(name in of for of in known) < len(known)]:
        text = f"{', '.join(partly)}: known in some of the runs only, and left out"
        problems.append(RunWarning("metrics-differ", text))
    few = min(len(each["iteration"][0]) for each in values)
    values = [
        {name: where_known(of_metric, LEAST_ITERATIONS) for name, of_metric in each.items()}
        for each in values
    ]
    if few < LEAST_ITERATIONS:
        problems.append(
            RunWarning(
                "few-iterations",
                f"{counted(few, 'iteration')} {agreeing(few, 'is', 'are')} too few to tell change "
                "from noise",
            )
        )
    shifts = {name: _shift_of(name, values, statistic) for name in names}
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
    least = _least_changes(overall, whole) if judged else dict.fromkeys(names, np.inf)
    overall, single = (
        [
            replace(each, certain=each.certain and abs(_amount(each)) >= least[each.metric])
            for each in changes
        ]
        for changes in (overall, single)
    )
    is_same = len(earlier) == 1 and earlier[0].equals(after)
    if is_same:
        sentence = "Both are the same run: every number is equal."
    elif judged:
        sentence = _sentence(whole, overall, single)
        if signs:
            sentence += f" T{_unlike(signs).removeprefix('t')}."
    elif len(signs) > 1:
        sentence = f"Inconclusive: {_unlike(signs)}."
    else:
        sentence = "Inconclusive: too few iterations to tell change from noise."
    return RunDiff(tuple(overall), tuple(single), sentence, tuple(problems), is_same, judged)


def _phases_named(frame: pl.DataFrame, ranks: list[int]) -> np.ndarray:
    """Whether each rank's report names each phase, shape (phases, ranks); `other` is the rest."""
    values = values_of(frame, ranks, [*NAMED_PHASES])
    return np.array([~np.isnan(values[phase]).all(axis=1) for phase in NAMED_PHASES])


def _differ(alone: list[int], signs: tuple[str, ...]) -> Iterator[RunWarning]:
    """Warnings that runs differ in their ranks, or as different jobs do."""
    if alone:
        yield RunWarning(
            "ranks-differ",
            f"{ranks_text(alone, MOST_LISTED)}: in one run only, and left out",
            tuple(alone),
        )
    if signs:
        yield RunWarning("jobs-differ", _unlike(signs))


def _least_changes(overall: list[Change], whole: Change) -> dict[str, float]:
    """metric → the least change that is reported."""
    return {
        each.metric: LEAST_CHANGE
        * ((whole if METRICS[each.metric].is_time else each).before_ns or 0)
        for each in overall
    }


def _shift_of(name: str, values: list[dict[str, Values]], statistic: str) -> Shift:
    """The change of a metric from the first runs to the last one."""
    *before, after = (each[name] for each in values)
    if len(before) > 1:
        return shift_from_baseline(before, after, statistic)
    change = shift((before[0], after), statistic)
    if name != "iteration":
        return change
    # All ranks' iterations are one: the noise of the slowest's work is that of each.
    old, new = values
    return change.of_shared(noise_of_slowest((old["work"], new["work"]), statistic))


def largest_first(change: Change) -> tuple[bool, str, float]:
    """A key to sort by: times first, then the other units, each with its largest change first."""
    unit = METRICS[change.metric].unit
    return unit is not Unit.NS, unit.value, -abs(_amount(change))


def _unlike(signs: tuple[str, ...]) -> str:
    """The signs of different jobs in words: one alone may be a change of the job."""
    listed = "; ".join(signs)
    return f"these {'look like' if len(signs) > 1 else 'may be'} different jobs: {listed}"


def _sentence(whole: Change, overall: list[Change], single: list[Change]) -> str:
    """The changes in words.

    Args:
        whole: of the iteration.
        overall: of the means over ranks, which may be certain where no rank's own is.
        single: of the ranks.
    """
    before, after = round(whole.before_ns or 0), round(whole.after_ns or 0)
    times = f"{ms(before)} → {ms(after)} per iteration"
    if whole.low is not None and whole.high is not None:
        sure = percent(1 - FALSE_ALARM)
        times += f" ({sure} interval {interval(whole.low, whole.high)})"
    if not whole.certain:
        text = f"No change of the iteration beyond noise: {times}."
    else:
        text = f"{slower_or_faster(whole.change or 0)}: {times}."
    waits = {each.rank: _amount(each) for each in single if each.metric == "wait"}
    certain = [each for each in single if each.certain]
    worse = [each for each in certain if _amount(each) > 0 and not _is_wait(each, waits)]
    slower = {each.rank for each in worse}
    better = [
        each
        for each in certain
        if _amount(each) < 0 and not (each.rank in slower and _is_wait(each, waits))
    ]
    phases = [each for each in overall if each.certain and is_phase(each)]
    for word, sign, moved in (("Worse", 1, worse), ("Better", -1, better)):
        told = {each.metric for each in moved}
        means = [each for each in phases if each.metric not in told and sign * _amount(each) > 0]
        if named := _named(moved + means, waits):
            text += f" {word}: {named}."
    return text


def _named(moved: list[Change], waits: Mapping[int | None, float]) -> str:
    """Ranks whose metric moved, in words: `ranks 0-3 backward up to +1.20 ms, rank 1 load +0.3 ms`.

    Phases and transfers are named if any of them moved: other changes follow from them, and a rank
    that waits longer for others is no worse.

    Args:
        moved: changes in one direction; those of the mean over ranks have no rank.
        waits: rank → the change of its waiting for others, ns.
    """
    causing = [
        each
        for each in moved
        if is_phase(each) or (each.metric == "exposed_communication" and not _is_wait(each, waits))
    ]
    most: dict[str, float] = {}
    groups: dict[tuple[str, bool], list[Change]] = {}
    for each in sorted(causing or moved, key=largest_first):
        if each.metric not in ("iteration", "work"):
            size = abs(_amount(each))
            is_large = size >= HALF * most.setdefault(each.metric, size)
            groups.setdefault((each.metric, is_large), []).append(each)
    named = []
    for (metric, _), changes in groups.items():
        ranks = [each.rank for each in changes if each.rank is not None]
        moved_by = amount(_amount(changes[0]), METRICS[metric].unit)
        named.append(
            f"{f'{ranks_text(ranks)} ' if ranks else ''}{metric} "
            f"{'up to ' * (len(changes) > 1)}{'+' * (_amount(changes[0]) > 0)}{moved_by}"
            f"{'' if ranks else ' on average over ranks'}"
        )
    more = f" and {counted(len(named) - MOST_METRICS, 'more change')}" * (len(named) > MOST_METRICS)
    return ", ".join(named[:MOST_METRICS]) + more


def is_phase(change: Change) -> bool:
    """Whether a phase changed, from which changes of other metrics follow."""
    return METRICS[change.metric].needs in (Need.LOADING, Need.PHASES)


def _is_wait(change: Change, waits: Mapping[int | None, float]) -> bool:
    """Whether a rank waits for others longer, or less long: no fault or merit of its own."""
    if change.metric == "exposed_communication":
        return abs(waits.get(change.rank, 0.0)) >= HALF * abs(_amount(change))
    return change.metric in WAITS


def _amount(change: Change) -> float:
    return (change.after_ns or 0) - (change.before_ns or 0)
