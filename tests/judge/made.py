"""Runs made by hand, of what verdicts are found from."""

import numpy as np
import polars as pl

from rankscope.judge.claims import Story
from rankscope.judge.excess import Excess, excess_of
from rankscope.judge.healing import Prices
from rankscope.judge.inputs import RunSummary, VerdictInputs
from rankscope.judge.story import story_of
from rankscope.model.intervals import Floats
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


def excess(
    late: Floats,
    length_ms: float | Floats = 100.0,
    phase: str = "backward",
    per_host: int = 1,
    **more: Floats,
) -> Excess:
    """Of ranks by iterations that need `late` ms more than 50 in an iteration of `length_ms`.

    `per_host`: ranks on each host. `more`: the same of further phases.
    """
    length = np.broadcast_to(length_ms, late.shape)
    rank, number = np.indices(late.shape)
    phases = {f"{each}_ns": 50 + by.ravel() for each, by in {phase: late, **more}.items()}
    wide = pl.DataFrame(
        {
            "rank": rank.ravel(), "iteration": number.ravel() + 1,
            "host": [f"node{each // per_host}" for each in rank.ravel().tolist()],
            **{name: (spent * MS).round() for name, spent in phases.items()},
            "iteration_ns": (length.ravel() * MS).round().astype(np.int64),
        }
    )  # fmt: skip
    wide = wide.with_columns(pl.col(*phases).fill_nan(None), role=pl.lit("all"))
    wide = wide.with_columns(
        work_ns=sum(map(pl.col, {*phases} - {"host_ns", "wait_ns"}), pl.lit(0.0))
    )
    return excess_of(wide, "work")


def story(late: Floats, phase: str = "backward") -> Story:
    return story_of(excess(late, phase=phase))


def noise(ranks: int, count: int, ms: float = 0.3, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(0, ms, (ranks, count))


def ranks_of(found: Story) -> list[tuple[int, ...]]:
    return [each.ranks for each in found.slow]
