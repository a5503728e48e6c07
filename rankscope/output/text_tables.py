"""Results as text tables, for terminals and Markdown."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from itertools import compress

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.compare.comparison import Comparison
from rankscope.compare.diff.compare import largest_first
from rankscope.compare.diff.shifts import Change
from rankscope.compare.picks import Moment, Picks
from rankscope.compare.verdict.story import LEAST_GAIN as LEAST_NAMED
from rankscope.compare.warnings import listed
from rankscope.model.metrics import METRICS, Display, Metric, Unit, column_of, leading_metrics
from rankscope.model.results import Efficiency, Imbalance, RunFacts, Score, Verdict
from rankscope.output.quantities import (
    UNKNOWN,
    beyond_error,
    counted,
    in_unit,
    milliseconds,
    percent,
    seconds,
    short_path,
    shown_unit,
    signed_percent,
    span,
)
from rankscope.output.sparklines import bars, sparklines
from rankscope.output.table_layout import Table
from rankscope.util.sanitize import sanitized

LEAST_GAIN = 0.005
"""Least share of the time that a what-if scenario must save to be shown."""

SCENARIOS = 8
"""Most what-if scenarios in the table."""

LOST, COST = "lost in all", "cost in all"
"""Headings of sums over the iterations, next to scores per iteration."""

LOST_NOTE = "time by which each rank was faster than the slowest, added over ranks and iterations"
"""Meaning of the column LOST."""

ABOVE, COURSE = "above", "by iteration"
"""Headings of the bars and the sparklines."""


def run_line(facts: RunFacts) -> str:
    """The ranks, iterations and clock of a run, on one line."""
    chosen = facts.iterations
    world = facts.world_size
    ranks = counted(world or len(facts.ranks), "rank")
    of_world = f"{len(facts.ranks):,} of {ranks}" if world else ranks
    left_out = facts.warmup
    warmup = f", warm-up {span(left_out)} left out" if left_out else ""
    if facts.settling:
        warmup += f", warm-up {span(facts.settling)} included"
    return (
        f"{of_world} · {counted(len(chosen), 'iteration')} ({span(chosen)}{warmup}) · "
        f"{facts.clock} clock ({facts.clock_reason})"
    )


def metrics_table(result: Imbalance, every: bool) -> Table:
    """Each metric across ranks: lowest, median and highest rank, imbalance and lost time.

    Args:
        result: the imbalance.
        every: show unknown metrics and details, too.
    """

    def who(metric: Metric, score: Score | None) -> str:
        return UNKNOWN if score is None else f"{_value(result, metric, score.value)} ({score.rank})"

    return Table(
        title=f"Across ranks ({result.statistic} of the iterations, ms; rank in brackets)",
        columns=("metric", "min", "median", "max", "imbalance", LOST),
        numeric=frozenset(("min", "median", "max", "imbalance", LOST)),
        drop_first=(LOST, "imbalance", "median"),
        notes=(
            ("imbalance", "max / mean - 1"),
            (LOST, LOST_NOTE),
        ),
        rows=tuple(
            (
                each.metric if metric.is_time else f"{each.metric} ({metric.unit})",
                who(metric, each.min),
                who(metric, each.median),
                who(metric, each.max),
                percent(each.imbalance),
                in_unit(each.lost, metric.unit),
            )
            for each, metric in ((each, METRICS[each.metric]) for each in result.metrics)
            if every or (each.mean is not None and metric.display is not Display.ON_REQUEST)
        ),
    )


def _value(result: Imbalance, metric: Metric, value: float | None) -> str:
    """A value in its unit; of a wait, no finer than the error of waits."""
    if metric.limited_by_wait_error:
        return beyond_error(value, result.wait_error_ns)
    return in_unit(value, metric.unit)


def costless_lines(given: Verdict) -> list[str]:
    """A line on the ranks that are slow at no cost, if there are any."""
    ranks = given.costless_ranks
    if not ranks:
        return []
    name = f"rank{'s' * (len(ranks) > 1)} {listed(ranks)}"
    saved = f"less than {percent(LEAST_NAMED)} of the time"
    return [f"Slow, at no cost: {name}. A repair would save {saved}."]


def efficiency_line(given: Efficiency) -> str:
    """POP's efficiencies, on one line."""
    return (
        f"Parallel efficiency {percent(given.parallel)} = load balance "
        f"{percent(given.load_balance)} × communication efficiency {percent(given.communication)} "
        "(POP's efficiencies, with work in place of useful computation)"
    )


def what_if_table(result: Imbalance) -> Table | None:
    """The time saved if one thing took as long as its role's median; None if nothing saves time."""
    if result.what_if is None:
        return None
    rows = result.what_if.filter(pl.col("gain") >= LEAST_GAIN)
    if rows.is_empty():
        return None
    whole = result.what_if.select(pl.col("time_ns") + pl.col("gain_ns")).to_series()[0]
    ideal = result.what_if.filter(kind="all")["time_ns"][0]
    return Table(
        title="Gain if one thing took as long as its role's median (by replay; the run took "
        f"{whole / ideal:.2f} times as long as with every rank at its median)",
        columns=("what", "which", "gain ms", "of the time"),
        drop_first=("what",),
        numeric=frozenset(("gain ms", "of the time")),
        rows=tuple(
            (
                row["kind"],
                sanitized(row["name"]),
                milliseconds(row["gain_ns"]),
                percent(row["gain"]),
            )
            for row in rows.head(SCENARIOS).iter_rows(named=True)
        ),
    )


def changes_frame(changes: tuple[Change, ...]) -> pl.DataFrame:
    """Changes as a frame with a column per field of `Change`; rank is null for means over ranks."""
    return pl.DataFrame([asdict(each) for each in changes], infer_schema_length=None)


def changes_table(changes: tuple[Change, ...]) -> Table:
    """Each metric of two runs, before and after."""
    return Table(
        title="Before and after (mean over ranks, ms)",
        columns=("metric", "before", "after", "change", "95 % interval", "certain"),
        numeric=frozenset(("before", "after", "change", "95 % interval")),
        drop_first=("95 % interval",),
        notes=(("certain", _certain_note(changes)),),
        rows=tuple(
            (_named(each), *_before_after(each)) for each in changes if each.before_ns is not None
        ),
    )


def movers_table(changes: tuple[Change, ...], every: bool) -> Table:
    """The ranks and metrics that certainly changed, the largest change first.

    Args:
        changes: changes of single ranks.
        every: show all changes.
    """
    moved = [each for each in changes if each.before_ns is not None and (every or each.certain)]
    moved.sort(key=largest_first)
    return Table(
        title="Ranks that changed" if moved else "No rank changed beyond noise",
        columns=("rank", "metric", "before", "after", "change", "95 % interval", "certain"),
        numeric=frozenset(("rank", "before", "after", "change", "95 % interval")),
        drop_first=("95 % interval",),
        rows=tuple((str(each.rank), _named(each), *_before_after(each)) for each in moved),
    )


def _certain_note(changes: tuple[Change, ...]) -> str:
    """The meaning of the column `certain`."""
    only_times = all(METRICS[each.metric].is_time for each in changes)
    other = "" if only_times else "; for a metric that is not a time, of the metric"
    return f"beyond noise and 1 % of the iteration{other}"


def _named(change: Change) -> str:
    """The metric of a change, with its unit unless it is a time."""
    metric = METRICS[change.metric]
    return metric.name if metric.is_time else f"{metric.name} ({metric.unit})"


def _before_after(each: Change) -> tuple[str, ...]:
    certainly = f"{signed_percent(each.low)} to {signed_percent(each.high)}"
    unit = METRICS[each.metric].unit
    return (
        in_unit(each.before_ns, unit),
        in_unit(each.after_ns, unit),
        signed_percent(each.change),
        UNKNOWN if each.low is None else certainly,
        "yes" if each.certain else "no",
    )


def cost_note(result: Imbalance) -> str:
    """The meaning of `cost`, which is attributed to the last arrival, whatever made it late."""
    chain = "; the rank may itself have waited before, for a rank in another group: see work"
    return "time that other ranks waited for it" + (chain if result.chained else "")


def ranks_table(
    result: Imbalance,
    comparison: Comparison,
    metrics: list[str] | None,
    only: Collection[int] | None = None,
) -> Table:
    """A row per rank, sorted by the first known metric, the highest first.

    Args:
        result: the imbalance.
        metrics: the metrics to show; None: the usual ones.
        only: the ranks to show; None: all.
    """
    names = [
        name for name in metrics or leading_metrics() if metrics or column_of(name) in result.ranks
    ]
    known = [METRICS[name] for name in names if result.ranks[column_of(name)].is_not_null().any()]
    headings = [metric.heading for metric in known]
    ranks = result.ranks.sort(known[0].column if known else "rank", descending=known != [])
    columns = {
        "rank": list(map(str, ranks["rank"])),
        "host": [UNKNOWN if host is None else sanitized(host, 40) for host in ranks["host"]],
        "role": [UNKNOWN if role is None else sanitized(role, 40) for role in ranks["role"]],
    }
    if ranks["role"].n_unique() < 2:
        del columns["role"]
    for metric in known:
        columns[metric.heading] = [_value(result, metric, value) for value in ranks[metric.column]]
    numeric = frozenset(("rank", *headings, "last", COST))
    columns["last"] = [percent(share) for share in ranks["last_arriver_share"]]
    columns[COST] = [beyond_error(cost, result.wait_error_ns) for cost in ranks["cost_ns"]]
    if known:
        columns[ABOVE] = bars(_excess(ranks, known[0]))
        course = _course(comparison.rows([known[0].name]), ranks["rank"].to_numpy(), known[0])
        columns[COURSE] = sparklines(course)
    if only is not None:
        shown = [rank in only for rank in ranks["rank"]]
        columns = {name: [*compress(values, shown)] for name, values in columns.items()}
    return Table(
        title=f"By rank ({result.statistic} of the iterations, ms)",
        columns=tuple(columns),
        drop_first=("last", "to all-reduce", "optimizer", "wait", COST, COURSE, "host",
               *headings[:0:-1], "role", ABOVE),
        numeric=numeric,
        shorten=frozenset(("host", "role")),
        graphic=frozenset((ABOVE, COURSE)),
        notes=(
            ("last", "share of collectives at which it arrived last"),
            (COST, cost_note(result)),
            (ABOVE, f"{known[0].name} above the median" if known else ""),
            (COURSE, f"{known[0].name}, from the first iteration to the last" if known else ""),
        ),
        rows=tuple(zip(*columns.values(), strict=True)),
    )  # fmt: skip


def _excess(ranks: pl.DataFrame, metric: Metric) -> npt.NDArray[np.float64]:
    """The excess of each rank over its role's median, in the unit of the metric."""
    value = pl.col(metric.column).cast(pl.Float64)
    return ranks.select(value - value.median().over("role")).to_series().to_numpy()


def _course(
    course: pl.DataFrame, ranks: npt.NDArray[np.int64], metric: Metric
) -> npt.NDArray[np.float64]:
    """A metric as (ranks, iterations), in ns, in the order of `ranks`; NaN is unknown."""
    numbers = course["iteration"].unique().sort().to_numpy()
    found = np.full((len(ranks), len(numbers)), np.nan)
    order = np.argsort(ranks)
    at = (
        order[np.searchsorted(ranks[order], course["rank"].to_numpy())],
        np.searchsorted(numbers, course["iteration"].to_numpy()),
    )
    found[at] = course[metric.column].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return found


def iterations_table(result: Imbalance, metric: str) -> Table:
    """A row per iteration; of many iterations, those with the largest spread are shown.

    Args:
        result: the imbalance.
        metric: the metric whose spread the result contains.
    """
    frame = result.iterations
    unit, key = METRICS[metric].unit, METRICS[metric].key("spread")
    spread = frame[key]
    return Table(
        title=f"By iteration (ms; spread: of {metric} across ranks"
        f"{'' if unit is Unit.NS else f', {unit}'})",
        columns=("iteration", "time", "spread", ABOVE, "slowest rank", "flagged ranks", "cluster"),
        drop_first=("flagged ranks", ABOVE, "time", "cluster"),
        numeric=frozenset(("iteration", "time", "spread", "slowest rank")),
        shorten=frozenset(("flagged ranks",)),
        graphic=frozenset((ABOVE,)),
        notes=((ABOVE, "spread above that of the median iteration"),),
        most_relevant=tuple(spread.fill_null(-1).arg_sort(descending=True)),
        rows=tuple(
            (
                str(row["iteration"]),
                milliseconds(row["iteration_ns"]),
                in_unit(row[key], unit),
                bar,
                UNKNOWN if row["slowest_rank"] is None else str(row["slowest_rank"]),
                span(sorted(row["flagged_ranks"] or [])),
                row["cluster"] or "",
            )
            for row, bar in zip(
                frame.iter_rows(named=True),
                bars((spread.cast(pl.Float64) - spread.median()).to_numpy()),
                strict=True,
            )
        ),
    )


def picks_table(picks: Picks) -> Table:
    """A row per pick: the rank, its host, pid, value and report."""
    unit = METRICS[picks.metric].unit
    unit_shown = shown_unit(unit)
    return Table(
        title=f"Reports to open side by side, picked by {picks.metric} ({unit_shown})",
        columns=("pick", "rank", "host", "pid", unit_shown, "report"),
        numeric=frozenset(("rank", "pid", unit_shown)),
        drop_first=("pid", "host"),
        shorten=frozenset(("host", "report")),
        rows=tuple(
            (
                each.title,
                str(each.rank),
                UNKNOWN if each.host is None else sanitized(each.host, 40),
                str(each.pid),
                in_unit(each.value, unit),
                short_path(each.report),
            )
            for each in picks.picks
        ),
    )


def windows_table(picks: Picks, look: Moment) -> Table:
    """Where to look in the picked reports, on their own axes and on the shared one.

    The axis of a timeline of several reports is that of the first report.

    Args:
        picks: the picks.
        look: the iteration.
    """
    shared = f"on one timeline (axis of rank {picks.picks[0].rank})"
    return Table(
        title=look.title,
        columns=("rank", "in its own report", shared),
        numeric=frozenset(("rank",)),
        drop_first=(shared,),
        rows=tuple(
            (
                str(each.rank),
                _interval(moment.start_ns, moment.end_ns),
                UNKNOWN
                if moment.shared_start_ns is None or moment.shared_end_ns is None
                else _interval(moment.shared_start_ns, moment.shared_end_ns),
            )
            for each, moment in zip(picks.picks, look.windows, strict=True)
        ),
    )


def _interval(start_ns: int, end_ns: int) -> str:
    return f"{seconds(start_ns)} – {seconds(end_ns)}"
