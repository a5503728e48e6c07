"""The stages of a comparison, each of which takes the results of those before it.

See the package docstring for the design.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
from msgspec.structs import replace

from rankscope.compare import scores as rank_scores
from rankscope.compare.comparison import Comparison, Outliers, Stage, Summary, calls_again
from rankscope.compare.iteration_clusters import by_iteration
from rankscope.compare.metric_table import metric_table
from rankscope.compare.reuse import host_clock_waits, rescored, selects_the_same, waits_by_rank
from rankscope.compare.run_facts import began_apart
from rankscope.compare.scenarios import scenarios, whatever_the_verdict
from rankscope.compare.verdict_inputs import JUDGED, verdict_inputs
from rankscope.judge.healing import Prices, iterations_to_play
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.replay import Replay
from rankscope.judge.replay_inputs import ReplayParts, replay_parts
from rankscope.judge.rules import judge
from rankscope.judge.transfers import slow_transfers
from rankscope.match.communication import (
    RunCalls,
    match_calls,
    roles_by_gradients,
    roles_by_option,
    waits_of,
)
from rankscope.match.iteration_matching import check_pairing
from rankscope.match.point_to_point import NAMED_SENDS
from rankscope.match.selection import scope_of, without_lost
from rankscope.match.step_numbers import numbers_by_ends
from rankscope.match.wait_sums import Waits
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.model.metrics import METRICS
from rankscope.model.options import Options
from rankscope.store.tables import RunTables
from rankscope.util.memory import give_back

MOST_CALLS = 800_000
"""Calls of collectives above which only a sample of the iterations is replayed."""


def compare(
    tables: RunTables,
    options: Options,
    reuse: Comparison | None = None,
    until: Stage = Stage.WHAT_IF,
) -> Comparison:
    """Compare the ranks of a run.

    Args:
        reuse: the comparison of the same run with the default options, whose metric table the
            database stores. Results that the options do not change are taken from it.
        until: the last stage to compute. Stages that are reused may go further.

    Raises:
        UsageError: an option does not fit the run, or selects nothing.
        ReportError: no iterations can be compared, or those without numbers cannot be paired.
    """
    rank_scores.check_statistic(options.statistic)
    comparison, calls = _matched(tables, options, reuse)
    if until < Stage.TABLE:
        return comparison
    if reuse is not None and calls is None and selects_the_same(comparison, reuse):
        return rescored(comparison, reuse)
    if reuse is None or calls is not None or comparison.clock != reuse.clock:
        waits, calls = _waits(comparison, calls, reuse)
        comparison = _tabled(comparison, waits)
        del waits
    elif comparison.comparable:
        comparison = replace(comparison, _waits=waits_by_rank(comparison.scope, reuse))
    if until < Stage.OUTLIERS:
        return comparison
    if not comparison.comparable:
        if until > Stage.OUTLIERS:
            _ = comparison.selection  # raises
        return replace(comparison, _outliers=Outliers(None, None, None))
    played = comparison.rows([*METRICS], all_iterations=comparison.scope.in_range is None)
    rows = played.filter(pl.col("iteration").is_in(comparison.selection.numbers))
    played = played.select(JUDGED)  # the other columns of all iterations are dropped
    inputs = verdict_inputs(comparison, rows, reuse)
    if until < Stage.VERDICT:
        return replace(comparison, _outliers=_outliers(inputs))
    with ThreadPoolExecutor(1) as pool:
        scored = pool.submit(_scored, comparison, inputs, rows, until)
        by_rank = comparison._waits
        if until >= Stage.SUMMARY and by_rank is None:
            calls = calls or calls_again(comparison, comparison.scope.in_range)
            by_rank = waits_of(comparison.scope, calls).by_rank
        parts, instances, spread = _replay_parts(comparison, calls, played, inputs)
        del calls, played  # there is no memory for them beside the replay
        give_back()
        prices = _prices(comparison, inputs, parts, instances, spread)
        comparison = replace(scored.result(), _waits=by_rank)
    del rows
    give_back()
    comparison = _judged(comparison, inputs, prices, until)
    give_back()
    return comparison


def _matched(
    tables: RunTables, options: Options, reuse: Comparison | None
) -> tuple[Comparison, RunCalls | None]:
    """The clock, the iterations, the collectives and the roles; the calls if they were matched."""
    scope = scope_of(tables, options, None if reuse is None else reuse.scope.reused())
    by_option = roles_by_option(scope)
    links = [] if by_option is None else by_option.links
    if reuse is not None and not links:
        same = scope.comparable and scope.selection.numbers == reuse.selection.numbers
        began = reuse.began if same else began_apart(scope, reuse.matching.clocks)
        return Comparison(scope, reuse.matching, by_option or reuse.roles, began), None
    calls = match_calls(scope, links)  # transfers that --roles pairs change the matching
    matching = calls.matching
    if scope.matched_by == "ordinal" or scope.shifts:
        check_pairing(
            scope.tables.iterations,
            lambda: scope.tables.read("collectives", ["rank", "iteration", "end_ns"]),
            matching.clocks,
            scope.utc_starts,
        )
    elif reuse is None and any(shifted := numbers_by_ends(scope, calls.matched)):
        scope = scope_of(tables, options, shifted=shifted)
        calls = match_calls(scope, links)
        matching = calls.matching
    if reuse is None:
        scope = without_lost(scope, calls.matched.lacking)
    roles = by_option or roles_by_gradients(scope, calls.matched)
    comparison = Comparison(scope, matching, roles, began_apart(scope, matching.clocks))
    give_back()
    return comparison, calls


def _waits(
    comparison: Comparison, calls: RunCalls | None, reuse: Comparison | None
) -> tuple[Waits, RunCalls | None]:
    """The waits of all iterations, and the calls if all of them are replayed."""
    if calls is None:
        waits = None if reuse is None else host_clock_waits(comparison, reuse)
        if waits is not None:
            return waits, None
        calls = calls_again(comparison)
    waits = waits_of(comparison.scope, calls)
    few = comparison.roles.links or calls.matched.summary.calls <= MOST_CALLS
    return waits, calls if few else None


def _tabled(comparison: Comparison, waits: Waits) -> Comparison:
    """Every metric of every rank and iteration."""
    give_back()
    table = metric_table(comparison.scope, comparison.roles, waits.by_iteration)
    return replace(
        comparison, table=table, _waits=waits.by_rank, _waits_of_all=waits.by_rank_of_all
    )


def _outliers(inputs: VerdictInputs) -> Outliers:
    """Who stands out in which iteration, by the input of the verdict."""
    metric = inputs.run.metric
    if metric is None:
        return Outliers(None, None, None)
    return Outliers(metric, inputs.flags if inputs.run.ranks > 1 else None, inputs.story)


def _scored(
    comparison: Comparison, inputs: VerdictInputs, rows: pl.DataFrame, until: Stage
) -> Comparison:
    """The outliers, the score of each rank, and the results over the selected iterations.

    `rows` of the metric table are those of the selected iterations.
    """
    scores = rank_scores.scores(rows, [*METRICS], comparison.options.statistic)
    comparison = replace(comparison, _outliers=_outliers(inputs), _scores=scores)
    if until < Stage.SUMMARY:
        return comparison
    summary = Summary(
        metrics=rank_scores.summaries(rows, scores),
        efficiency=rank_scores.efficiency(rows),
        by_iteration=by_iteration(
            rows, comparison.outliers.frame, comparison.selection.numbers, "work"
        ),
        what_if=None,
    )
    return replace(comparison, _summary=summary)


def _replay_parts(
    comparison: Comparison, calls: RunCalls | None, played: pl.DataFrame, inputs: VerdictInputs
) -> tuple[ReplayParts | None, pl.DataFrame, list[int]]:
    """The input of the replay, `RunCalls.instances`, and the iterations that stand for all.

    None where the work of some rank is unknown or not exact, or its communication is not
    understood; no instances where it is unknown. Where ranks have no report, sends between others
    are known if they name their peers: each is seen from both ends.

    Args:
        calls: of all iterations that can be replayed, where they are matched already.
        played: JUDGED columns of the metric table in these iterations.
    """
    missing = inputs.run.missing_ranks or inputs.run.blind_ranks
    groups = comparison.matching.groups.filter(pl.col("label").str.contains(NAMED_SENDS))["group"]
    if inputs.run.metric != "work" or inputs.run.ranks < 2 or (missing and groups.is_empty()):
        return None, pl.DataFrame(), []
    in_range = comparison.scope.in_range
    if calls is None and in_range is not None:
        calls = calls_again(comparison, in_range)
    matched = comparison.matching.summary if calls is None else calls.matched.summary
    few, spread = None, inputs.numbers
    if matched.calls > MOST_CALLS:
        most = round(MOST_CALLS / (matched.calls / matched.iterations))
        chosen, spread = iterations_to_play(inputs.excess, most)
        few = tuple(chosen)
    calls = calls or calls_again(comparison, few)
    instances = calls.instances()
    if missing:
        return None, instances.filter(pl.col("group").is_in(groups.implode())), spread
    unsure = comparison.times_unsure
    parts = None if unsure else replay_parts(comparison.scope, calls, played, few)
    return parts, instances, spread


def _prices(
    comparison: Comparison,
    inputs: VerdictInputs,
    parts: ReplayParts | None,
    instances: pl.DataFrame,
    spread: list[int],
) -> Prices | None:
    """What healing saves, by replay or as bounds; None where communication is unknown."""
    if instances.is_empty():
        return None
    replay = None if parts is None else Replay(*parts, inputs.role_of)
    members = comparison.matching.streams.group_by("group").agg(
        members=pl.col("rank").unique().sort(), on_host=(pl.col("place") == "host").any()
    )
    labels = comparison.matching.groups.select("group", "label", "ends_error_ns")
    groups = members.join(labels, on="group", how="left")
    service = instances["transfer"].cast(pl.Float64).to_numpy()
    if replay is not None:
        played = replay.service(instances.height)
        sends = instances.select(pl.col("operation").cast(pl.String) == POINT_TO_POINT).to_series()
        service = np.where(sends.to_numpy() & np.isnan(played), service, played)
    slow = slow_transfers(instances, service, inputs.numbers, groups, inputs.hosts, spread)
    return Prices(inputs.excess, replay, slow)


def _judged(
    comparison: Comparison, inputs: VerdictInputs, prices: Prices | None, until: Stage
) -> Comparison:
    """Who is slow, and what a fix would save."""
    summary = comparison._summary
    if prices is None or not prices.played.any() or summary is None or until < Stage.WHAT_IF:
        return replace(comparison, _verdict=judge(inputs, prices))
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(whatever_the_verdict, inputs, prices)
        verdict = judge(inputs, prices)
        what_if = scenarios(inputs, prices, verdict, others.result())
    return replace(comparison, _verdict=verdict, _summary=replace(summary, what_if=what_if))
