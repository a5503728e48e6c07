"""The metric table: what follows the last collective of a record."""

import polars as pl
import pytest

from rankscope.compare.metric_table import without_end
from rankscope.store.tables import LoadedTables, RunTables

OTHER, OPTIMIZER = (5, 5, 20), (5, 5, 30)


@pytest.mark.parametrize(
    ("reduced", "left"),
    [
        (None, (5, 10)),  # no gradient reduction: all of `other` may follow it
        (10, (5, 10)),
        (50, (10, 5)),
        (70, (20, 5)),  # the optimizer alone follows it
    ],
)
def test_of_the_rest_what_follows_the_last_reduction_is_cut(
    reduced: int | None, left: tuple[int, int]
) -> None:
    """In its last iteration, the rank works 90, and its last collective ends 40 before the end."""
    rows = pl.DataFrame(
        {
            "rank": [0] * 3,
            "iteration": [0, 1, 2],
            "other_ns": OTHER,
            "forward_ns": [0] * 3,
            "backward_ns": [40] * 3,
            "optimizer_ns": OPTIMIZER,
            "work_ns": [90] * 3,
        }
    )
    measures = rows.with_columns(
        clock=pl.lit("gpu"),
        window_start_ns=0,
        iteration_ns=100,
        time_to_all_reduce_ns=pl.lit(reduced, pl.Int64),
    )
    collectives = pl.DataFrame({"rank": [0], "iteration": [2], "end_ns": [60]})
    tables = {"iterations": rows, "measures": measures, "collectives": collectives}
    cut = without_end(RunTables("run", LoadedTables(tables)), "gpu", rows)
    assert cut["work_ns"].to_list() == [90, 90, 40 + sum(left)]
    assert cut.select("other_ns", "optimizer_ns").row(2) == left
    assert cut.head(2).equals(rows.head(2))
