"""`imbalance --by kernel`: what the device did, by phase, kind and name."""

import polars as pl

from rankscope.compare.breakdowns import by_kernel
from rankscope.model.schema import ACTIVITIES
from rankscope.output.frame_table import by_table
from tests.frames import filled


def test_a_kernel_that_one_rank_runs_is_above_the_median_of_all() -> None:
    """Which is 0, as the others run none; also where its phase is unknown."""
    rows = [(rank, 1, phase, "gemm", 1, 100) for rank in range(3) for phase in ("forward", None)]
    rows += [(2, 1, phase, "extra", 3, 60) for phase in ("forward", None)]
    names = ["rank", "iteration", "phase", "name", "count", "total_ns"]
    frame = pl.DataFrame(rows, names, orient="row").with_columns(kind=pl.lit("kernel"), clear_ns=0)
    found = by_kernel(filled(frame, ACTIVITIES), dict.fromkeys(range(3), "all"), 1)
    columns = ("phase", "name", "count", "mean_ns", "slowest_rank", "slowest_ns", "excess_ns")
    assert sorted(found.select(columns).rows(), key=str) == [
        ("forward", "extra", 1.0, 20, 2, 60, 60),
        ("forward", "gemm", 1.0, 100, 0, 100, 0),
        (None, "extra", 1.0, 20, 2, 60, 60),
        (None, "gemm", 1.0, 100, 0, 100, 0),
    ]


def test_of_many_kernels_those_with_the_largest_excess_are_shown() -> None:
    rows = [(rank, 1, f"k{i:02}", 1, 100 + rank * i) for rank in range(3) for i in range(40)]
    names = ["rank", "iteration", "name", "count", "total_ns"]
    frame = pl.DataFrame(rows, names, orient="row").with_columns(kind=pl.lit("kernel"))
    found = by_kernel(filled(frame, ACTIVITIES), dict.fromkeys(range(3), "all"), 1)
    table, gap = by_table("kernel", found).shortened()
    at = table.columns.index("name")
    assert [row[at] for row in table.rows] == [f"k{i:02}" for i in range(39, 19, -1)]
    assert gap == table.most
