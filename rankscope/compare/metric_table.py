"""The metric table: a row per rank and iteration with every metric.

An ingest stores it as the table `rank_iterations`, from which `stored_rows` reads what is needed.
"""

from collections.abc import Collection

import polars as pl

from rankscope.match.records import Roles, Scope
from rankscope.model.kinds import NAMED_PHASES, STEP_PHASES
from rankscope.model.metrics import METRICS, columns_of, compared_metrics
from rankscope.model.metrics import Scope as MetricScope
from rankscope.model.schema import MEASURES
from rankscope.model.tables import metric_dtype
from rankscope.store.tables import RunTables

STORED = "rank_iterations"
"""The table of the database that holds the metric table on the default clock."""

NUMBERING = ("epoch", "number")
"""How the report itself numbers an iteration."""

WHO = ("host", "role")
"""Columns that depend on the rank alone."""


def metric_table(scope: Scope, roles: Roles, waits: pl.DataFrame) -> pl.DataFrame:
    """The metric table, computed.

    Args:
        scope: the ranks and the clock.
        waits: `Waits.by_iteration`. Without all reports of the job they are unknown.

    Returns:
        A row per rank and complete iteration: rank, iteration, epoch, number, host, role and the
        column of every metric; null is unknown.
    """
    from rankscope.model.arrays import looked_up

    tables, blind = scope.tables, scope.blind_ranks
    ranks = tables.ranks.select("rank", "host").with_columns(role=role_of(roles))
    complete = tables.iterations.filter("complete").select("rank", "iteration", *NUMBERING)
    columns = [name for name in MEASURES if name != "clock"]
    measures = tables.read("measures", columns, clock=scope.clock)
    frame = looked_up(complete.join(ranks, on="rank").sort("rank", "iteration"), measures)
    if scope.missing_ranks or tables.ranks.height < 2:
        frame = frame.with_columns(
            pl.lit(None, metric_dtype(each)).alias(each.column) for each in compared_metrics()
        )
    else:
        exposed = pl.col("exposed_communication_ns")
        frame = looked_up(frame, waits).with_columns(
            wait_ns=pl.when(exposed.is_null())
            .then(None)
            .when(exposed == 0)
            .then(0)
            .otherwise("wait_ns")
        )
    if blind:
        frame = frame.with_columns(
            pl.when(~pl.col("rank").is_in(blind)).then(each.column).alias(each.column)
            for each in METRICS.values()
            if each.scope is not MetricScope.RANK
        )
    for each in METRICS.values():
        if each.column not in frame.columns:
            raise ValueError(
                f"metric {each.name}: nothing computes its column {each.column}; the docstring of "
                "rankscope/model/metrics.py says where to"
            )
    order = ["rank", "iteration", *NUMBERING, *WHO]
    return frame.select(*order, *columns_of(METRICS))


def stored_rows(
    tables: RunTables,
    roles: Roles,
    columns: Collection[str],
    ranks: Collection[int] | None = None,
    iterations: Collection[int] | None = None,
) -> pl.DataFrame:
    """rank, iteration, host, role and `columns` of the stored metric table.

    Args:
        columns: of the table `rank_iterations`.
        ranks, iterations: only rows of these; None: of all.
    """
    who = tables.ranks.select("rank", "host").sort("rank").with_columns(role=role_of(roles))
    names = ["rank", "iteration", *columns]
    rows = tables.read(STORED, names, ranks=ranks, iterations=iterations)
    at = who["rank"].search_sorted(rows["rank"])
    return rows.with_columns(who.select(WHO)[at].get_columns())


def role_of(roles: Roles) -> pl.Expr:
    """The role of each row's rank."""
    return pl.col("rank").replace_strict(roles.of, return_dtype=pl.String)


def lacks_phases(rows: pl.DataFrame) -> bool:
    """Whether rows are about whole captures without phases, which are judged by arrivals."""
    phases = columns_of(NAMED_PHASES)
    return rows["iteration"].n_unique() == 1 and all(not rows[name].sum() for name in phases)


def without_end(tables: RunTables, clock: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows without unusual work at the end of the record.

    Nobody is seen to wait for what follows the last collective of the record. So of that, no more
    than the rank's median of each phase counts. From its end backwards it is `other`, as far as
    that follows the last gradient reduction, then the phases of a step, the last one first.

    Args:
        tables: of the run.
        clock: of the rows.
        rows: of the metric table in the selected iterations.
    """
    last = tables.iterations["iteration"].max()
    if not isinstance(last, int) or last not in rows["iteration"]:
        return rows
    ends = tables.read("collectives", ["rank", "end_ns"], iterations=[last])
    measured = columns_of(("iteration", "work", "time_to_all_reduce"))
    columns = ["rank", "window_start_ns", *measured]
    begin, length, work, reduced = map(pl.col, columns[1:])
    after = (
        tables.read("measures", columns, iterations=[last], clock=clock)
        .join(ends.group_by("rank").agg(pl.col("end_ns").max()), on="rank")
        .select("rank", left=begin + length - pl.col("end_ns"), reduced=work - reduced)
    )
    phases = columns_of(("other", *reversed(STEP_PHASES)))
    usual = rows.group_by("rank").agg(pl.col(phases).median())
    is_last = pl.col("iteration") == last
    cut = rows.filter(is_last).join(usual, on="rank", suffix="_usual")
    cut = cut.join(after, on="rank", how="left")
    reduced = (pl.col("reduced") - pl.col("optimizer_ns").fill_null(0)).clip(0)
    lengths = {name: pl.col(name) for name in phases}
    lengths["other_ns"] = pl.min_horizontal("other_ns", reduced)
    left, counted = pl.col("left").fill_null(0), pl.col("work_ns")
    kept = {}
    for name, spent in lengths.items():
        more = (pl.col(name) - pl.col(f"{name}_usual")).clip(0).fill_null(0).cast(pl.Int64)
        more = pl.min_horizontal(more, left.clip(0), spent)
        kept[name], counted, left = pl.col(name) - more, counted - more, left - spent.fill_null(0)
    cut = cut.with_columns(**kept, work_ns=counted)
    return pl.concat([rows.filter(~is_last), cut.select(rows.columns)])
