"""Why nothing, or not much, can be said of a run: always with what would settle it."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_ITERATIONS = 5
"""Fewer than this carry no verdict."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What is known of a run before its ranks are judged."""

    ranks: int
    iterations: int
    missing_ranks: tuple[int, ...]
    blind_ranks: tuple[int, ...]  # without the collectives that the others have
    flag_metric: str | None  # what can be judged: work, load, or nothing
    roles: int  # kinds of work that the ranks do


def obstacle(run: RunSummary) -> tuple[str, str] | None:
    """Why nothing can be said, and what would settle it; None where something can."""
    if run.ranks < 2:
        return (
            "a single rank has nobody to be compared with",
            "profile at least two ranks of the job and ingest their reports together",
        )
    if run.ranks - len(run.blind_ranks) < 2:
        return (
            "no communication is visible, so waiting cannot be told from working",
            "annotate the all-reduce, or trace it: --trace=cuda,nvtx (NCCL) or mpi,nvtx",
        )
    if run.iterations < LEAST_ITERATIONS:
        amount = "one iteration is" if run.iterations == 1 else f"{run.iterations} iterations are"
        return (
            f"{amount} too few to tell a pattern from an accident",
            "widen --iter-range, or capture ten iterations or more",
        )
    if run.flag_metric is None:
        return (
            "what the ranks needed themselves is unknown, for their waits hide in it",
            "profile with device tables: nsys profile --trace=cuda,nvtx",
        )
    return None


def doubt(run: RunSummary) -> tuple[str, str] | None:
    """Why ranks that look alike may not be, and what would settle it; None without a doubt."""
    if run.flag_metric != "work":
        return (
            "loading is balanced, but the waits of the later phases hide in them",
            "use --clock gpu, profile with --trace=cuda,nvtx, or annotate the all-reduce",
        )
    if run.roles == run.ranks:
        return (
            "every rank has a role of its own, and so nobody to be compared with",
            "profile several replicas of the job, or see what --roles says of those that do the "
            "same work",
        )
    if run.missing_ranks:
        return (
            f"the {run.ranks} ranks at hand are alike, but {len(run.missing_ranks)} of the job "
            "are missing",
            "ingest the reports of the missing ranks",
        )
    if run.blind_ranks:
        return (
            f"the other ranks are alike, but {len(run.blind_ranks)} have no collectives in their "
            "reports",
            "export or capture those reports again, with the same --trace on every rank",
        )
    return None
