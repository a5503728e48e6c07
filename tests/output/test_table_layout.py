"""Tables in a width: numbers whole, columns and names cut."""

import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.model.results import Holder
from rankscope.output.frame_table import by_table
from rankscope.output.table_layout import (
    MOST_ROWS,
    Table,
    display_width,
    middle_out,
)
from rankscope.output.text_tables import iterations_table, ranks_table
from tests.support import MakeStored

WIDE = Table(
    "T",
    ("rank", "host", "work", "note", "cost"),
    tuple((str(rank), f"gpu-a100-rack7-slot{rank}-node{rank}.cluster", "1,234,567.8",
           "slow in some iterations, not in others", "98.7") for rank in range(100)),
    numeric=frozenset(("rank", "work", "cost")),
    drop_first=("cost", "note", "host"),
    shorten=frozenset(("host", "note")),
    notes=(("cost", "what it cost"),),
)  # fmt: skip


@pytest.mark.parametrize("width", [18, 30, 50, 80, 120, 10_000])
def test_numbers_are_never_cut_and_lines_fit(width: int) -> None:
    table, dropped = WIDE.fitted(width)
    lines = table.lines(width)
    assert all(display_width(line) <= width for line in lines)
    assert all("1,234,567.8" in line for line in lines[2:])
    assert {*table.columns} | {*dropped} == {*WIDE.columns}
    assert bool(table.note) == ("cost" in table.columns), "notes go with their columns"


def test_the_ranks_that_a_sentence_tells_of_come_first(stored: MakeStored) -> None:
    found = stored("buckets").run.imbalance()
    comparison, verdict = stored("buckets").analysis(), replace(found.verdict, ranks=(), also=())
    last = int(found.ranks.sort("work_ns")["rank"][0])
    for told in (
        replace(verdict, members=(last,)),
        replace(verdict, holders=(Holder(last, (5,)),)),
    ):
        table = ranks_table(replace(found, verdict=told), comparison, ["work"])
        assert table is not None
        assert table.rows[table.most_relevant[0]][0] == str(last)


def test_of_many_iterations_one_that_is_long_on_all_ranks_is_shown(stored: MakeStored) -> None:
    found = stored("buckets").run.imbalance()
    rows = pl.DataFrame({"iteration": range(100)}).select(
        "iteration",
        iteration_ns=pl.lit(20_000_000),
        spread_ns=10 * pl.col("iteration"),
        slowest_rank=pl.lit(0),
        flagged_ranks=pl.lit([], pl.List(pl.Int64)),
        cluster=pl.when(pl.col("iteration") == 7)
        .then(pl.lit("slow: other of all ranks"))
        .otherwise(pl.lit("normal")),
    )
    table, _ = iterations_table(replace(found, iterations=rows), "work").shortened()
    shown = [int(row[0]) for row in table.rows]
    assert shown == [7, *range(100 - MOST_ROWS + 1, 100)]


def test_numbers_stay_whole_where_nothing_fits() -> None:
    table, dropped = WIDE.fitted(5)
    assert dropped == ("cost", "note", "host")
    assert "1,234,567.8" in table.lines(5)[2]


def test_a_narrow_column_comes_back_when_a_wide_one_went() -> None:
    table = Table("", ("a", "b", "c"), (("1", "x" * 40, "2"),), drop_first=("a", "b"),
                  numeric=frozenset(("b",)))  # fmt: skip
    assert table.fitted(20)[1] == ("b",)


def test_of_many_rows_the_middle_goes_or_what_tells_least() -> None:
    part, gap = WIDE.shortened()
    assert len(part.rows) == MOST_ROWS
    assert [row[0] for row in part.rows][gap - 1 : gap + 1] == ["14", "95"]
    lines = part.lines(200, gap, "… 80 more: --all")
    assert lines[2 + gap] == "… 80 more: --all"
    shortened = Table("", ("n",), tuple((str(n),) for n in range(100)),
                    most_relevant=tuple(range(99, -1, -1)))  # fmt: skip
    assert [row[0] for row in shortened.shortened()[0].rows] == [str(n) for n in range(80, 100)]


def test_names_keep_both_ends() -> None:
    assert middle_out("gpu-a100-rack1-node15", 15) == "gpu-a10…-node15"
    assert middle_out("short", 15) == "short"
    assert display_width(middle_out("漢字" * 20, 15)) <= 15


def test_of_many_collectives_the_costliest_are_shown_with_their_ranks_and_bandwidth() -> None:
    """Each of two groups has a hundred, and the 77th of the second one takes longest."""
    calls = pl.DataFrame({"ordinal": [*range(100)] * 2, "ranks": [[0, 1]] * 100 + [[2, 3]] * 100})
    slow = (pl.col("ordinal") == 77) & (pl.col("ranks").list.first() == 2)
    calls = calls.select(
        communicator=pl.lit("device all_reduce*100 0"),
        operation=pl.lit("all_reduce"),
        ordinal="ordinal",
        ranks="ranks",
        count=pl.lit(19),
        bytes=pl.lit(1 << 20),
        transfer_ns=pl.when(slow).then(9_330_000).otherwise(50_000),
        wait_ns=pl.lit(None, pl.Int64),
        algorithm_bandwidth=pl.lit(224e9),
        bus_bandwidth=pl.lit(448e9),
    )
    table, _ = by_table("collective", calls).shortened()
    table, dropped = table.fitted(80)
    assert {"bytes", "count"} <= {*dropped}
    [shown] = [row for row in table.rows if "9.33" in row]
    assert {"2-3", "77", "448"} <= {*shown}
