"""Warnings about the numbers, each once for all ranks that it is about."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import polars as pl

from rankscope.match.records import MatchSummary
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.model.reports import RunWarning
from rankscope.util.wording import MOST_LISTED, agreeing, counted, ranks_text, span


def grouped(problems: Iterable[RunWarning]) -> list[RunWarning]:
    """The warnings, those of several ranks with the same code and message as one."""
    ranks: dict[tuple[str, str], list[int]] = {}
    for problem in problems:
        ranks.setdefault((problem.code, problem.message), []).extend(problem.ranks)
    return [
        RunWarning(code, f"{named(sorted(set(affected)))}{message}", tuple(sorted(set(affected))))
        for (code, message), affected in ranks.items()
    ]


def missing_ranks(missing: tuple[int, ...], world_size: int | None, present: int) -> RunWarning:
    """Ranks of the job without a report."""
    world = world_size or present + len(missing)
    have = agreeing(len(missing), "has", "have")
    least = "" if world_size else "at least "
    unknown = (
        "there is no other rank to compare this one with, and waits are unknown"
        if present == 1
        else "waits are unknown, and the slowest may be among them"
    )
    return RunWarning(
        "missing-ranks",
        f"{len(missing)} of {least}{world} {agreeing(world, 'rank')} {have} no "
        f"report ({span(missing, MOST_LISTED)}): {unknown}",
        missing,
    )


def blind_ranks(blind: tuple[int, ...], ranks: int) -> RunWarning:
    """Ranks whose reports hold no collectives."""
    others = ", though the others have them" if len(blind) < ranks else ""
    return RunWarning(
        "collectives-missing",
        f"{named(list(blind))}no collectives in the report{others}; what is work and what is "
        "waiting is unknown there",
        blind,
    )


def inferred(role_of: dict[int, str]) -> RunWarning:
    """Roles that were inferred."""
    groups: dict[str, list[int]] = {}
    for rank, role in role_of.items():
        groups.setdefault(role, []).append(rank)
    parts = [f"{role!r}: {span(ranks, MOST_LISTED)}" for role, ranks in groups.items()]
    listing = "; ".join(parts[:MOST_LISTED])
    return RunWarning(
        "roles-inferred",
        f"ranks do different work, as their gradient reductions show ({listing}); each is "
        "compared with its like. --roles says it surely",
    )


def communication_warnings(
    summary: MatchSummary,
    groups: pl.DataFrame,
    ranks: list[int],
    *,
    operations: Collection[str] = (),
    roles_given: bool = False,
) -> Iterator[RunWarning]:
    """The warnings about waits and clocks; a rank alone has neither.

    Args:
        summary: the matched and unmatched calls, and the clocks.
        groups: the communicators, with the columns of `waits.GROUPS`.
        ranks: all ranks with a report.
        operations: those of the calls where none was matched.
        roles_given: whether `--roles` tells who sends to whom.
    """
    if len(ranks) < 2:
        return
    reasons = summary.unmatched.group_by("reason").agg(
        pl.col("count").sum(), pl.col("rank").unique().sort()
    )
    for reason, count, affected in reasons.sort("reason").iter_rows():
        yield RunWarning(
            "unmatched-collectives",
            f"{counted(count, 'call')} of collectives on {counted(len(affected), 'rank')} "
            f"{agreeing(count, 'is', 'are')} left out of the waits: "
            f"{reason}",
            tuple(affected),
        )
    if not summary.calls and operations:
        peers = (
            "nor did the sends and receives of the neighbours that --roles names"
            if roles_given
            else "sends and receives whose ends do not tell the peers need --roles"
        )
        why = {POINT_TO_POINT: peers, "wait": "MPI_Wait does not say what it waits for"}
        known = "; ".join(text for name, text in why.items() if name in operations)
        yield RunWarning(
            "waits-unknown",
            f"no collective found its counterparts on the other ranks"
            f"{known and f' ({known})'}: waits, last arrivals and costs are unknown",
        )
    untied = [rank for rank in ranks if rank not in summary.clocks.fits]
    if untied:
        yield RunWarning(
            "clocks-unaligned",
            f"{named(untied)}no shared collectives tie the clock to rank {min(ranks)}'s; "
            "times are not compared with others'",
            tuple(untied),
        )
    apart = groups.filter(
        pl.col("apart_ns") > pl.max_horizontal("clock_error_ns", "ends_error_ns") * 2
    )
    for row in apart.iter_rows(named=True):
        yield RunWarning(
            "waits-disagree",
            f"waits by duration and by arrival differ by {row['apart_ns'] / 1e6:.2f} ms on "
            f"communicator {row['label']}, more than the clocks' "
            f"{(row['clock_error_ns'] or 0) / 1e6:.2f} ms; shown is that by {row['shown']}",
        )


def named(ranks: Sequence[int]) -> str:
    """The ranks as the beginning of a message; empty without any."""
    if not ranks:
        return ""
    return f"{ranks_text(ranks, MOST_LISTED)}: "
