"""What a verdict holds against the hardware of its ranks, and what it does not."""

from typing import Any

import polars as pl
import pytest

from rankscope.history.fleet.evidence import EVIDENCE, evidence
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Also, Verdict

SECOND = 10**9


def reports(count: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "path": [f"/r{rank}" for rank in range(count)],
            "kind": "nsys-sqlite",
            "bytes": [100 + rank for rank in range(count)],
            "host": [f"n{rank // 2}" for rank in range(count)],
            "utc_start_ns": [10**18 + rank for rank in range(count)],
            "duration_ns": 5,
            "events": 7,
            "software": ["CUDA 12.4"] * count,
        }
    )


def ranks(count: int, gpus: list[str | None] | None = None) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "rank": range(count),
            "path": [f"/r{rank}" for rank in range(count)],
            "pid": range(count),
            "world_size": [count] * count,
            "host": [f"n{rank // 2}" for rank in range(count)],
            "gpu_uuid": gpus or [f"GPU-{rank}" for rank in range(count)],
            "gpu_name": ["H100"] * count,
            "gpu_bus": [f"0{rank % 2}:00" for rank in range(count)],
            "adapters": [None] * count,
        },
        schema_overrides={"gpu_uuid": pl.String, "adapters": pl.String},
    )


def against(verdict: Verdict, **options: Any) -> dict[int, tuple[int, int, int]]:
    """rank → iterations, guilty ones, cost in s."""
    found = evidence(
        "run.duckdb",
        reports(4),
        ranks(4),
        verdict,
        options.pop("roles", dict.fromkeys(range(4), "all")),
        10,
        **options,
    ).ranks
    assert found.schema == EVIDENCE
    rows = found.select("rank", "iterations", "guilty", "cost_ns").iter_rows()
    return {rank: (iterations, guilty, cost // SECOND) for rank, iterations, guilty, cost in rows}


def accused(*who: int, gain_s: int = 2, **options: Any) -> Verdict:
    """A verdict on ranks of a run of 100 s."""
    fields: dict[str, Any] = {"kind": VerdictKind.PERSISTENT, "iterations": tuple(range(10))}
    return Verdict(
        ranks=who, gain_ns=gain_s * SECOND, gain=gain_s / 100, next="", **(fields | options)
    )


INNOCENT = (10, 0, 0)


def test_the_cost_is_the_time_of_all_ranks() -> None:
    assert against(accused(1)) == {0: INNOCENT, 1: (10, 10, 8), 2: INNOCENT, 3: INNOCENT}
    together = against(accused(2, 3))
    assert together == {0: INNOCENT, 1: INNOCENT, 2: (10, 10, 4), 3: (10, 10, 4)}


def test_iterations_of_several_accusations_count_once() -> None:
    also = Also(
        kind=VerdictKind.TRANSIENT, ranks=(1,), iterations=(3, 4, 5), excess_ns=1, gain_ns=SECOND
    )
    verdict = accused(1, kind=VerdictKind.PERIODIC, iterations=(0, 4), also=(also,))
    assert against(verdict)[1] == (10, 4, 12)


@pytest.mark.parametrize(
    "kind", [VerdictKind.STRUCTURAL, VerdictKind.ROTATING, VerdictKind.BALANCED]
)
def test_what_is_given_or_wanders_is_no_guilt(kind: VerdictKind) -> None:
    assert set(against(accused(1, kind=kind)).values()) == {INNOCENT}


def test_nobody_is_compared_where_nothing_can_be_said() -> None:
    nothing = (0, 0, 0)
    assert set(against(accused(kind=VerdictKind.INCONCLUSIVE)).values()) == {nothing}
    roles = {0: "first", 1: "middle", 2: "middle", 3: "middle"}
    assert against(accused(1), roles=roles)[0] == nothing
    assert against(accused(1), blind_ranks=(2,))[2] == nothing


def test_a_gpu_that_two_ranks_claim_is_unknown() -> None:
    gpus = ["GPU-0", "GPU-0", "GPU-2", None]
    found = evidence("db", reports(4), ranks(4, gpus), accused(1), dict.fromkeys(range(4), ""), 10)
    assert found.ranks["gpu"].to_list() == [None, None, "GPU-2", None]
    assert found.run["software"].to_list() == ["CUDA 12.4"]


def test_a_run_is_known_again_by_its_lowest_rank() -> None:
    def key(reports: pl.DataFrame, ranks: pl.DataFrame) -> str:
        roles = dict.fromkeys(range(4), "")
        return str(evidence("db", reports, ranks, accused(), roles, 10).run["run"][0])

    first = key(reports(4), ranks(4))
    assert first == key(reports(5), ranks(5)), "one report more"
    assert first != key(reports(4).with_columns(pl.col("utc_start_ns") + 1), ranks(4))
