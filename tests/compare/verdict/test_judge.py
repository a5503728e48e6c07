"""The order of the rules, on runs made by hand: each case has what one rule looks for."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from rankscope.compare.verdict.inputs import RunSummary, VerdictInputs
from rankscope.compare.verdict.outliers import flag
from rankscope.compare.verdict.rules import judge
from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.model.schema import ACTIVITIES, conform
from tests.support import MS

RANKS, COUNT = 8, 20
SUMMARY = RunSummary(RANKS, COUNT, (), (), "work", 1)


def kernel(rank: int, iteration: int, total_ms: float, **more: float) -> dict[str, object]:
    return {
        "rank": rank, "iteration": iteration, "phase": "backward", "kind": "kernel", "name": "gemm",
        "count": 10, "size": 1_000, "clear_size": 500, "total_ns": round(total_ms * MS),
        "clear_ns": round(total_ms * MS / 2),
    } | more  # fmt: skip


def inputs(slow_ms: float = 0.0, **activity: float) -> VerdictInputs:
    """Eight ranks of 100 ms an iteration; rank 3 needs more in backward, all in one kernel."""
    rows = [(rank, i, slow_ms if rank == 3 else 0.0) for rank in range(RANKS) for i in range(COUNT)]
    wide = pl.DataFrame(
        {
            "rank": [rank for rank, _, _ in rows],
            "iteration": [i for _, i, _ in rows],
            "backward_ns": [round((50 + more) * MS) for _, _, more in rows],
        }
    ).with_columns(
        role=pl.lit("all"), work_ns="backward_ns", iteration_ns=100 * MS,
        **{f"{name}_ns": pl.lit(0) for name in ("load", "forward", "optimizer", "other")},
    )  # fmt: skip
    kernels = [kernel(rank, i, 40 + more, **activity if more else {}) for rank, i, more in rows]
    table = conform(pl.DataFrame(kernels), ACTIVITIES, optional=("launches",))
    return VerdictInputs(
        run=SUMMARY,
        flags=flag(wide, "work"),
        wide=wide,
        hosts={rank: f"node{rank // 4}" for rank in range(RANKS)},
        replicas=True,
        tables=lambda name, numbers: (
            table.filter(pl.col("iteration").is_in(numbers)) if name == "activities" else None
        ),
        replayed=lambda *_: None,
    )


def test_a_slow_device() -> None:
    verdict = judge(inputs(20))
    assert (verdict.kind, verdict.ranks, verdict.cause) == (
        VerdictKind.PERSISTENT, (3,), "backward",
    )  # fmt: skip
    assert verdict.excess_ns == 20 * MS
    assert verdict.gain_ns == 20 * MS * COUNT
    assert [each.suspect for each in verdict.findings] == [CauseKind.DEVICE_SLOWER]
    assert verdict.sentence == (
        "Rank 3 (node0) is slow in 20 of 20 iterations: 20.0 ms more work than the median rank, "
        "20% of the median iteration; 100% of it in backward. In it: kernel gemm takes 20.0 ms "
        "longer for the same work: the device is slow. Fixing it would save 400.0 ms, 20.0% of the "
        "time."
    )


def test_more_work_names_the_rank_where_iterations_are_steady() -> None:
    verdict = judge(inputs(20, count=14))
    assert (verdict.kind, verdict.ranks) == (VerdictKind.PERSISTENT, (3,))
    assert [each.suspect for each in verdict.findings] == [CauseKind.MORE_WORK]


def test_nothing_is_balanced() -> None:
    verdict = judge(inputs())
    assert (verdict.kind, verdict.ranks, verdict.findings) == (VerdictKind.BALANCED, (), ())
    assert verdict.sentence == "Balanced: over 20 iterations of 8 ranks no rank stands out."


BEFORE = [
    ({"ranks": 1}, "only one rank", "two ranks"),
    ({"blind_ranks": tuple(range(1, 8))}, "no communication is visible", "all-reduce"),
    ({"iterations": 4}, "4 iterations are too few", "--iter-range"),
    ({"iterations": 1}, "one iteration is too few", "--iter-range"),
    ({"flag_metric": None}, "include waits", "--trace=cuda,nvtx"),
]
AFTER = [
    ({"flag_metric": "load"}, "loading is balanced", "--clock gpu"),
    ({"roles": RANKS}, "a role of its own", "--roles"),
    ({"missing_ranks": (8,)}, "1 rank of the job has none", "missing ranks"),
    ({"missing_ranks": (8, 9)}, "2 ranks of the job have none", "missing ranks"),
    ({"blind_ranks": (1, 2)}, "the reports of 2 ranks", "--trace"),
]


@pytest.mark.parametrize(("summary", "reason", "settle"), [*BEFORE, *AFTER])
def test_missing_evidence_about_ranks_that_look_alike(
    summary: dict[str, object], reason: str, settle: str
) -> None:
    verdict = judge(replace(inputs(), run=replace(SUMMARY, **summary)))
    assert (verdict.kind, verdict.ranks) == (VerdictKind.INCONCLUSIVE, ())
    assert reason in verdict.sentence
    assert settle in verdict.next


@pytest.mark.parametrize(("summary", "reason", "settle"), BEFORE)
def test_preconditions_come_before_the_flags(
    summary: dict[str, object], reason: str, settle: str
) -> None:
    """Nothing is judged then: the flags are not even there."""
    given = replace(inputs(20), run=replace(SUMMARY, **summary), flags=None)
    verdict = judge(given)
    assert reason in verdict.sentence
    assert settle in verdict.next


@pytest.mark.parametrize("summary", [{"roles": RANKS}, {"missing_ranks": (8,)}])
def test_a_straggler_is_named_before_missing_evidence(summary: dict[str, object]) -> None:
    verdict = judge(replace(inputs(20), run=replace(SUMMARY, **summary)))
    assert (verdict.kind, verdict.ranks) == (VerdictKind.PERSISTENT, (3,))
