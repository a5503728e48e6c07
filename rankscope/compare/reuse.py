"""Parts of the default comparison, which an ingest stores, that other comparisons reuse.

They are the results that the options do not change: with the default options all of them, with a
range of iterations the matching of all iterations, with another statistic the verdict. All others
are computed.
"""

import polars as pl
from msgspec.structs import replace

from rankscope.compare import scores as rank_scores
from rankscope.compare.comparison import Comparison
from rankscope.compare.metric_table import stored_rows
from rankscope.judge.claims import Story
from rankscope.match.records import Scope
from rankscope.match.selection import common_iterations
from rankscope.match.wait_sums import Waits
from rankscope.model.metrics import METRICS


def selects_the_same(comparison: Comparison, default: Comparison) -> bool:
    """Whether the same iterations are selected on the same clock, and roles are not given."""
    return (
        comparison.comparable
        and comparison.scope.options.roles is None
        and comparison.clock == default.clock
        and comparison.selection.numbers == default.selection.numbers
    )


def rescored(comparison: Comparison, default: Comparison) -> Comparison:
    """The answers of the default comparison, where at most the statistic differs."""
    comparison = replace(
        comparison,
        _waits=default._waits,
        _outliers=default._outliers,
        _scores=default._scores,
        _verdict=default._verdict,
        _summary=default._summary,
    )
    statistic = comparison.options.statistic
    if statistic == default.options.statistic or default._summary is None:
        return comparison
    rows = comparison.rows()
    scores = rank_scores.scores(rows, [*METRICS], statistic)
    metrics = rank_scores.summaries(rows, scores)
    return replace(comparison, _scores=scores, _summary=replace(default._summary, metrics=metrics))


def waits_by_rank(scope: Scope, default: Comparison) -> pl.DataFrame | None:
    """`Waits.by_rank` where the same iterations are selected as before, or all; else None."""
    numbers = scope.selection.numbers
    if numbers == default.selection.numbers:
        return default._waits
    all_selected = numbers == (*common_iterations(scope.tables.iterations),)
    return default._waits_of_all if all_selected else None


def host_clock_waits(comparison: Comparison, default: Comparison) -> Waits | None:
    """The waits on the host's clock if no call of the host communicates: none is exposed there.

    The other waits do not depend on the clock. None where they are not known.
    """
    if comparison.clock != "host" or not comparison.comparable or comparison.roles.links:
        return None
    by_rank, of_all = waits_by_rank(comparison.scope, default), default._waits_of_all
    blocking = "host" in default.matching.streams["place"]
    if blocking or default.table is not None or by_rank is None or of_all is None:
        return None
    columns = ("collective_wait_ns", "collective_transfer_ns")
    rows = stored_rows(comparison.tables, default.roles, columns).select(
        "rank", "iteration", *columns
    )
    nothing = {name: pl.lit(0, pl.Int64) for name in ("cost_ns", "gain_ns")}
    return Waits(
        rows.with_columns(wait_ns=pl.lit(None, pl.Int64)),
        by_rank.with_columns(**nothing),
        of_all.with_columns(**nothing),
    )


def known_story(comparison: Comparison, metric: str, default: Comparison) -> Story | None:
    """The story of the whole run, where the clock, the roles and the metric are the same."""
    if default.clock != comparison.clock or default.roles.of != comparison.roles.of:
        return None
    known = default.outliers
    return known.story if known.metric == metric else None
