"""The clock that ranks are compared on. See METHOD.md#gpu-clock."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from rankscope.errors import UsageError
from rankscope.model.kinds import NAMED_PHASES, Clock
from rankscope.model.metrics import columns_of
from rankscope.sources.recorders import Record, advice, recorder_of
from rankscope.store.tables import RunTables
from rankscope.util.wording import counted

CLOCKS = ("auto", *Clock)

PHASE_COLUMNS = columns_of(NAMED_PHASES)

MOST_LACKING = 0.1
"""Share of a rank's complete iterations that may lack device work; one may in any case."""


def choose_clock(tables: RunTables, requested: str) -> tuple[str, str]:
    """The clock to compare ranks on, and why.

    Args:
        requested: auto, gpu or host.

    Raises:
        UsageError: there is no such clock, or no device work to read it from.
    """
    if requested not in CLOCKS:
        raise UsageError(f"--clock {requested}", hint=f"one of {', '.join(CLOCKS)}")
    ranks = tables.ranks
    without = ranks.filter(~pl.col("has_device"))["rank"].to_list()
    if requested == "gpu" and without:
        record = advice(Record.DEVICE, recorder_of(tables.reports["kind"]))
        raise UsageError(
            f"--clock gpu: rank {without[0]} has no device work in its report",
            hint=f"{record}; or use --clock host",
        )
    if requested != "auto":
        return requested, "asked for"
    columns = ["rank", "iteration", "clock", "iteration_ns", *PHASE_COLUMNS]
    return auto_clock(
        ranks,
        lambda few: (
            tables.read("measures", columns, ranks=few, narrow=True),
            tables.iterations.filter(pl.col("rank").is_in(few)),
        ),
    )


def auto_clock(
    ranks: pl.DataFrame, rows: Callable[[list[int]], tuple[pl.DataFrame, pl.DataFrame]]
) -> tuple[str, str]:
    """The clock that `auto` takes, and why.

    Args:
        ranks: rank, has_device, clock_gpu.
        rows: gives MEASURES and RANK_ITERATIONS of some ranks.
    """
    without = ranks.filter(~pl.col("has_device"))["rank"].to_list()
    if without:
        many = "no rank has" if len(without) == ranks.height else f"rank {without[0]} lacks"
        return "host", f"{many} device work in its report"
    few = ranks.filter(~pl.col("clock_gpu"))["rank"].sort().to_list()
    if not few:
        return "gpu", "at least 90 % of the iterations have device work on every rank"
    counts = _counts(*rows(few))
    most = pl.max_horizontal(1, MOST_LACKING * pl.col("iterations"))
    lacking = pl.col("iterations") - pl.col("working")
    sparse = counts.filter((lacking > most) | (pl.col("working") <= lacking))
    for rank, iterations, working in sparse.iter_rows():
        return "host", (
            f"rank {rank} has device work of a phase in {working} of "
            f"{counted(iterations, 'iteration')}, "
            "fewer than 90 %"
        )
    return "gpu", (
        "at least 90 % of the complete iterations, or all but one, have device work on every rank"
    )


def _counts(measures: pl.DataFrame, iterations: pl.DataFrame) -> pl.DataFrame:
    """rank, iterations (complete ones), working (those with device work of a phase).

    A rank whose reports name no phases has only `other`: its work counts without a phase.
    """
    rows = measures.with_columns(pl.col("rank", "iteration").cast(pl.Int64))
    named = pl.any_horizontal(pl.col(PHASE_COLUMNS).is_not_null()).any().over("rank")
    owned = pl.sum_horizontal(PHASE_COLUMNS) > 0
    known = pl.col("iteration_ns").is_not_null()
    working = rows.with_columns(works=known & (owned | ~named)).filter(clock="gpu").filter("works")
    complete = iterations.filter("complete")
    return (
        complete.select("rank", "iteration")
        .join(working.select("rank", "iteration", "works"), on=["rank", "iteration"], how="left")
        .group_by("rank")
        .agg(iterations=pl.len().cast(pl.Int64), working=pl.col("works").sum().cast(pl.Int64))
        .sort("rank")
    )
