"""The input of the verdict of a comparison."""

from functools import cache

import polars as pl

from rankscope.compare.collective_rows import by_collective
from rankscope.compare.comparison import Comparison
from rankscope.compare.metric_table import lacks_phases, without_end
from rankscope.compare.reuse import known_story
from rankscope.compare.run_facts import far_clocks, keep_time
from rankscope.judge.causes.registry import tables_of
from rankscope.judge.claims import Story
from rankscope.judge.excess import excess_of
from rankscope.judge.inputs import Began, RunSummary, VerdictInputs
from rankscope.judge.levels import FEW
from rankscope.judge.story import story_of
from rankscope.match.communication import exposed
from rankscope.match.point_to_point import TRANSFERS
from rankscope.match.records import ALL
from rankscope.match.waits import own_spans
from rankscope.model.intervals import Floats
from rankscope.model.kinds import PHASES, POINT_TO_POINT
from rankscope.model.metrics import columns_of
from rankscope.sources.recorders import recorder_of
from rankscope.util.numbers import sampled

JUDGED = (
    *("rank", "host", "role", "iteration"),
    *columns_of(("work", "iteration", "wait", "host", *PHASES)),
)
"""The columns of the metric table for the verdict and for the replay."""


def verdict_inputs(
    comparison: Comparison, rows: pl.DataFrame, default: Comparison | None
) -> VerdictInputs:
    """The input of a verdict, before any gain is computed.

    Args:
        comparison: up to its table.
        rows: of the metric table in the selected iterations.
        default: the comparison with the default options, if there is one.
    """
    tables, numbers = comparison.tables, comparison.selection.numbers
    metric = _judged_metric(rows, comparison.scope.blind_ranks)
    spans = None
    if metric is not None and len(numbers) <= FEW:
        ranks = sorted(tables.ranks["rank"])
        blocked = exposed(comparison.scope, ranks, numbers)
        spans = own_spans(comparison.collectives(numbers), ranks, blocked)
    judged = without_end(tables, comparison.clock, rows.select(JUDGED))
    judged = _judged_rows(judged, spans, of_captures=comparison.of_captures)
    judged = _in_one_role(judged, comparison)
    transfer_ns, unmatched_ns = _exposed(rows)
    clocks, some = comparison.matching.clocks, sampled(numbers)
    far = tuple(far_clocks(comparison.scope, clocks))
    return VerdictInputs(
        run=RunSummary(
            ranks=tables.ranks.height,
            iterations=len(numbers),
            missing_ranks=comparison.missing_ranks,
            blind_ranks=comparison.scope.blind_ranks,
            metric=metric,
            recorder=recorder_of(tables.reports["kind"]),
            host_asked=comparison.scope.options.clock == "host",
            has_device=bool(tables.ranks["has_device"].all()),
            own_roles=comparison.roles.own,
            of_captures=comparison.of_captures,
            ends_alone=comparison.ends_alone,
            far_ranks=far,
            world_size=comparison.scope.world_size,
            keep_time=keep_time(far, clocks),
            began=_began(comparison, rows),
        ),
        spent_ns=int(rows["iteration_ns"].sum() // max(rows["rank"].n_unique(), 1)),
        role_of=dict.fromkeys(comparison.roles.of, ALL)
        if comparison.roles.own
        else comparison.roles.of,
        known=excess_of(judged, metric) if metric else None,
        hosts=dict(tables.ranks.select("rank", "host").iter_rows()),
        tables=cache(lambda ranks: tables_of(tables, ranks)),
        named_work=lambda: tables.read(
            "activities", ("rank", "kind", "name"), iterations=numbers, sums=("total_ns", "count")
        ),
        exposed_transfer_ns=transfer_ns,
        least_held_up_ns=_least_held_up(rows) if comparison.missing_ranks else None,
        unmatched_ns=unmatched_ns,
        held_up=None if unmatched_ns is None else _held_up(rows),
        stages=lambda: _stages(comparison),
        spans=spans,
        collectives=lambda: by_collective(
            comparison.collectives(some),
            some,
            exposed(comparison.scope, sorted(tables.ranks["rank"]), some),
        ),
        outside=judged if "outside_ns" in judged.columns else None,
        whole=_story_of_the_run(comparison, metric, default),
    )


def _began(comparison: Comparison, rows: pl.DataFrame) -> Began | None:
    """Who began the first recorded iteration last, if that is apart from the others."""
    wait = rows.filter(pl.col("iteration") == pl.col("iteration").min())["wait_ns"]
    if comparison.began is None or wait.null_count():
        return None
    return Began(comparison.began.ranks[0], int(wait.quantile(0.5, "lower") or 0))


def _judged_metric(rows: pl.DataFrame, blind_ranks: tuple[int, ...]) -> str | None:
    """The metric to judge: work, or loading where waits hide in later phases; None: neither."""
    seeing = rows.filter(~pl.col("rank").is_in(blind_ranks))
    if not seeing["work_ns"].null_count():
        return "work"
    return None if rows["load_ns"].null_count() else "load"


def _story_of_the_run(
    comparison: Comparison, metric: str | None, default: Comparison | None
) -> Story | None:
    """What is true of the whole run, if only a part of it is selected; else None.

    Of the warm-up only what is selected counts. It is that of the default comparison, where this
    was on the same clock, by the same roles and metric, and no warm-up is selected.
    """
    if metric is None or comparison.scope.in_range is None:
        return None
    settling, selected = comparison.selection.settling, {*comparison.selection.numbers}
    if default is not None and selected.isdisjoint(settling):
        known = known_story(comparison, metric, default)
        if known is not None:
            return known
    rows = comparison.rows(all_iterations=True).select(JUDGED)
    rows = without_end(comparison.tables, comparison.clock, rows)
    rows = rows.filter(~pl.col("iteration").is_in({*settling} - selected))
    return story_of(excess_of(_in_one_role(rows, comparison), metric))


def _in_one_role(rows: pl.DataFrame, comparison: Comparison) -> pl.DataFrame:
    """The rows; in one role if each rank has a role of its own, in which it compares with none."""
    return rows.with_columns(role=pl.lit(ALL)) if comparison.roles.own else rows


def _judged_rows(rows: pl.DataFrame, spans: Floats | None, *, of_captures: bool) -> pl.DataFrame:
    """The rows to judge; with `outside_ns`, the work that they leave out, where they leave some.

    The work of a capture is the time between its collectives: how it begins and ends says nothing
    about a rank. Without these times, a rank's work is how late it came to a single collective.

    Args:
        rows: JUDGED columns of the selected iterations.
        spans: `waits.own_spans`; None where that is unknown.
        of_captures: whether each capture is one iteration.
    """
    if not of_captures:
        return rows
    without_phases = lacks_phases(rows)
    if spans is not None:
        work = pl.Series(spans.sum(axis=1).round()).cast(pl.Int64)
        phases = {"other_ns": work} if without_phases else {}
        outside = pl.col("work_ns").fill_null(0) - work
        return rows.sort("rank").with_columns(
            work_ns=work, outside_ns=outside, host_ns=None, **phases
        )
    if not without_phases or rows["wait_ns"].null_count() or not rows["wait_ns"].max():
        return rows
    late = pl.col("wait_ns").max() - pl.col("wait_ns")  # of a single collective
    return rows.with_columns(work_ns=late, other_ns=late, host_ns=None)


def _stages(comparison: Comparison) -> frozenset[tuple[int, ...]]:
    """Ranks that may hold a part of the model, if the job is a pipeline whose roles were not given.

    Those are the members of each communicator that is no whole job, where ranks also send to each
    other; and each rank alone where they share nothing else.
    """
    if comparison.roles.source == "given":
        return frozenset()
    numbers = comparison.selection.numbers
    rows = comparison.tables.read("collectives", ["operation"], iterations=numbers, distinct=True)
    operations = {*rows["operation"].cast(pl.String)}
    if POINT_TO_POINT not in operations:
        return frozenset()
    streams = comparison.matching.streams
    streams = streams.filter(~pl.col("label").cast(pl.String).str.contains(TRANSFERS))
    groups = streams.group_by("group").agg(pl.col("rank").unique().sort())
    ranks = comparison.tables.ranks["rank"].to_list()
    alone = [(rank,) for rank in ranks if len(operations) == 1]
    parts = (tuple(group) for group in groups["rank"].to_list() if len(group) < len(ranks))
    return frozenset([*parts, *alone])


BESIDE = (pl.col("exposed_communication_ns") - pl.col("wait_ns")).clip(0)
"""A rank's exposed communication less its known waits."""

TRANSFER = pl.min_horizontal(BESIDE, "collective_transfer_ns")
"""Of it, what the transfers of matched calls take."""


def _exposed(rows: pl.DataFrame) -> tuple[int, int] | tuple[None, None]:
    """How long transfers, and calls that were not matched, hold up the median rank: sums, ns.

    A rank's exposed communication less its known waits is transfers, as far as its collectives take
    time after all members have arrived. The rest is in calls that were not matched. Both are None
    where they are unknown.
    """
    if rows.select(pl.any_horizontal("wait_ns", "collective_transfer_ns").is_null().any()).item():
        return None, None
    per = rows.group_by("iteration").agg(
        each.quantile(0.5, "lower")
        for each in (TRANSFER.alias("transfer"), (BESIDE - TRANSFER).alias("rest"))
    )
    return int(per["transfer"].sum() or 0), int(per["rest"].sum() or 0)


def _least_held_up(rows: pl.DataFrame) -> int | None:
    """The least exposed communication of a rank, summed over iterations, ns; None: unknown.

    Waits for ranks that have no report are a part of it on every rank that waits for them.
    """
    least = rows.group_by("iteration").agg(pl.col("exposed_communication_ns").min())
    exposed = least["exposed_communication_ns"]
    return None if exposed.null_count() else int(exposed.sum())


def _held_up(rows: pl.DataFrame) -> pl.DataFrame:
    """rank, wait_ns, unmatched_ns: how long waits and calls without a match hold up each rank.

    The latter is less by the transfers of matched calls, also by those behind work, and may be
    negative: ranks can be compared by it.
    """
    unmatched = BESIDE - pl.col("collective_transfer_ns")
    return (
        rows.group_by("rank")
        .agg(pl.col("wait_ns").sum(), unmatched_ns=unmatched.sum())
        .sort("rank")
    )
