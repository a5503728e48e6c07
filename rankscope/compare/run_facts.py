"""What stands above and beside every number of a run: its facts, its ranks and its problems."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rankscope.align.clocks import Clocks
from rankscope.align.match import MatchSummary
from rankscope.compare import warnings
from rankscope.compare.communication import all_tied
from rankscope.compare.roles import Roles
from rankscope.compare.selection import Selection
from rankscope.model.kinds import EvidenceKind
from rankscope.model.reports import RankEvidence, RankIdentity, RunWarning
from rankscope.model.results import RunFacts
from rankscope.store.tables import RunTables


def facts_of(
    frames: RunTables,
    solved: Clocks,
    selection: Selection,
    clock: tuple[str, str],
    *,
    world_size: int | None,
    missing_ranks: tuple[int, ...],
    matched_by: str,
    roles: str,
) -> RunFacts:
    """What stands above every number."""
    tied = solved.fits if len(solved.fits) > 1 else {}
    return RunFacts(
        name=frames.name,
        ranks=tuple(frames.ranks["rank"].sort()),
        world_size=world_size,
        missing_ranks=missing_ranks,
        reports=frames.reports.height,
        clock=clock[0],
        clock_reason=clock[1],
        iterations=selection.numbers,
        warmup=selection.warmup,
        matched_by=matched_by,
        clocks_aligned=all_tied(solved, frames),
        clock_method=solved.method,
        roles=roles,
        residual_ns=max((fit.spread_ns for fit in tied.values()), default=None),
        offsets_ns={rank: fit.offset_ns for rank, fit in tied.items()},
        drift_ppm={rank: fit.drift_ppm for rank, fit in tied.items()},
    )


def warnings_of(
    frames: RunTables,
    met: MatchSummary,
    groups: pl.DataFrame,
    roles: Roles,
    *,
    world_size: int | None,
    missing_ranks: tuple[int, ...],
    blind_ranks: tuple[int, ...],
) -> list[RunWarning]:
    """What comparing the ranks makes a reader need to know."""
    found: list[RunWarning] = []
    if missing_ranks:
        found.append(warnings.missing_ranks(missing_ranks, world_size, frames.ranks.height))
    if blind_ranks:
        found.append(warnings.blind_ranks(blind_ranks, frames.ranks.height))
    found += warnings.communication_problems(met, groups, frames.ranks["rank"].to_list())
    if frames.reports["options"].n_unique() > 1:
        found.append(
            RunWarning(
                "options-differ",
                "reports were ingested with different --iteration, --phase or --rank-pattern; "
                "ingest them all with the same ones to compare their phases",
            )
        )
    if roles.source == "inferred":
        found.append(warnings.inferred(roles.of))
    return found


def identities_of(ranks: pl.DataFrame) -> dict[int, tuple[RankIdentity, Path]]:
    """rank → identity and report.

    Args:
        ranks: table `ranks` of the run.
    """
    return {
        row["rank"]: (
            RankIdentity(
                row["rank"],
                row["pid"],
                row["local_rank"],
                row["world_size"],
                row["host"],
                RankEvidence(row["evidence"], EvidenceKind.DATABASE),
            ),
            Path(row["path"]),
        )
        for row in ranks.iter_rows(named=True)
    }


def stored_warnings(frames: RunTables) -> list[RunWarning]:
    """Those of the reports themselves."""
    return warnings.grouped(
        RunWarning(row["code"], row["message"], tuple(row["ranks"] or ()))
        for row in frames.problems.iter_rows(named=True)
    )
