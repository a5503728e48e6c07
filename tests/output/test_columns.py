"""Headings, units and meanings of columns: the same row for text, Markdown and pages."""

import polars as pl
import pytest

from rankscope.model.metrics import METRICS
from rankscope.output import columns
from rankscope.output.frame_table import generic_table
from rankscope.output.html.tables import sortable_table


@pytest.mark.parametrize(
    ("name", "value", "heading", "cell", "kind", "on_page"),
    [
        ("host", "\x1bn0", "host", "<U+001B>n0", "text", "\x1bn0"),
        ("work_ns", None, "work", "–", "ms", None),
        ("excess_ns", 2_500_000, "excess", "2.50", "ms", 2_500_000),
        ("last_share", 0.25, "last", "25 %", "share", 0.25),
        ("imbalance", 0.25, "imbalance", "25 %", "share", 0.25),
        ("bus_bandwidth", 12_300_000_000.0, "bus GB/s", "12.3", "number", 12.3),
        ("bus_bandwidth", 24_400_000.0, "bus GB/s", "0.0244", "number", 0.0244),
        ("bus_bandwidth", 1_234_500_000_000.0, "bus GB/s", "1,234", "number", 1234.5),
        ("slowest_rank", 3, "slowest rank", "3", "rank", 3),
        ("iteration", 3, "iteration", "3", "iteration", 3),
        ("count", 3, "count", "3", "number", 3),
        ("phase", "load", "phase", "load", "text", "load"),
    ],
)
def test_a_value_is_shown_as_its_column_says(
    name: str, value: object, heading: str, cell: str, kind: str, on_page: object
) -> None:
    frame = pl.DataFrame({name: [value]})
    table = generic_table(frame, "")
    assert (table.columns, table.rows) == ((heading,), ((cell,),))
    page = sortable_table("t", "T", frame)
    assert [each["kind"] for each in page["columns"]] == [kind]
    assert page["values"] == [[on_page]]


def test_meanings_are_those_of_metrics_or_of_the_row() -> None:
    assert columns.meaning("work_ns") == METRICS["work"].meaning
    assert columns.meaning("work_z") == columns.COLUMNS["z"].meaning
    assert columns.meaning("iteration") is None, "its number, not its length"
    assert columns.notes("lost_ns") == (("rank time lost", columns.COLUMNS["lost"].meaning),)
    assert columns.label("lost_ns") == "rank time lost", "as in text"
    assert columns.heading("last_arriver_share") == "last"
    assert columns.label("last_arriver_share") == "came last"


def test_a_column_that_no_row_knows_says_what_its_name_does() -> None:
    assert columns.heading("new_thing_ns") == columns.label("new_thing_ns") == "new thing"
    assert columns.shown("new_thing_ns") is columns.Shown.MS
    assert columns.meaning("new_thing_ns") is None
