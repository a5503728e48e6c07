"""Whether two runs look like runs of one job."""

import polars as pl
import pytest

from rankscope.history.diff.same_job import differences
from rankscope.model.schema import ACTIVITIES
from rankscope.store.tables import LoadedTables, RunTables
from tests.frames import filled

PHASES = ("load", "forward", "backward", "optimizer", "other")


def run(ranks: int = 4, kernels: tuple[str, ...] = ("gemm", "norm")) -> RunTables:
    rows = pl.DataFrame(
        {
            "rank": 0, "iteration": 1, "phase": "forward", "kind": "kernel", "name": kernels,
            "count": 1, "total_ns": 1_000, "size": 1, "clear_ns": 1_000, "clear_size": 1,
        }
    )  # fmt: skip
    return of(pl.DataFrame({"rank": range(ranks), "world_size": [ranks] * ranks}), rows)


def of(ranks: pl.DataFrame, activities: pl.DataFrame) -> RunTables:
    tables = {"ranks": ranks, "activities": filled(activities, ACTIVITIES)}
    return RunTables("run", LoadedTables(tables))


def rows(iteration_ns: int = 1_000, phases: tuple[str, ...] = PHASES) -> pl.DataFrame:
    known = {f"{name}_ns": [100 if name in phases else None] for name in PHASES}
    types = dict.fromkeys(known, pl.Int64)
    return pl.DataFrame({"iteration_ns": [iteration_ns], **known}, schema_overrides=types)


def test_a_run_is_like_itself() -> None:
    assert differences(run(), run(), rows(), rows()) == ()


@pytest.mark.parametrize(
    ("after", "new", "sign"),
    [
        (run(ranks=8), rows(), "4 ranks → 8"),
        (run(), rows(10_000), "iterations 10 times as long"),
        (run(), rows(100), "iterations 10 times as short"),
        (run(), rows(phases=("other",)), "no phase in common"),
        (run(kernels=("conv", "pool")), rows(), "no kernel in common"),
    ],
)
def test_each_sign(after: RunTables, new: pl.DataFrame, sign: str) -> None:
    (output,) = differences(run(), after, rows(), new)
    assert output.startswith(sign)


def test_changes_of_one_job_are_no_signs() -> None:
    """Twice as long, another kernel, a phase more."""
    after = run(kernels=("gemm", "flash"))
    assert differences(run(), after, rows(phases=("load", "forward")), rows(2_000)) == ()


def test_what_is_unknown_is_no_sign() -> None:
    blank = of(run().ranks, pl.DataFrame(schema=ACTIVITIES))
    nothing = rows(phases=())
    assert differences(blank, run(), nothing, nothing) == ()
    unknown = nothing.with_columns(iteration_ns=pl.lit(None, pl.Int64))
    assert differences(run(), blank, nothing, unknown) == ()
