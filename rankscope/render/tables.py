"""Results → tables of text, for terminals and Markdown."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import polars as pl

from rankscope.compare.change import Change
from rankscope.pick import Picks
from rankscope.records import Efficiency, Imbalance, MetricSummary, RunFacts, Score
from rankscope.render.text import (
    UNKNOWN,
    milliseconds,
    percent,
    plain,
    seconds,
    short_path,
    span,
)

GAP = 3
"""Blanks between two columns."""

LEAST_GAIN = 0.005
"""Share of the time that a what-if must save to be shown."""

SCENARIOS = 8

LEADING = ("work", "load", "forward", "backward", "optimizer", "wait", "time_to_all_reduce")
"""Metrics that a table of ranks shows unless others are asked for."""

SHORT = {"time_to_all_reduce": "to all-reduce", "exposed_communication": "exposed comm."}
"""Column headings where the metric's name is too long."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; `numeric` columns are set right.

    Where a table is wider than the terminal, columns go in the order of `spare`; numbers are
    never cut.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()
    spare: tuple[str, ...] = ()

    def fitted(self, width: int) -> tuple[Table, tuple[str, ...]]:
        """The table without the columns that do not fit into `width`, and which those are."""
        dropped: list[str] = []
        for name in self.spare:
            if self._width(dropped) <= width:
                break
            if name in self.columns:
                dropped.append(name)
        if not dropped:
            return self, ()
        kept = [index for index, name in enumerate(self.columns) if name not in dropped]
        return replace(
            self,
            columns=tuple(self.columns[index] for index in kept),
            rows=tuple(tuple(row[index] for index in kept) for row in self.rows),
        ), tuple(dropped)

    def _width(self, dropped: list[str]) -> int:
        widths = [
            max((len(row[index]) for row in self.rows), default=0) if any(self.rows) else len(name)
            for index, name in enumerate(self.columns)
            if name not in dropped
        ]
        heads = [len(name) for name in self.columns if name not in dropped]
        return sum(max(each) + GAP for each in zip(widths, heads, strict=True)) - GAP


def run_line(facts: RunFacts) -> str:
    """One line of what stands above every number."""
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


def metrics_table(metrics: tuple[MetricSummary, ...], statistic: str, every: bool) -> Table:
    """Each metric across ranks; unknown ones only where `every` is to be shown."""

    def who(score: Score | None) -> str:
        return UNKNOWN if score is None else f"{milliseconds(score.value_ns)} ({score.rank})"

    return Table(
        title=f"Across ranks ({statistic} over iterations, ms; rank in brackets; lost: in all)",
        columns=("metric", "min", "median", "max", "imbalance", "lost"),
        numeric=frozenset(("min", "median", "max", "imbalance", "lost")),
        spare=("lost", "imbalance", "median"),
        rows=tuple(
            (
                each.metric,
                who(each.min),
                who(each.median),
                who(each.max),
                percent(each.imbalance),
                milliseconds(each.lost_ns),
            )
            for each in metrics
            if every or each.mean is not None
        ),
    )


def efficiency_line(given: Efficiency) -> str:
    """POP's efficiencies in a line."""
    return (
        f"Parallel efficiency {percent(given.parallel)} = load balance "
        f"{percent(given.load_balance)} · communication {percent(given.communication)} "
        "(of work, as POP defines them of useful computation)"
    )


def what_if_table(result: Imbalance) -> Table | None:
    """What putting one thing at its role's median would save; None where nothing would."""
    if result.what_if is None:
        return None
    rows = result.what_if.filter(pl.col("gain") >= LEAST_GAIN)
    if rows.is_empty():
        return None
    whole = result.what_if.select(pl.col("time_ns") + pl.col("gain_ns")).to_series()[0]
    ideal = result.what_if.filter(kind="all")["time_ns"][0]
    return Table(
        title=f"What if it were at its role's median (replayed; {whole / ideal:.2f} times the time "
        "of a run in which every rank is)",
        columns=("what", "", "saves ms", "of the time"),
        numeric=frozenset(("saves ms", "of the time")),
        rows=tuple(
            (row["kind"], plain(row["name"]), milliseconds(row["gain_ns"]), percent(row["gain"]))
            for row in rows.head(SCENARIOS).iter_rows(named=True)
        ),
    )


def changes_frame(changes: tuple[Change, ...]) -> pl.DataFrame:
    """Changes as a frame: rank (null: the mean over ranks), metric, before_ns, after_ns, …."""
    return pl.DataFrame([asdict(each) for each in changes], infer_schema_length=None)


def changes_table(changes: tuple[Change, ...]) -> Table:
    """Each metric before and after."""
    return Table(
        title="Before and after (mean over ranks, ms; sure: beyond noise and 1 % of the iteration)",
        columns=("metric", "before", "after", "change", "95 % interval", "sure"),
        numeric=frozenset(("before", "after", "change", "95 % interval")),
        spare=("95 % interval",),
        rows=tuple(
            (each.metric, *_before_after(each)) for each in changes if each.before_ns is not None
        ),
    )


def movers_table(changes: tuple[Change, ...], every: bool) -> Table:
    """The ranks and metrics that changed surely, most first; all with `every`."""
    moved = [each for each in changes if each.before_ns is not None and (every or each.certain)]
    moved.sort(key=lambda each: -abs((each.after_ns or 0) - (each.before_ns or 0)))
    return Table(
        title="Ranks that changed" if moved else "No rank changed beyond noise",
        columns=("rank", "metric", "before", "after", "change", "95 % interval", "sure"),
        numeric=frozenset(("rank", "before", "after", "change", "95 % interval")),
        spare=("95 % interval",),
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


def ranks_table(result: Imbalance, metrics: list[str] | None) -> Table:
    """A row per rank, most work first where work is known."""
    names = metrics or [name for name in LEADING if f"{name}_ns" in result.ranks.columns]
    known = [name for name in names if result.ranks[f"{name}_ns"].is_not_null().any()]
    headings = tuple(SHORT.get(name, name) for name in known)
    order = f"{known[0]}_ns" if known else "rank"
    return Table(
        title=f"By rank ({result.statistic} over iterations, ms; last: share of collectives it "
        "came last to; cost: the others' waiting for it, in all)",
        columns=("rank", "host", *headings, "last", "cost"),
        spare=("last", "to all-reduce", "optimizer", "wait", "host", "cost", *headings[:0:-1]),
        numeric=frozenset(("rank", *headings, "last", "cost")),
        rows=tuple(
            (
                str(row["rank"]),
                UNKNOWN if row["host"] is None else plain(row["host"], 24),
                *(milliseconds(row[f"{name}_ns"]) for name in known),
                percent(row["last_arriver_share"]),
                milliseconds(row["cost_ns"]),
            )
            for row in result.ranks.sort(order, descending=known != []).iter_rows(named=True)
        ),
    )


def iterations_table(result: Imbalance, metric: str) -> Table:
    """A row per iteration."""
    return Table(
        title=f"By iteration ({metric}: spread between ranks, ms)",
        columns=("iteration", "time", "spread", "slowest rank", "flagged ranks", "cluster"),
        spare=("flagged ranks", "time"),
        numeric=frozenset(("iteration", "time", "spread", "slowest rank")),
        rows=tuple(
            (
                str(row["iteration"]),
                milliseconds(row["iteration_ns"]),
                milliseconds(row["spread_ns"]),
                UNKNOWN if row["slowest_rank"] is None else str(row["slowest_rank"]),
                span(sorted(row["flagged_ranks"] or [])),
                row["cluster"] or "",
            )
            for row in result.iterations.iter_rows(named=True)
        ),
    )


def rows_table(frame: pl.DataFrame, title: str) -> Table:
    """Any frame: times in ms, shares in percent."""

    def cell(name: str, value: object) -> str:
        if value is None:
            return UNKNOWN
        if name.endswith("_ns") and isinstance(value, int | float):
            return milliseconds(value)
        if name.endswith("_share") and isinstance(value, float):
            return percent(value)
        if isinstance(value, list):
            return span(sorted(value))
        return short_path(Path(str(value))) if name == "path" else plain(str(value))

    headings = tuple(
        name.removesuffix("_ns").removesuffix("_share").replace("_", " ") for name in frame.columns
    )
    return Table(
        title=title,
        columns=headings,
        spare=headings[:1:-1],
        numeric=frozenset(
            heading
            for heading, dtype in zip(headings, frame.dtypes, strict=True)
            if dtype.is_numeric()
        ),
        rows=tuple(
            tuple(cell(name, value) for name, value in zip(frame.columns, row, strict=True))
            for row in frame.iter_rows()
        ),
    )


def picks_table(picks: Picks) -> Table:
    """The picked ranks."""
    return Table(
        title=f"Reports to open side by side, picked by {picks.metric} (ms)",
        columns=("pick", "rank", "host", "pid", "ms", "report"),
        numeric=frozenset(("rank", "pid", "ms")),
        rows=tuple(
            (
                each.label,
                str(each.rank),
                UNKNOWN if each.host is None else plain(each.host, 24),
                str(each.pid),
                milliseconds(each.value_ns),
                short_path(each.report),
            )
            for each in picks.picks
        ),
    )


def windows_table(picks: Picks, which: str) -> Table:
    """Where to look: the `worst` or the `typical` iteration on each axis.

    A timeline of several reports has the axis of the first; its rows are named by host and pid.
    """
    moments = [getattr(each, which) for each in picks.picks]
    shared = f"on one timeline (axis of rank {picks.picks[0].rank})"
    return Table(
        title=f"Where to look: {which} iteration, {moments[0].iteration}",
        columns=("rank", "in its own report", shared),
        numeric=frozenset(("rank",)),
        spare=(shared,),
        rows=tuple(
            (
                str(each.rank),
                _stretch(moment.start_ns, moment.end_ns),
                UNKNOWN
                if moment.shared_start_ns is None
                else _stretch(moment.shared_start_ns, moment.shared_end_ns),
            )
            for each, moment in zip(picks.picks, moments, strict=True)
        ),
    )


def _stretch(start_ns: int, end_ns: int) -> str:
    return f"{seconds(start_ns)} – {seconds(end_ns)}"
