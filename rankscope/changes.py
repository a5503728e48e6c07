"""Runs compared with each other: `rankscope.diff`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import polars as pl

from rankscope.api import AnalysisOptions, Run, options_of, reading
from rankscope.compare.comparison import Comparison, Stage
from rankscope.history.diff.compare import RunDiff, diff_runs
from rankscope.history.diff.same_job import differences
from rankscope.match.clock_choice import choose_clock
from rankscope.model.kinds import PARTS
from rankscope.model.metrics import check_metrics
from rankscope.model.options import Options
from rankscope.model.reports import RunWarning
from rankscope.util.wording import counted, percent

CHANGES = ("iteration", "work", *PARTS, "wait", "time_to_all_reduce")
"""The metrics that `diff` compares."""

ON_ANY_CLOCK = ("iteration", "load")
"""Those of them that mean the same where one of the runs has no device work in its reports."""

LEAST_COVERED = 0.1
"""Share of the capture, from the first iteration on; if iterations cover less, that is said."""


def diff_of(
    before: Sequence[Run],
    after: Run,
    options: Options,
    metrics: list[str] | None = None,
    until: Stage = Stage.TABLE,
) -> tuple[RunDiff, Comparison, Comparison]:
    """The changes from one or several runs to another, and two comparisons, on the same clock.

    Args:
        before: the one run, or those of a baseline.
        after: the other.
        options: how to compare the ranks of each.
        metrics: names; None for iteration, work, phases and waits.
        until: the last stage that is needed of the comparisons.

    Returns:
        The changes; the comparison of the latest run before; that of the run after, each on its
        own clock. Where the clocks differ, the changes are on the host clock.
    """
    before = sorted(before, key=_start)
    clocks = [choose_clock(run.tables, options.clock)[0] for run in (*before, after)]
    old = [run.compare(options, until=until) for run in before]
    new = after.compare(options, until=until)
    timed, names = [*old, new], [*(metrics or CHANGES)]
    if len({*clocks}) > 1:
        on_host = replace(options, clock="host")
        timed = [run.compare(on_host, until=Stage.TABLE) for run in (*before, after)]
        names = [*(metrics or ON_ANY_CLOCK)]
    *rows, last = (each.rows() for each in timed)
    signs = differences(old[-1].tables, new.tables, rows[-1], last)
    found = diff_runs(rows, last, names, options.statistic, signs)
    problems = (*found.problems, *_clock_problem(clocks), *_coverage_problems(timed))
    found = replace(found, clock=timed[-1].clock, problems=problems)
    if len(before) > 1:
        found = replace(
            found,
            sentence=f"{found.sentence} {_baseline_sentence(before)}",
            baseline=tuple((run.db, run.label) for run in before),
        )
    return found, old[-1], new


def _clock_problem(clocks: list[str]) -> Iterator[RunWarning]:
    """A warning where runs are on different clocks."""
    if len({*clocks}) > 1:
        yield RunWarning(
            "clocks-differ",
            f"before is on the {clocks[-2]} clock, after on the {clocks[-1]} clock: the host "
            f"clock is taken, on which only {' and '.join(ON_ANY_CLOCK)} mean the same in both; "
            "record the device in both runs, or neither",
        )


def _coverage_problems(timed: list[Comparison]) -> Iterator[RunWarning]:
    """Warnings about runs whose iterations end long before the capture does.

    What comes before the first iteration is the start of the job, which every capture has.
    """
    for name, comparison in (("before", timed[-2]), ("after", timed[-1])):
        ends = comparison.tables.ranks.select("rank", "path").join(
            comparison.tables.reports.select("path", "duration_ns"), on="path"
        )
        found = (
            comparison.tables.read("iterations")
            .group_by("rank")
            .agg(first=pl.col("start_ns").min(), last=pl.col("end_ns").max())
        )
        since = pl.col("duration_ns") - pl.col("first")
        shares = ends.join(found, on="rank").select((pl.col("last") - pl.col("first")) / since)
        share = shares.to_series().median()
        if isinstance(share, float) and share < LEAST_COVERED:
            yield RunWarning(
                "iterations-cover-little",
                f"the iterations of the run {name} cover {percent(share)} of its capture from the "
                "first of them on; the rest is in no number",
            )


def _start(run: Run) -> int:
    """When a run began, UTC in ns; 0 where that is unknown."""
    start = run.tables.reports["utc_start_ns"].min()
    return start if isinstance(start, int) else 0


def _baseline_sentence(runs: Sequence[Run]) -> str:
    names = [run.label or run.db.name for run in (runs[0], runs[-1])]
    return f"Baseline: {counted(len(runs), 'run')}, {names[0]} to {names[1]}."


def diff(
    before: str | Path | Sequence[str | Path],
    after: str | Path,
    metrics: list[str] | None = None,
    **options: Unpack[AnalysisOptions],
) -> RunDiff:
    """Which ranks and phases got better or worse from one database to the other, beyond noise.

    Args:
        before: database of the one run; or those of at least three runs, whose mean is compared
            and between which the noise is measured.
        after: that of the other.
        metrics: names; None for iteration, work, phases and waits.
        options: how to compare the ranks of each.

    Raises:
        UsageError: an unknown metric, or a baseline of two runs.
    """
    names = check_metrics(metrics or []) or None
    earlier = [before] if isinstance(before, str | Path) else before
    with ExitStack() as held:
        *runs, last = (held.enter_context(reading(db)) for db in (*earlier, after))
        return diff_of(runs, last, options_of(options), names)[0]
