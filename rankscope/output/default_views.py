"""The ranks that pictures and pages show by default: those whose reports are picked."""

from collections.abc import Container, Sequence

from rankscope.compare.comparison import Comparison
from rankscope.compare.metric_table import lacks_phases
from rankscope.compare.picks import Picks, among, pick
from rankscope.compare.report_files import files_of
from rankscope.model.kinds import NAMED_PHASES
from rankscope.model.metrics import check_metrics, column_of
from rankscope.output.plots import PICKING, PlotOptions
from rankscope.util.rank_list import few

ARRIVALS = "collective_wait"
"""The metric that picks late arrivals where whole captures are compared: they wait least."""

DEFAULT_METRICS = ("time_to_all_reduce", "work", "load", ARRIVALS)
"""Metrics to pick reports by; the first known one is used."""


def picks_of(
    comparison: Comparison, metric: str | None, ranks: Container[int] | None = None
) -> Picks:
    """The reports to open.

    Args:
        metric: name; None: the first of `DEFAULT_METRICS` that is known.
        ranks: the ranks to pick from; None: all.
    """
    scores = among(comparison.scores, ranks)
    if metric is not None:
        check_metrics([metric])
    else:
        arrivals = len(comparison.selection.numbers) == 1 and lacks_phases(
            comparison.rows(NAMED_PHASES)
        )
        names = (ARRIVALS, *DEFAULT_METRICS) if arrivals else DEFAULT_METRICS
        metric = next(
            (name for name in names if scores[column_of(name)].is_not_null().any()), "iteration"
        )
    ranks_table = comparison.tables.ranks
    return pick(
        scores,
        lambda ranks: comparison.rows([*dict.fromkeys((metric, "iteration"))], ranks),
        lambda ranks: comparison.tables.read("iterations", ranks=ranks),
        {rank: (host, pid) for rank, host, pid in ranks_table.select("rank", "host", "pid").rows()},
        files_of(ranks_table, comparison.tables.reports),
        comparison.scope.utc_starts,
        metric,
        comparison.verdict.slow_sets,
        comparison.verdict.sets_with_more_work,
        comparison.tables.database,
    )


def view_of(
    kind: str,
    comparison: Comparison,
    metric: str | None,
    iteration: int | None = None,
    theme: str = "light",
    ranks: Sequence[int] | None = None,
) -> PlotOptions:
    """The default content of a picture: the picked ranks, in their worst iteration.

    Args:
        metric: the metric of a heat map, or the one by which ranks are picked.
        iteration: that of a timeline, or the one to explain.

    Raises:
        UsageError: the metric does not exist, or the run lacks one of the ranks.
    """
    comparison.check_ranks(ranks or ())
    few([] if iteration is None else [iteration], "iteration")
    if kind not in PICKING:
        check_metrics([] if metric is None else [metric])
        return PlotOptions(metric, iteration, theme=theme, only=tuple(ranks or ()))
    picks = picks_of(comparison, metric).picks
    several = comparison.tables.ranks.height > 1
    labels = {pick.rank: pick.title if several else "" for pick in picks}
    shown = [*labels] if ranks is None else [*dict.fromkeys(ranks)]
    return PlotOptions(
        metric=metric,
        iteration=picks[0].worst.iteration if iteration is None else iteration,
        ranks=tuple((rank, labels.get(rank, "")) for rank in shown),
        theme=theme,
        only=tuple(ranks or ()),
    )
