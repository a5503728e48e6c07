"""Runs compared with each other: `rankscope.diff`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rankscope.api import Run, open_run
from rankscope.compare.clock_choice import choose_clock
from rankscope.compare.comparison import Comparison, Stage
from rankscope.compare.diff.compare import RunDiff, diff_runs
from rankscope.compare.diff.same_job import differences
from rankscope.compare.selection import IterRange, as_range
from rankscope.model.metrics import check_metrics
from rankscope.model.options import Options
from rankscope.model.schema import PARTS
from rankscope.util.wording import counted

CHANGES = ("iteration", "work", *PARTS, "wait", "time_to_all_reduce")
"""The metrics that `diff` compares."""


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
        The changes; the comparison of the latest run before; that of the run after.
    """
    before = sorted(before, key=_start)
    if len({choose_clock(run.tables, options.clock)[0] for run in (*before, after)}) > 1:
        options = replace(options, clock="host")
    old = [run.compare(options, until=until) for run in before]
    new = after.compare(options, until=until)
    rows, last = [each.rows() for each in old], new.rows()
    signs = differences(old[-1].tables, new.tables, rows[-1], last)
    found = diff_runs(rows, last, list(metrics or CHANGES), options.statistic, signs)
    if len(before) > 1:
        found = replace(
            found,
            sentence=f"{found.sentence} {_baseline_sentence(before)}",
            baseline=tuple((run.db, run.label) for run in before),
        )
    return found, old[-1], new


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
    *,
    iter_range: IterRange = None,
    clock: str = "auto",
    statistic: str = "mean",
    include_warmup: bool = False,
    roles: str | None = None,
) -> RunDiff:
    """Which ranks and phases got better or worse from one database to the other, beyond noise.

    Args:
        before: database of the one run; or those of at least three runs, whose mean is compared
            and between which the noise is measured.
        after: that of the other.
        metrics: names; None for iteration, work, phases and waits.
        iter_range, clock, statistic, include_warmup, roles: those of the module.

    Raises:
        UsageError: an unknown metric, or a baseline of two runs.
    """
    names = check_metrics(metrics or []) or None
    options = Options(as_range(iter_range), clock, statistic, include_warmup, roles)
    earlier = [before] if isinstance(before, str | Path) else before
    return diff_of([open_run(db) for db in earlier], open_run(after), options, names)[0]
