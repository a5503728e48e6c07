"""The tables of a database that result from comparing its ranks; all are replaced together."""

import polars as pl

from rankscope.model.columns import (
    FLAG,
    INTEGER,
    OF_AMOUNTS,
    OF_DRIFTS,
    OF_LENGTHS,
    OF_NUMBERS,
    OF_OFFSETS,
    OF_RANKS,
    OF_SHARES,
    OF_SIZES,
    OF_SUMS,
    TEXT,
    Column,
    Table,
    nullable,
)
from rankscope.model.metrics import METRICS, Metric
from rankscope.model.tables import ITERATION, RANK, metric_column
from rankscope.util.rank_list import MOST_RANKS

NUMBER = pl.Float64()


def score_column(metric: Metric) -> Column:
    """The column of a rank's score."""
    dtype = INTEGER if metric.is_time else NUMBER
    limits = metric_column(metric).limits
    return nullable(dtype, metric.comment, limits)


GROUP = Column(INTEGER, "Number of the group", OF_AMOUNTS)
LABEL = Column(TEXT, "What its collectives have in common: name, or stream and habits")

WAITED = {
    "last_arriver_share": nullable(
        NUMBER, "Share of its collectives in which the rank arrived last", OF_SHARES
    ),
    "cost_ns": nullable(INTEGER, "Sum of what others waited for it", OF_SUMS),
    "gain_ns": nullable(INTEGER, "What fixing it alone would save", OF_SUMS),
}
"""Who waited for a rank; null is unknown."""

CAUSE = nullable(TEXT, "Phase with the largest excess where flagged")

COMPARED_TABLES = {
    "rank_iterations": Table(
        "A row per rank and iteration with every metric on the clock named in meta; null is "
        "unknown",
        {
            "rank": RANK,
            "iteration": ITERATION,
            "epoch": Column(INTEGER, "How often the numbers had started over", OF_AMOUNTS),
            "number": Column(INTEGER, "Number as the range's name or payload says", OF_NUMBERS),
            **{each.column: metric_column(each) for each in METRICS.values()},
            "flagged": nullable(
                FLAG, "Whether this rank stood out in this iteration; null where that is unknown"
            ),
            "cause": CAUSE,
            "selected": Column(
                FLAG, "Whether the iteration is among the compared ones, from which scores are made"
            ),
        },
        key=("rank", "iteration"),
        refers={"ranks": ("rank",)},
    ),
    "answers": Table(
        "What the commands say without options, as JSON, and the version of rankscope that made it",
        {
            "name": Column(TEXT, "What it is about"),
            "value": Column(TEXT, "The answer, as JSON"),
        },
        key=("name",),
    ),
    "clocks": Table(
        "A row per rank whose clock is tied to the lowest rank's",
        {
            "rank": RANK,
            "offset_ns": Column(
                INTEGER,
                "To add to the rank's UTC to get the lowest rank's, in the middle of the run",
                OF_OFFSETS,
            ),
            "drift_ppm": Column(NUMBER, "How the offset grows, microseconds per second", OF_DRIFTS),
            "residual_ns": Column(
                INTEGER, "Largest disagreement of the clocks after that correction", OF_LENGTHS
            ),
        },
        key=("rank",),
        refers={"ranks": ("rank",)},
    ),
    "communicators": Table(
        "A row per group of ranks that call collectives together",
        {
            "group": GROUP,
            "label": LABEL,
            "members": Column(INTEGER, "Number of ranks in it", OF_SIZES),
            "ends_error_ns": nullable(
                INTEGER,
                "How far the ends of its members scatter: error of waits by duration",
                OF_LENGTHS,
            ),
            "clock_error_ns": nullable(
                INTEGER, "Largest residual of its members: error of waits by arrival", OF_LENGTHS
            ),
            "apart_ns": nullable(
                INTEGER, "Median difference of waits by duration and by arrival", OF_LENGTHS
            ),
            "shown": Column(
                TEXT,
                "The waits that are shown: by duration or by arrival",
                names=("duration", "arrival"),
            ),
        },
        key=("group",),
    ),
    "streams": Table(
        "A row per rank and kind of call: which group they are made in",
        {
            "rank": RANK,
            "place": Column(
                TEXT, "host: blocking calls; device: kernels", names=("host", "device")
            ),
            "communicator": Column(TEXT, "The rank's own name for the group: its source or stream"),
            "label": LABEL,
            "group": GROUP,
        },
        refers={"ranks": ("rank",)},
    ),
    "unmatched": Table(
        "A row per rank, group and reason for which calls have no counterparts",
        {
            "rank": RANK,
            "label": LABEL,
            "operation": Column(TEXT, "Kind of collective"),
            "reason": Column(TEXT, "Why they are left out"),
            "count": Column(pl.UInt32(), "Number of calls", (0, 2**32 - 1)),
        },
        key=("rank", "label", "operation", "reason"),
        refers={"ranks": ("rank",)},
    ),
    "scores": Table(
        "A row per rank: means over the selected iterations, and who waited for it",
        {"rank": RANK, **{each.column: score_column(each) for each in METRICS.values()}, **WAITED},
        key=("rank",),
        refers={"ranks": ("rank",)},
        complete={"ranks": "rank"},
    ),
    "waits_of_all": Table(
        "A row per rank: who waited for it, in all iterations that are complete on every rank, "
        "warm-up too",
        {"rank": RANK, **WAITED},
        key=("rank",),
        refers={"ranks": ("rank",)},
    ),
    "by_iteration": Table(
        "A row per selected iteration: how far ranks were apart",
        {
            "iteration": ITERATION,
            "iteration_ns": metric_column(METRICS["iteration"]),
            "spread_ns": nullable(INTEGER, "Largest less smallest work", OF_LENGTHS),
            "slowest_rank": nullable(INTEGER, "Rank that needed most work", OF_RANKS),
            "cause": CAUSE,
            "flagged_ranks": nullable(
                pl.List(pl.Int64()),
                "Ranks that stood out, worst first",
                OF_RANKS,
                most_items=MOST_RANKS,
            ),
            "cluster": nullable(TEXT, "normal, or slow and why"),
        },
        key=("iteration",),
        refers={"rank_iterations": ("iteration",)},
    ),
    "what_if": Table(
        "What the run would save, by replay",
        {
            "kind": Column(
                TEXT,
                "verdict, rank, role, phase, iterations or all",
                names=("verdict", "rank", "role", "phase", "iterations", "all"),
            ),
            "name": Column(TEXT, "What it is about"),
            "time_ns": Column(INTEGER, "What the selected iterations would take", OF_SUMS),
            "gain_ns": Column(INTEGER, "What fixing it alone would save", OF_SUMS),
            "gain": Column(NUMBER, "Saved share of their time", OF_SHARES),
        },
        key=("kind", "name"),
    ),
}
"""Name → table."""
