"""The facts and the warnings of a run, which qualify every number of it."""

from collections.abc import Collection, Iterator

import polars as pl
from msgspec.structs import replace

from rankscope.match import warnings
from rankscope.match.records import Clocks, Matching, Roles, Scope, Selection, all_tied
from rankscope.model.options import MEASURE_VERSION, ShapingOptions, measure_version
from rankscope.model.reports import RunWarning
from rankscope.model.results import RunFacts
from rankscope.sources.same_job import CLOCK_SLACK_NS
from rankscope.store.tables import RunTables
from rankscope.util.grouping import grouped
from rankscope.util.wording import agreeing, counted, ms, percent

BEGAN_APART = 0.05
"""Ranks that begin the first recorded iteration further apart than this share of the compared time
wait in it for what no report shows."""

MOST_DRIFT_PPM = 1000
"""Largest drift between two clocks, as their collectives show it, that the clocks can have."""

GONE = ("phases-recur",)
"""Codes of warnings that older versions stored, and that no rule gives any more."""


def facts_of(scope: Scope, clocks: Clocks, roles: str) -> RunFacts:
    """The facts that qualify every number of a run.

    Args:
        roles: their source: given, inferred or none.

    Raises:
        UsageError, ReportError: no iterations can be compared.
    """
    tied = clocks.fits if len(clocks.fits) > 1 else {}
    return RunFacts(
        name=scope.tables.name,
        ranks=tuple(scope.tables.ranks["rank"].sort()),
        world_size=scope.world_size,
        missing_ranks=scope.missing_ranks,
        reports=scope.tables.reports.height,
        clock=scope.clock,
        clock_reason=scope.clock_reason,
        iterations=scope.selection.numbers,
        warmup=scope.selection.warmup,
        settling=tuple(sorted({*scope.selection.settling} & {*scope.selection.numbers})),
        matched_by=scope.matched_by,
        clocks_aligned=all_tied(clocks, scope.tables),
        clock_method=clocks.method,
        roles=roles,
        residual_ns=max((fit.spread_ns for fit in tied.values()), default=None),
        offsets_ns={rank: fit.offset_ns for rank, fit in tied.items()},
        drift_ppm={rank: fit.drift_ppm for rank, fit in tied.items()},
    )


def warnings_of(
    scope: Scope, matching: Matching, roles: Roles, began: RunWarning | None
) -> Iterator[RunWarning]:
    """The warnings that result from comparing the ranks.

    Args:
        scope: the ranks, the clock and the iterations.
        matching: the result of matching the collectives.
        began: `began_apart`.
    """
    tables, missing, blind = scope.tables, scope.missing_ranks, scope.blind_ranks
    if missing:
        yield warnings.missing_ranks(missing, scope.world_size, tables.ranks.height)
    if blind:
        yield warnings.blind_ranks(blind, tables.ranks.height)
    operations = (
        set[str]()
        if matching.summary.calls
        else {*tables.read("collectives", ["operation"], distinct=True)["operation"]}
    )
    yield from warnings.communication_warnings(
        matching.summary,
        matching.groups,
        tables.ranks["rank"].to_list(),
        operations=operations,
        roles_given=roles.source == "given",
    )
    yield from _wrong_clocks(scope, matching.clocks)
    if began is not None:
        yield began
    older = measured_before(tables)
    if older:
        yield RunWarning(
            "measured-before",
            f"{len(older)} of {counted(tables.ranks.height, 'rank')} "
            f"{agreeing(len(older), 'was', 'were')} measured by an older rankscope, "
            "whose numbers may differ; ingest the reports again",
            older,
        )
    shaping = map(ShapingOptions.from_json, tables.reports["options"])
    if len({replace(each, rank=None) for each in shaping}) > 1:
        yield RunWarning(
            "options-differ",
            "reports were ingested with different --iteration, --phase, --collective or "
            "--rank-pattern; ingest them all with the same ones",
        )
    if roles.source == "inferred":
        yield warnings.inferred(roles.of)


def far_clocks(scope: Scope, clocks: Clocks) -> dict[int, int]:
    """Rank → how far its host's time of day is ahead of the lowest rank's (s), where it is far."""
    return {
        rank: round(-fit.offset_ns / 1e9)
        for rank, fit in clocks.fits.items()
        if scope.utc_starts.get(rank) is not None and abs(fit.offset_ns) > CLOCK_SLACK_NS
    }


def keep_time(ranks: Collection[int], clocks: Clocks) -> bool:
    """Whether the collectives of ranks keep time with those of the others, as in one run."""
    return all(abs(clocks.fits[rank].drift_ppm) <= MOST_DRIFT_PPM for rank in ranks)


def _wrong_clocks(scope: Scope, clocks: Clocks) -> list[RunWarning]:
    """Warnings about ranks whose host's time of day is far from the lowest rank's."""
    by_amount = grouped((seconds, rank) for rank, seconds in far_clocks(scope, clocks).items())
    return [
        RunWarning(
            "clock-wrong",
            f"the clock of the host is {abs(seconds)} s "
            f"{'ahead of' if seconds > 0 else 'behind'} rank {min(clocks.fits)}'s; ranks and "
            "size say that the reports are of one job; if they are of two, ingest each alone",
            tuple(ranks),
        )
        for seconds, ranks in by_amount.items()
    ]


def began_apart(scope: Scope, clocks: Clocks) -> RunWarning | None:
    """The warning that ranks begin the first recorded iteration at different times.

    The others then wait for the last one; what it did before that, no report shows.
    """
    if not isinstance(scope.choice, Selection):
        return None
    iterations, numbers = scope.tables.iterations, scope.choice.numbers
    firsts = iterations.group_by("rank").agg(pl.col("iteration").min())["iteration"].unique()
    if len(firsts) > 1 or firsts[0] not in numbers:
        return None
    from rankscope.match.clocks import aligned

    began = (
        iterations.filter(pl.col("iteration") == firsts[0], pl.col("rank").is_in([*clocks.fits]))
        .select("rank", at=aligned(clocks, "start_ns", scope.utc_starts))
        .sort("at", descending=True)
    )
    lengths = (
        iterations.filter(pl.col("iteration").is_in(numbers))
        .group_by("iteration")
        .agg(length=(pl.col("end_ns") - pl.col("start_ns")).median())
    )
    total = float(lengths["length"].sum())
    apart = int(began["at"][0] - began["at"][-1]) if len(began) > 1 else 0
    if apart <= BEGAN_APART * total:
        return None
    last = began["rank"][0]
    return RunWarning(
        "began-apart",
        f"the ranks begin iteration {firsts[0]}, the first that was recorded, up to "
        f"{ms(apart)} apart ({percent(apart / total)} of the compared time), rank "
        f"{last} last: the others wait there for what it did before, which no report shows "
        "and the verdict does not count",
        (last,),
    )


def measured_before(tables: RunTables) -> tuple[int, ...]:
    """The ranks whose reports were measured by older rules."""
    versions = pl.Series(map(measure_version, tables.reports["options"]), dtype=pl.Int64)
    paths = tables.reports["path"].filter(versions < MEASURE_VERSION)
    return tuple(tables.ranks["rank"].filter(tables.ranks["path"].is_in(paths.implode())).sort())


def stored_warnings(tables: RunTables) -> list[RunWarning]:
    """The warnings of the reports themselves."""
    return warnings.grouped(
        RunWarning(row["code"], row["message"], tuple(row["ranks"] or ()))
        for row in tables.problems.iter_rows(named=True)
        if row["code"] not in GONE
    )
