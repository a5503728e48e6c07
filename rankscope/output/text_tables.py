"""Results as text tables, for terminals and Markdown."""

from collections.abc import Collection, Iterator
from itertools import compress

import polars as pl

from rankscope.compare.comparison import Comparison
from rankscope.compare.iteration_clusters import NORMAL
from rankscope.compare.picks import Look, Picks
from rankscope.judge.levels import LEAST_GAIN
from rankscope.model.metrics import (
    METRICS,
    WAITS,
    Display,
    Metric,
    Unit,
    column_of,
    leading_metrics,
)
from rankscope.model.results import Efficiency, Imbalance, MetricSummary, RunFacts, Score, Verdict
from rankscope.output.columns import heading, names_in, notes
from rankscope.output.quantities import (
    beyond_error,
    in_unit,
    seconds,
    short_path,
    shown_unit,
    total,
)
from rankscope.output.table_layout import Table
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import (
    UNKNOWN,
    counted,
    milliseconds,
    percent,
    span,
)

LEAST_SAVED = 0.005
"""Least share of the time that a what-if scenario must save to be shown."""

SCENARIOS = 8
"""Most what-if scenarios in the table."""

OF_COLLECTIVES = ("collective_wait", "collective_transfer")
"""Metrics that are known without knowing what waits and what works."""

LOST, COST, LAST = map(heading, ("lost_ns", "cost_ns", "last_arriver_share"))
"""Headings of sums over the iterations, and of last arrivals."""

MOST_RANKS = 8
"""Most rows of the table of ranks, unless all are wanted."""


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


def shown_metrics(result: Imbalance) -> list[str]:
    """The usual metrics; where the work is unknown, the waits of all collectives as well."""
    usual = [each.metric for each in result.metrics if METRICS[each.metric].display.is_usual]
    known = {each.metric for each in result.metrics if each.mean is not None}
    more = [name for name in OF_COLLECTIVES if name in known] if "work" not in known else []
    return [*more, *usual]


Row = tuple[MetricSummary, Metric]
"""The summary of a metric, and the metric."""


def metrics_table(result: Imbalance, comparison: Comparison, show_all: bool) -> Table:
    """Each metric across ranks: lowest, median and highest rank, imbalance and lost time.

    Args:
        show_all: show unknown and unusual metrics, and those in which ranks hardly differ, too.
    """

    def who(metric: Metric, score: Score | None) -> str:
        return UNKNOWN if score is None else f"{_value(result, metric, score.value)} ({score.rank})"

    usual = {*shown_metrics(result)}
    known = [
        (each, METRICS[each.metric])
        for each in result.metrics
        if show_all or (each.mean is not None and each.metric in usual)
    ]
    fewer = tuple(_fewer_remark(comparison, [metric for _, metric in known]))
    if result.ranks.height == 1:
        return Table(
            title=f"Of the only rank ({result.statistic} of the iterations, ms)",
            columns=("metric", "value"),
            numeric=frozenset(("value",)),
            remarks=fewer,
            rows=tuple(
                (metric.with_unit, _value(result, metric, each.mean)) for each, metric in known
            ),
        )
    similar = [] if show_all else _alike(known, result)
    similar = [] if similar == known else similar
    shown = [row for row in known if row not in similar]
    return Table(
        title=f"Across ranks ({result.statistic} of the iterations, ms; rank in brackets)",
        columns=("metric", "min", "median", "max", "imbalance", LOST),
        numeric=frozenset(("min", "median", "max", "imbalance", LOST)),
        drop_first=(LOST, "imbalance", "median"),
        notes=notes("imbalance", "lost_ns"),
        remarks=(*_alike_remark(similar, result), *fewer),
        least=0,
        most_relevant=_most_relevant_metrics(shown, result.verdict),
        rows=tuple(
            (
                metric.with_unit,
                who(metric, each.min),
                who(metric, each.median),
                who(metric, each.max),
                percent(each.imbalance),
                total(each.lost) if metric.is_time else in_unit(each.lost, metric.unit),
            )
            for each, metric in shown
        ),
    )


def _most_relevant_metrics(shown: list[Row], verdict: Verdict) -> tuple[int, ...]:
    """Indices of metrics: the headline, the phases of the verdict, then by the time lost."""
    causes = _causes(verdict)

    def key(place: int) -> tuple[bool, bool, bool, float]:
        each, metric = shown[place]
        is_headline = metric.display is Display.HEADLINE
        return not is_headline, metric.name not in causes, not metric.is_time, -(each.lost or 0)

    return tuple(sorted(range(len(shown)), key=key))


def _alike(known: list[Row], result: Imbalance) -> list[Row]:
    """The times whose spread over ranks is too small for a row, as in a verdict.

    The headline and the phases of the verdict are not among them.
    """
    length = next((each.mean for each, metric in known if metric.name == "iteration"), None)
    shown = _causes(result.verdict)
    return [
        (each, metric)
        for each, metric in known
        if metric.is_time
        and metric.display is not Display.HEADLINE
        and metric.name not in shown
        and each.min is not None
        and each.max is not None
        and each.max.value - each.min.value < LEAST_GAIN * (length or 0)
    ]


def _alike_remark(similar: list[Row], result: Imbalance) -> Iterator[str]:
    """The metrics without a row, and their values."""
    if similar:
        values = (f"{metric.name} {_value(result, metric, each.mean)}" for each, metric in similar)
        yield (
            f"ranks differ by less than {percent(LEAST_GAIN)} of the iteration in: "
            f"{', '.join(values)}"
        )


def _fewer_remark(comparison: Comparison, metrics: list[Metric]) -> Iterator[str]:
    """The metrics that some rank lacks in some iterations."""
    columns = [metric.column for metric in metrics]
    rows = comparison.rows([metric.name for metric in metrics])
    counts = rows.group_by("rank").agg(pl.col(columns).count()).select(columns).min()
    count = len(comparison.selection.numbers)
    few = [
        f"{metric.short or metric.name} {counts[metric.column][0]:,}"
        for metric in metrics
        if not rows.is_empty() and 0 < counts[metric.column][0] < count
    ]
    if few:
        yield f"over fewer than the {counted(count, 'iteration')}: {', '.join(few)}"


def _value(result: Imbalance, metric: Metric, value: float | None) -> str:
    """A value in its unit; of a wait, no finer than the error of waits."""
    if metric.limited_by_wait_error:
        return beyond_error(value, result.wait_error_ns)
    return in_unit(value, metric.unit)


def efficiency_line(efficiency: Efficiency) -> str:
    """POP's efficiencies, on one line."""
    return (
        f"Parallel efficiency {percent(efficiency.parallel)} = load balance "
        f"{percent(efficiency.load_balance)} × communication efficiency "
        f"{percent(efficiency.communication)} "
        "(POP's efficiencies, with work in place of useful computation)"
    )


def worthwhile(result: Imbalance) -> pl.DataFrame | None:
    """The rows of `what_if` that save at least `LEAST_SAVED`; None if there are none."""
    rows = None if result.what_if is None else result.what_if.filter(pl.col("gain") >= LEAST_SAVED)
    return None if rows is None or rows.is_empty() else rows


def no_gains(result: Imbalance) -> str:
    """Why there is no table of gains."""
    if result.what_if is None:
        return "No table of gains: the run cannot be replayed."
    return f"No table of gains: no repair would save {percent(LEAST_SAVED)} of the time."


def what_if_table(result: Imbalance) -> Table | None:
    """The time saved if one thing took as long as its role's median; None if nothing saves time."""
    rows = worthwhile(result)
    if rows is None or result.what_if is None:
        return None
    whole = result.what_if.select(pl.col("time_ns") + pl.col("gain_ns")).to_series()[0]
    ideal = result.what_if.filter(kind="all")["time_ns"][0]
    best = "with every rank at its median"
    times = f"the run took {whole / ideal:.2f} times as long as {best}" if ideal else None
    at_most = ", at most," if result.verdict.gain_is_bound else ""
    title = f"Gain{at_most} if one thing took as long as its role's median"
    return Table(
        title=f"{title} (by replay; {times or f'{best} the run would take no time'})",
        columns=("what", "which", "gain", "of the time"),
        drop_first=("what",),
        numeric=frozenset(("gain", "of the time")),
        rows=tuple(
            (kind, sanitized(name), total(gain_ns), percent(gain))
            for kind, name, gain_ns, gain in rows.head(SCENARIOS)
            .select("kind", "name", "gain_ns", "gain")
            .iter_rows()
        ),
    )


def cost_note(result: Imbalance) -> str:
    """The meaning of `cost`, which is attributed to the last arrival, whatever delayed it."""
    chain = "; the rank may itself have waited before, for a rank in another group: see work"
    named = result.verdict.named
    costs = result.ranks.drop_nulls("cost_ns").sort("cost_ns", descending=True)["rank"]
    passed_on = bool(named) and not costs.is_empty() and costs[0] not in named
    waited = chain if result.chained or passed_on else ""
    return f"time that all others together waited for it in these collectives{waited}"


def ranks_table(
    result: Imbalance,
    comparison: Comparison,
    metrics: list[str] | None,
    only: Collection[int] | None = None,
) -> Table | None:
    """A row per rank, sorted by the first known metric, the highest first; None if none is known.

    The most relevant ranks are those that the verdict names, then those with the highest values.

    Args:
        metrics: names of the columns; None: the leading metrics.
        only: the ranks to show; None: all.
    """
    leading = leading_metrics(*_causes(result.verdict))
    names = metrics or [name for name in leading if column_of(name) in result.ranks]
    if metrics is None and shown_metrics(result)[:1] == ["collective_wait"]:
        names = ["collective_wait", *names]
    known = [METRICS[name] for name in names if result.ranks[column_of(name)].is_not_null().any()]
    headings = [metric.heading for metric in known]
    ranks = result.ranks.sort(known[0].column if known else "rank", descending=known != [])
    columns = {
        "rank": list(map(str, ranks["rank"])),
        "host": [UNKNOWN if host is None else sanitized(host, 40) for host in ranks["host"]],
        "role": [UNKNOWN if role is None else sanitized(role, 40) for role in ranks["role"]],
    }
    for name in ("host", "role"):
        if ranks[name].n_unique() < 2:
            del columns[name]
    for metric in known:
        columns[metric.heading] = [_value(result, metric, value) for value in ranks[metric.column]]
    numeric = frozenset(("rank", *headings, LAST, COST))
    if ranks["last_arriver_share"].count():
        columns[LAST] = [percent(share) for share in ranks["last_arriver_share"]]
    if ranks["cost_ns"].count():
        columns[COST] = [
            beyond_error(cost, result.wait_error_ns, total) for cost in ranks["cost_ns"]
        ]
    if not numeric.intersection(columns) - {"rank"}:
        return None
    if only is not None:
        shown = [rank in only for rank in ranks["rank"]]
        columns = {name: [*compress(values, shown)] for name, values in columns.items()}
    return Table(
        title=f"By rank ({result.statistic} of the iterations, ms)",
        columns=tuple(columns),
        drop_first=("to all-reduce", *_dispensable(result.verdict, known), "host", "role",
               LAST, METRICS["wait"].heading),
        numeric=numeric,
        shorten=names_in(columns),
        notes=(*notes("last_arriver_share"), (COST, cost_note(result))),
        remarks=tuple(_fewer_remark(comparison, known)),
        most=MOST_RANKS,
        most_relevant=_most_relevant_ranks(result.verdict, [int(rank) for rank in columns["rank"]]),
        rows=tuple(zip(*columns.values(), strict=True)),
    )  # fmt: skip


def _dispensable(verdict: Verdict, known: list[Metric]) -> list[str]:
    """Headings that narrow tables drop, in order: metrics, phases of the verdict."""
    causes = _causes(verdict)
    metrics = [each for each in known[:0:-1] if each.name != "wait"]
    named = [each for each in metrics if each.name in causes]
    named.sort(key=lambda each: each.name == verdict.cause)
    return [
        *(each.heading for each in metrics if each not in named),
        *(each.heading for each in named),
    ]


def _causes(verdict: Verdict) -> list[str | None]:
    """The phases that the verdict names."""
    return [verdict.cause, *(each.cause for each in verdict.also)]


def _most_relevant_ranks(verdict: Verdict, ranks: list[int]) -> tuple[int, ...]:
    """Indices of ranks: those of the sentence, the median and the lowest, then the highest ones."""
    told = {*verdict.named, *(each.rank for each in verdict.holders), *verdict.members}
    ends = {len(ranks) // 2, len(ranks) - 1} & {*range(len(ranks))}
    named = [place for place, rank in enumerate(ranks) if rank in told]
    first = [*named[: MOST_RANKS - 3], *sorted(ends), *range(len(ranks))]
    return tuple(dict.fromkeys(first))


def iterations_table(result: Imbalance, metric: str) -> Table:
    """A row per iteration; of many, slow ones are shown, then those with the largest spread."""
    frame = result.iterations
    unit, key = METRICS[metric].unit, METRICS[metric].key("spread")
    return Table(
        title=f"By iteration (ms; spread: of {metric} across ranks"
        f"{'' if unit is Unit.NS else f', {unit}'})",
        columns=("iteration", "time", "spread", "slowest rank", "flagged ranks", "cluster"),
        drop_first=("flagged ranks", "time", "cluster"),
        numeric=frozenset(("iteration", "time", "spread", "slowest rank")),
        shorten=names_in(["flagged_ranks"]),
        most_relevant=tuple(
            frame.select(
                pl.arg_sort_by(
                    pl.col("cluster").fill_null(NORMAL) != NORMAL,
                    pl.col(key).fill_null(-1),
                    descending=True,
                )
            ).to_series()
        ),
        rows=tuple(
            (
                str(row["iteration"]),
                milliseconds(row["iteration_ns"]),
                in_unit(row[key], unit),
                UNKNOWN if row["slowest_rank"] is None else str(row["slowest_rank"]),
                span(sorted(row["flagged_ranks"] or [])),
                row["cluster"] or "",
            )
            for row in frame.iter_rows(named=True)
        ),
    )


def picks_table(picks: Picks) -> Table:
    """A row per pick: the rank, its host, pid, value and report."""
    unit = METRICS[picks.metric].unit
    unit_shown = shown_unit(unit)
    least = ": who comes last waits least" if picks.metric in WAITS else ""
    return Table(
        title=f"Reports to open side by side, picked by {picks.metric} ({unit_shown}){least}",
        columns=("pick", "rank", "host", "pid", unit_shown, "report"),
        numeric=frozenset(("rank", "pid", unit_shown)),
        drop_first=("pid", "host"),
        shorten=names_in(["host", "report"]),
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


def windows_table(picks: Picks, look: Look) -> Table:
    """Where to look in the picked reports, on their own axes and on the shared one.

    The axis of a timeline of several reports is that of the first report.
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
