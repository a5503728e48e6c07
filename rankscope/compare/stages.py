"""The stages of a comparison: each takes the results of those before it.

See the package docstring for the design.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import polars as pl

from rankscope.compare.breakdowns import by_collective
from rankscope.compare.comparison import (
    Comparison,
    Outliers,
    Stage,
    Summary,
    run_collectives,
)
from rankscope.compare.metric_table import metric_table, stored_rows
from rankscope.judge import scores as compare_scores
from rankscope.judge.causes.registry import tables_of
from rankscope.judge.excess import excess_of
from rankscope.judge.healing import sampled
from rankscope.judge.inputs import RunSummary, VerdictInputs
from rankscope.judge.iteration_clusters import by_iteration
from rankscope.judge.replay import Replay
from rankscope.judge.rules import judge
from rankscope.judge.scenarios import scenarios
from rankscope.judge.story import Story, story_of
from rankscope.judge.transfers import SlowTransfers, slow_transfers
from rankscope.match.communication import RunCollectives, roles_by_gradients, roles_by_option
from rankscope.match.iteration_matching import check_pairing
from rankscope.match.point_to_point import OPERATION as SEND_RECEIVE
from rankscope.match.selection import Scope, common_iterations, scope_of
from rankscope.match.wait_sums import Waits
from rankscope.match.waits import own_spans
from rankscope.model.metrics import METRICS, PHASE_METRICS, column_of, columns_of
from rankscope.model.options import Options
from rankscope.model.results import MetricSummary
from rankscope.sources.recorders import recorder_of
from rankscope.store.tables import RunTables
from rankscope.util.memory import give_back
from rankscope.util.robust import Floats

JUDGED = ("rank", "role", "iteration", *columns_of(("work", "iteration", "wait", *PHASE_METRICS)))
"""The columns of the metric table that a verdict is found from, and a run is played again from."""

FEW_ITERATIONS = 3
"""Up to so many iterations, who is slow follows from the collectives in them."""

MOST_CALLS = 1_000_000
"""Calls of collectives above which a sample of the iterations is played again."""


def compare(
    tables: RunTables,
    options: Options,
    reuse: Comparison | None = None,
    until: Stage = Stage.SUMMARY,
) -> Comparison:
    """Compare the ranks of a run.

    Args:
        tables: the run.
        options: how to compare.
        reuse: the comparison of the same run with the default options, whose metric table the
            database stores. What the options leave alone is taken from it.
        until: the last stage to compute. Stages that are reused may go further.

    Raises:
        UsageError: an option does not fit the run, or selects nothing.
        ReportError: no iterations can be compared, or those without numbers cannot be paired.
    """
    compare_scores.check_statistic(options.statistic)
    scope = scope_of(tables, options, None if reuse is None else reuse.scope.reused())
    given = roles_by_option(scope)
    links = [] if given is None else given.links
    if reuse is None or links:  # transfers that --roles pairs change the matching
        collectives = RunCollectives(scope, links)
        matching = collectives.matching()
        if scope.matched_by == "ordinal":
            check_pairing(scope.tables.iterations, matching.clocks, scope.utc_starts)
        roles = given or roles_by_gradients(scope, collectives.calls()[0])
        found = Comparison(scope, matching, roles)
        give_back()
    else:
        found = Comparison(scope, reuse.matching, given or reuse.roles)
        collectives = run_collectives(found, every=scope.clock != reuse.clock)
    if until < Stage.TABLE:
        return found
    if reuse is None or links or scope.clock != reuse.clock:
        waits = _waits_of_nobody(found, reuse) or collectives.waits()
        found = replace(found, _waits=waits.by_rank, _waits_of_all=waits.by_rank_of_all)
        if not links and collectives.size()[0] > MOST_CALLS:  # a replay plays some of them
            collectives = run_collectives(found)
        give_back()
        table = metric_table(scope, found.roles, waits.by_iteration)
        del waits
        found = replace(found, table=table)
    elif found.comparable and given is None and scope.selection.numbers == reuse.selection.numbers:
        return _rescored(found, reuse)
    elif found.comparable:
        found = replace(found, _waits=_waits_reused(scope, reuse))
    if until < Stage.OUTLIERS:
        return found
    found = _judged(found, collectives, until, reuse)
    give_back()
    return found


def _waits_reused(scope: Scope, reuse: Comparison) -> pl.DataFrame | None:
    """`Waits.by_rank` where the same iterations are selected as before, or all; else None."""
    numbers = scope.selection.numbers
    if numbers == reuse.selection.numbers:
        return reuse._waits
    every = numbers == (*common_iterations(scope.tables.iterations),)
    return reuse._waits_of_all if every else None


def _waits_of_nobody(found: Comparison, reuse: Comparison | None) -> Waits | None:
    """The waits on the host's clock if no call of the host communicates: none is exposed there.

    The other waits do not depend on the clock. None where they are not known.
    """
    if reuse is None or found.clock != "host" or not found.comparable or found.roles.links:
        return None
    by_rank, of_all = _waits_reused(found.scope, reuse), reuse._waits_of_all
    blocking = "host" in reuse.matching.streams["place"]
    if blocking or reuse.table is not None or by_rank is None or of_all is None:
        return None
    columns = ("collective_wait_ns", "collective_transfer_ns")
    rows = stored_rows(found.tables, reuse.roles, columns).select("rank", "iteration", *columns)
    nothing = {name: pl.lit(0, pl.Int64) for name in ("cost_ns", "gain_ns")}
    return Waits(
        rows.with_columns(wait_ns=pl.lit(None, pl.Int64)),
        by_rank.with_columns(**nothing),
        of_all.with_columns(**nothing),
    )


def _rescored(found: Comparison, reuse: Comparison) -> Comparison:
    """The same iterations on the same clock: at most the statistic differs."""
    found = replace(
        found,
        _waits=reuse._waits,
        _outliers=reuse._outliers,
        _scores=reuse._scores,
        _verdict=reuse._verdict,
        _summary=reuse._summary,
    )
    statistic = found.options.statistic
    if statistic == reuse.options.statistic or reuse._summary is None:
        return found
    rows = found.rows()
    scores = compare_scores.scores(rows, [*METRICS], statistic)
    metrics = _metrics(rows, scores)
    return replace(found, _scores=scores, _summary=replace(reuse._summary, metrics=metrics))


def _judged(
    found: Comparison, collectives: RunCollectives, until: Stage, reuse: Comparison | None
) -> Comparison:
    """The stages from the outliers on."""
    if not found.comparable:
        if until > Stage.OUTLIERS:
            _ = found.selection  # raises
        return replace(found, _outliers=Outliers(None, None, None))
    played = _played_rows(found)
    numbers = found.selection.numbers
    rows = played.filter(pl.col("iteration").is_in(numbers))
    played = played.select(JUDGED)  # the other columns of all iterations are let go
    metric = _judged_metric(rows, found.scope.blind_ranks)
    story = _story_of_the_run(found, metric, reuse)
    inputs = _verdict_inputs(found, collectives, played, metric, story, _exposed_transfer(rows))
    several = found.tables.ranks.height > 1
    flags = None if metric is None or not several else inputs.flags
    story = None if metric is None else inputs.story
    found = replace(found, _outliers=Outliers(metric, flags, story))
    if until < Stage.VERDICT:
        return found
    if until >= Stage.SUMMARY and found._waits is None:
        # before a replay, which has no room for the collectives
        found = replace(found, _waits=collectives.waits().by_rank)
    scores = compare_scores.scores(rows, [*METRICS], found.options.statistic)
    found = replace(found, _scores=scores)
    if until >= Stage.SUMMARY:
        summary = Summary(
            metrics=_metrics(rows, scores),
            efficiency=compare_scores.efficiency(rows),
            by_iteration=by_iteration(rows, flags, numbers, "work"),
            what_if=None,
        )
        found = replace(found, _summary=summary)
    del rows
    give_back()
    verdict = judge(inputs)
    found = replace(found, _verdict=verdict)
    if found._summary is None or not several:
        return found
    return replace(found, _summary=replace(found._summary, what_if=scenarios(inputs, verdict)))


def _story_of_the_run(
    found: Comparison, metric: str | None, reuse: Comparison | None
) -> Story | None:
    """What is true of the whole run, if only a part of it is selected; else None.

    That of the default comparison, where it was on the same clock, by the same roles and metric.
    """
    if metric is None or found.scope.in_range is None:
        return None
    if reuse is not None and reuse.clock == found.clock and reuse.roles.of == found.roles.of:
        known = reuse.outliers
        if known.metric == metric and known.story is not None:
            return known.story
    rows = found.rows(all_iterations=True).select(JUDGED)
    rows = rows.filter(~pl.col("iteration").is_in(found.selection.settling))
    return story_of(excess_of(rows, metric), _hosts_of(found))


def _judged_rows(rows: pl.DataFrame, spans: Floats | None) -> pl.DataFrame:
    """The rows, with what lies between collectives as the work of a capture without phases.

    Where a capture begins and ends says nothing of a rank; who arrives late does.
    """
    phases = [column_of(name) for name in PHASE_METRICS if name != "other"]
    whole = rows["iteration"].n_unique() == 1 and all(not rows[name].sum() for name in phases)
    if not whole:
        return rows
    if spans is not None:
        work = pl.Series(spans.sum(axis=1).round()).cast(pl.Int64)
        return rows.sort("rank").with_columns(work_ns=work, other_ns=work)
    if rows["wait_ns"].null_count() or not rows["wait_ns"].max():
        return rows
    late = pl.col("wait_ns").max() - pl.col("wait_ns")  # of a single collective
    return rows.with_columns(work_ns=late, other_ns=late)


def _stages(found: Comparison) -> frozenset[tuple[int, ...]]:
    """Ranks that may hold a part of the model, if the job is a pipeline whose roles were not given.

    Those are the members of each communicator that is no whole job, where ranks also send to each
    other.
    """
    operations = found.tables.read("collectives", ["operation"], distinct=True)["operation"]
    if found.roles.source == "given" or SEND_RECEIVE not in {*operations.cast(pl.String)}:
        return frozenset()
    groups = found.matching.streams.group_by("group").agg(pl.col("rank").unique().sort())
    every = found.tables.ranks.height
    return frozenset(tuple(some) for some in groups["rank"].to_list() if len(some) < every)


def _exposed_transfer(rows: pl.DataFrame) -> int | None:
    """What transfers hold up the median rank, in all iterations, ns; None where unknown.

    The part of a rank's exposed communication that is no waiting, and at most what its collectives
    take once all members have arrived.
    """
    exposed = pl.col("exposed_communication_ns") - pl.col("wait_ns")
    known = rows.with_columns(exposed=pl.min_horizontal(exposed, "collective_transfer_ns"))
    if known.select(pl.any_horizontal("wait_ns", "collective_transfer_ns").is_null().any()).item():
        return None
    per = known.group_by("iteration").agg(pl.col("exposed").quantile(0.5, "lower"))
    return int(per["exposed"].sum() or 0)


def _hosts_of(found: Comparison) -> dict[int, str | None]:
    """rank → host."""
    return dict(found.tables.ranks.select("rank", "host").iter_rows())


def _played_rows(found: Comparison) -> pl.DataFrame:
    """The rows that a replay plays: of all iterations, unless a range limits them."""
    return found.rows(all_iterations=found.scope.in_range is None)


def _replayable(found: Comparison, metric: str | None) -> bool:
    """Whether a run can be replayed: the work of all ranks is known."""
    return metric == "work" and not found.missing_ranks and not found.scope.blind_ranks


def _judged_metric(rows: pl.DataFrame, blind_ranks: tuple[int, ...]) -> str | None:
    """What can be judged: work; loading where waits hide in later phases; else None."""
    seeing = rows.filter(~pl.col("rank").is_in(blind_ranks))
    if not seeing["work_ns"].null_count():
        return "work"
    return None if rows["load_ns"].null_count() else "load"


def _verdict_inputs(
    found: Comparison,
    collectives: RunCollectives,
    played: pl.DataFrame,
    metric: str | None,
    story: Story | None,
    exposed_transfer_ns: int | None,
) -> VerdictInputs:
    """What the verdict is found from; the run is replayed when a rule first asks for it."""
    tables, numbers = found.tables, found.selection.numbers
    rows = played.filter(pl.col("iteration").is_in(numbers))
    instances: list[pl.DataFrame] = []

    @cache
    def replayed() -> Replay | None:
        if not _replayable(found, metric):
            return None
        size, iterations = collectives.size()
        few = None
        if size > MOST_CALLS:
            most = round(MOST_CALLS / (size / iterations))
            few = tuple(sampled(inputs.excess, most))
        calls = collectives.some(few)
        instances.append(calls.instances())
        return calls.replay(played, few)

    @cache
    def transfers() -> SlowTransfers | None:
        replay = replayed()
        if replay is None:
            return None
        groups, streams = found.matching.groups, found.matching.streams
        members = streams.group_by("group").agg(pl.col("rank").unique().sort())
        return slow_transfers(
            instances[0],
            replay.service(instances[0].height),
            [*numbers],
            dict(members.iter_rows()),
            dict(groups.select("group", "label").iter_rows()),
        )

    @cache
    def spans() -> Floats | None:
        if len(numbers) > FEW_ITERATIONS:
            return None
        return own_spans(found.collectives(numbers), sorted(tables.ranks["rank"]))

    inputs = VerdictInputs(
        run=RunSummary(
            ranks=tables.ranks.height,
            iterations=len(numbers),
            missing_ranks=found.missing_ranks,
            blind_ranks=found.scope.blind_ranks,
            metric=metric,
            recorder=recorder_of(tables.reports["kind"]),
        ),
        selected=numbers,
        spent_ns=int(rows["iteration_ns"].sum() // max(rows["rank"].n_unique(), 1)),
        role_of=found.roles.of,
        wide=lambda: _judged_rows(rows, spans()),
        hosts=_hosts_of(found),
        tables=tables_of(tables),
        replayed=replayed,
        transfers=transfers,
        exposed_transfer_ns=exposed_transfer_ns,
        stages=lambda: _stages(found),
        spans=spans,
        collectives=lambda: by_collective(found.collectives(numbers), numbers),
        whole=story,
    )
    return inputs


def _metrics(rows: pl.DataFrame, scores: pl.DataFrame) -> dict[str, MetricSummary]:
    """name → the metric across ranks."""
    return {name: compare_scores.summarise(rows, scores, name) for name in METRICS}
