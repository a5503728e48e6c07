"""Results as text tables, for terminals and Markdown."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.compare.diff.compare import Change
from rankscope.compare.picks import Picks
from rankscope.model.results import Efficiency, Imbalance, RunFacts, Score
from rankscope.output.quantities import (
    UNKNOWN,
    beyond_error,
    milliseconds,
    percent,
    seconds,
    short_path,
    span,
)
from rankscope.output.sparklines import bars, sparklines
from rankscope.output.table_layout import Table
from rankscope.util.sanitize import sanitized

LEAST_GAIN = 0.005
"""Least share of the time that a what-if scenario must save to be shown."""

WAITS = ("wait", "collective_wait")
"""Metrics that are no finer than the error of waits."""

SCENARIOS = 8
"""Most what-if scenarios in the table."""

LEADING = ("work", "load", "forward", "backward", "optimizer", "wait", "time_to_all_reduce")
"""Metrics that a table of ranks shows unless others are asked for."""

DETAILS = frozenset(
    ("time_to_first_all_reduce", "communication", "collective_wait", "collective_transfer")
)
"""Metrics that are like others, and shown only when asked for."""

SHORT = {"time_to_all_reduce": "to all-reduce", "exposed_communication": "exposed comm."}
"""Column headings where the metric's name is too long."""

LOST_NOTE = "idle rank-time, Σ over ranks and iterations of (slowest − own)"
"""Meaning of the column `lost`."""

ABOVE, COURSE = "above", "by iteration"
"""Headings of the bars and the sparklines."""


def run_line(facts: RunFacts) -> str:
    """The ranks, iterations and clock of a run, on one line."""
    chosen = facts.iterations
    world = f" of {facts.world_size}" if facts.world_size else ""
    left_out = facts.warmup
    warmup = f", warm-up {span(left_out)} left out" if left_out else ""
    many = "iteration" if len(chosen) == 1 else "iterations"
    ranks = "rank" if len(facts.ranks) == 1 and not world else "ranks"
    return (
        f"{len(facts.ranks)}{world} {ranks} · {len(chosen)} {many} ({span(chosen)}{warmup}) · "
        f"{facts.clock} clock ({facts.clock_reason})"
    )


def metrics_table(result: Imbalance, every: bool) -> Table:
    """Each metric across ranks: lowest, median and highest rank, imbalance and lost time.

    Args:
        result: the imbalance.
        every: show unknown metrics and details, too.
    """

    def who(metric: str, score: Score | None) -> str:
        if score is None:
            return UNKNOWN
        error = result.wait_error_ns if metric in WAITS else None
        return f"{beyond_error(score.value_ns, error)} ({score.rank})"

    return Table(
        title=f"Across ranks ({result.statistic} of the iterations, ms; rank in brackets)",
        columns=("metric", "min", "median", "max", "imbalance", "lost"),
        numeric=frozenset(("min", "median", "max", "imbalance", "lost")),
        drop_first=("lost", "imbalance", "median"),
        notes=(
            ("imbalance", "max / mean - 1"),
            ("lost", LOST_NOTE),
        ),
        rows=tuple(
            (
                each.metric,
                who(each.metric, each.min),
                who(each.metric, each.median),
                who(each.metric, each.max),
                percent(each.imbalance),
                milliseconds(each.lost_ns),
            )
            for each in result.metrics
            if every or (each.mean is not None and each.metric not in DETAILS)
        ),
    )


def efficiency_line(given: Efficiency) -> str:
    """POP's efficiencies, on one line."""
    return (
        f"Parallel efficiency {percent(given.parallel)} = load balance "
        f"{percent(given.load_balance)} · communication {percent(given.communication)} "
        "(of work, as POP defines them of useful computation)"
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
        title="Time saved if one thing took as long as its role's median (replayed; the run took "
        f"{whole / ideal:.2f} times as long as with every rank at its median)",
        columns=("what", "which", "saves ms", "of the time"),
        drop_first=("what",),
        numeric=frozenset(("saves ms", "of the time")),
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
        notes=(("certain", "beyond noise and 1 % of the iteration"),),
        rows=tuple(
            (each.metric, *_before_after(each)) for each in changes if each.before_ns is not None
        ),
    )


def movers_table(changes: tuple[Change, ...], every: bool) -> Table:
    """The ranks and metrics that certainly changed, the largest change first.

    Args:
        changes: changes of single ranks.
        every: show all changes.
    """
    moved = [each for each in changes if each.before_ns is not None and (every or each.certain)]
    moved.sort(key=lambda each: -abs((each.after_ns or 0) - (each.before_ns or 0)))
    return Table(
        title="Ranks that changed" if moved else "No rank changed beyond noise",
        columns=("rank", "metric", "before", "after", "change", "95 % interval", "certain"),
        numeric=frozenset(("rank", "before", "after", "change", "95 % interval")),
        drop_first=("95 % interval",),
        rows=tuple((str(each.rank), each.metric, *_before_after(each)) for each in moved),
    )


def _before_after(each: Change) -> tuple[str, ...]:
    signed = "–" if each.change is None else f"{each.change:+.1%}"
    span = "–" if each.low is None else f"{each.low:+.1%} to {each.high or 0:+.1%}"
    return (
        milliseconds(each.before_ns),
        milliseconds(each.after_ns),
        signed,
        span,
        "yes" if each.certain else "no",
    )


def cost_note(result: Imbalance) -> str:
    """The meaning of `cost`, which is attributed to the last arrival, whatever made it late."""
    chain = "; the rank may itself have waited before, for a rank in another group: see work"
    return "time that other ranks waited for it, in total" + (chain if result.chained else "")


def ranks_table(result: Imbalance, metrics: list[str] | None) -> Table:
    """A row per rank, sorted by the first known metric, the highest first.

    Args:
        result: the imbalance.
        metrics: the metrics to show; None: the usual ones.
    """
    names = metrics or [name for name in LEADING if f"{name}_ns" in result.ranks.columns]
    known = [name for name in names if result.ranks[f"{name}_ns"].is_not_null().any()]
    headings = [SHORT.get(name, name) for name in known]
    ranks = result.ranks.sort(f"{known[0]}_ns" if known else "rank", descending=known != [])
    columns = {
        "rank": list(map(str, ranks["rank"])),
        "host": [UNKNOWN if host is None else sanitized(host, 40) for host in ranks["host"]],
        "role": [UNKNOWN if role is None else sanitized(role, 40) for role in ranks["role"]],
    }
    if ranks["role"].n_unique() < 2:
        del columns["role"]
    for name, heading in zip(known, headings, strict=True):
        error = result.wait_error_ns if name in WAITS else None
        columns[heading] = [beyond_error(value, error) for value in ranks[f"{name}_ns"]]
    numeric = frozenset(("rank", *headings, "last", "cost"))
    columns["last"] = [percent(share) for share in ranks["last_arriver_share"]]
    columns["cost"] = [beyond_error(cost, result.wait_error_ns) for cost in ranks["cost_ns"]]
    if known:
        columns[ABOVE] = bars(_excess(ranks, known[0]))
        course = _course(result.course(known[0]), ranks["rank"].to_numpy(), known[0])
        columns[COURSE] = sparklines(course)
    return Table(
        title=f"By rank ({result.statistic} of the iterations, ms)",
        columns=tuple(columns),
        drop_first=("last", "to all-reduce", "optimizer", "wait", "cost", COURSE, "host",
               *headings[:0:-1], "role", ABOVE),
        numeric=numeric,
        shorten=frozenset(("host", "role")),
        graphic=frozenset((ABOVE, COURSE)),
        notes=(
            ("last", "share of collectives at which it arrived last"),
            ("cost", cost_note(result)),
            (ABOVE, f"{known[0]} above the median" if known else ""),
            (COURSE, f"{known[0]}, from the first iteration to the last" if known else ""),
        ),
        rows=tuple(zip(*columns.values(), strict=True)),
    )  # fmt: skip


def _excess(ranks: pl.DataFrame, metric: str) -> npt.NDArray[np.float64]:
    """The excess of each rank over its role's median, in ns."""
    value = pl.col(f"{metric}_ns").cast(pl.Float64)
    return ranks.select(value - value.median().over("role")).to_series().to_numpy()


def _course(
    course: pl.DataFrame, ranks: npt.NDArray[np.int64], metric: str
) -> npt.NDArray[np.float64]:
    """A metric as (ranks, iterations), in ns, in the order of `ranks`; NaN is unknown."""
    numbers = course["iteration"].unique().sort().to_numpy()
    found = np.full((len(ranks), len(numbers)), np.nan)
    order = np.argsort(ranks)
    at = (
        order[np.searchsorted(ranks[order], course["rank"].to_numpy())],
        np.searchsorted(numbers, course["iteration"].to_numpy()),
    )
    found[at] = course[f"{metric}_ns"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return found


def iterations_table(result: Imbalance, metric: str) -> Table:
    """A row per iteration; of many iterations, those with the largest spread are shown.

    Args:
        result: the imbalance.
        metric: the metric whose spread the result contains.
    """
    frame = result.iterations
    spread = frame["spread_ns"]
    return Table(
        title=f"By iteration (ms; spread: of {metric} across ranks)",
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
                milliseconds(row["spread_ns"]),
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
    return Table(
        title=f"Reports to open side by side, picked by {picks.metric} (ms)",
        columns=("pick", "rank", "host", "pid", "ms", "report"),
        numeric=frozenset(("rank", "pid", "ms")),
        drop_first=("pid", "host"),
        shorten=frozenset(("host", "report")),
        rows=tuple(
            (
                each.label,
                str(each.rank),
                UNKNOWN if each.host is None else sanitized(each.host, 40),
                str(each.pid),
                milliseconds(each.value_ns),
                short_path(each.report),
            )
            for each in picks.picks
        ),
    )


def windows_table(picks: Picks, which: str) -> Table:
    """Where to look in the picked reports, on their own axes and on the shared one.

    The axis of a timeline of several reports is that of the first report.

    Args:
        picks: the picks.
        which: the iteration: `worst` or `typical`.
    """
    moments = [getattr(each, which) for each in picks.picks]
    shared = f"on one timeline (axis of rank {picks.picks[0].rank})"
    return Table(
        title=f"Where to look: {which} iteration, {moments[0].iteration}",
        columns=("rank", "in its own report", shared),
        numeric=frozenset(("rank",)),
        drop_first=(shared,),
        rows=tuple(
            (
                str(each.rank),
                _interval(moment.start_ns, moment.end_ns),
                UNKNOWN
                if moment.shared_start_ns is None
                else _interval(moment.shared_start_ns, moment.shared_end_ns),
            )
            for each, moment in zip(picks.picks, moments, strict=True)
        ),
    )


def _interval(start_ns: int, end_ns: int) -> str:
    return f"{seconds(start_ns)} – {seconds(end_ns)}"
