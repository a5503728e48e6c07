"""Tables that hold what comparing all ranks gave: each is made anew when reports were written."""

from __future__ import annotations

import duckdb
import polars as pl

TABLES = {
    "rank_iterations": "A row per rank and iteration with every metric on the clock named in meta; "
    "null is unknown",
    "answers": "What the commands say without options, as JSON; of which version of rankscope",
    "clocks": "A row per rank whose clock is tied to the lowest rank's",
    "communicators": "A row per group of ranks that call collectives together",
    "streams": "A row per rank and kind of call: which group they are made in",
    "unmatched": "A row per rank, group and reason for which calls have no counterparts",
    "scores": "A row per rank: means over the chosen iterations, and who waited for it",
    "by_iteration": "A row per chosen iteration: how far ranks were apart",
    "what_if": "What the run would save, by replay",
}
"""Name → meaning."""

COLUMNS = {
    "rank": "Rank of the job",
    "iteration": "Iteration number, the same step on every rank",
    "epoch": "How often the numbers had started over",
    "number": "Number as the range's name or payload says",
    "flagged": "Whether this rank stood out in this iteration; null where that cannot be told",
    "cause": "Phase with the largest excess where flagged",
    "value": "The answer, as JSON",
    "offset_ns": "To add to the rank's UTC to get the lowest rank's, in the middle of the run",
    "drift_ppm": "How the offset grows, microseconds per second",
    "residual_ns": "To which the clocks then agree",
    "group": "Number of the group",
    "place": "host: blocking calls; device: kernels",
    "communicator": "The rank's own name for the group: their source or stream",
    "label": "What its collectives have in common: name, or stream and habits",
    "members": "How many ranks it has",
    "ends_error_ns": "How far the ends of its members scatter: error of waits by duration",
    "clock_error_ns": "Largest residual of its members: error of waits by arrival",
    "apart_ns": "Median difference of waits by duration and by arrival",
    "shown": "The waits that are shown: by duration or by arrival",
    "operation": "Kind of collective",
    "reason": "Why they are left out",
    "count": "How many",
    "last_arriver_share": "Share of its collectives that the rank came last to",
    "cost_ns": "What others waited for it, summed",
    "gain_ns": "What mending it alone would save",
    "spread_ns": "Largest less smallest work",
    "slowest_rank": "Who needed most work",
    "flagged_ranks": "Who stood out, worst first",
    "cluster": "normal, or slow and why",
    "kind": "verdict, rank, role, phase, iterations or all",
    "name": "What it is about",
    "time_ns": "What the chosen iterations would take",
    "gain": "Saved share of their time",
}
"""Name → meaning; other columns are metrics."""


def replace_derived(connection: duckdb.DuckDBPyConnection, tables: dict[str, pl.DataFrame]) -> None:
    """Put `tables` in place of those there were; of `TABLES` none other stays."""
    for table, meaning in TABLES.items():
        connection.execute(f"drop table if exists {table}")
        if table not in tables:
            continue
        connection.register("incoming", tables[table])
        connection.execute(f"create table {table} as select * from incoming")
        connection.unregister("incoming")
        connection.execute(f"comment on table {table} is {_quoted(meaning)}")
        for name in tables[table].columns:
            comment = COLUMNS.get(name, f"Metric {name.removesuffix('_ns')}, ns")
            connection.execute(f'comment on column {table}."{name}" is {_quoted(comment)}')


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
