"""Runs made by hand, of what verdicts are found from."""

import polars as pl

from rankscope.judge.healing import Prices
from rankscope.judge.inputs import RunSummary, VerdictInputs
from rankscope.model.schema import ACTIVITIES, conform
from tests.support import MS, inputs_of

RANKS, COUNT = 8, 20
SUMMARY = RunSummary(RANKS, COUNT, (), (), "work")


def kernel(rank: int, iteration: int, total_ms: float, **more: float) -> dict[str, object]:
    return {
        "rank": rank, "iteration": iteration, "phase": "backward", "kind": "kernel", "name": "gemm",
        "count": 10, "size": 1_000, "clear_size": 500, "total_ns": round(total_ms * MS),
        "clear_ns": round(total_ms * MS / 2),
    } | more  # fmt: skip


def wide_of(rows: list[tuple[int, int, float]]) -> pl.DataFrame:
    """The metric table of iterations of 100 ms, of rank, iteration and ms beyond 50 in backward."""
    return pl.DataFrame(
        {
            "rank": [rank for rank, _, _ in rows],
            "iteration": [i for _, i, _ in rows],
            "backward_ns": [round((50 + more) * MS) for _, _, more in rows],
        }
    ).with_columns(
        role=pl.lit("all"), work_ns="backward_ns", iteration_ns=100 * MS,
        **{f"{name}_ns": pl.lit(0) for name in ("load", "forward", "optimizer", "other")},
    )  # fmt: skip


def inputs(slow_ms: float = 0.0, **activity: float) -> VerdictInputs:
    """Eight ranks of 100 ms an iteration; rank 3 needs more in backward, all in one kernel."""
    rows = [(rank, i, slow_ms if rank == 3 else 0.0) for rank in range(RANKS) for i in range(COUNT)]
    wide = wide_of(rows)
    return of_kernels(
        wide, [kernel(rank, i, 40 + more, **activity if more else {}) for rank, i, more in rows]
    )


def of_kernels(wide: pl.DataFrame, kernels: list[dict[str, object]]) -> VerdictInputs:
    """Inputs of a metric table and the kernels that its work consists of."""
    table = conform(pl.DataFrame(kernels), ACTIVITIES, optional=("launches",))
    return inputs_of(
        wide,
        run=SUMMARY,
        tables=lambda _: (
            lambda name, numbers: (
                table.filter(pl.col("iteration").is_in(numbers)) if name == "activities" else None
            )
        ),
        named_work=lambda: table.group_by("rank", "kind", "name").agg(
            pl.col("total_ns", "count").sum()
        ),
    )


class Exact(Prices):
    """As if the run were replayed."""

    why_bound = None
