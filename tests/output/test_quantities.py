"""Numbers and names as people read them, tables in Markdown and CSV."""

import csv as reader
import io
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.output.markdown_csv import csv
from rankscope.output.quantities import beyond_error, seconds
from rankscope.output.text_tables import cost_note, no_gains, what_if_table
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import size, span
from tests.support import Stored


@pytest.mark.parametrize(
    "name",
    ["\x1b[31mred\x1b[0m", "bell\x07", "nul\0", "up\x1b]0;title\x07", "\u202eabc", "line\nbreak",
     "carriage\rreturn", "c1\x9b31m", "del\x7f", "tab\t"],
)  # fmt: skip
def test_names_cannot_harm_a_terminal(name: str) -> None:
    shown = sanitized(name)
    assert all(char.isprintable() for char in shown)
    assert "<U+" in shown


def test_harmless_names_stay() -> None:
    assert sanitized("forward [bold] 漢字 'x'") == "forward [bold] 漢字 'x'"
    assert sanitized("x" * 80) == "x" * 80
    assert len(sanitized("x" * 10_000)) == 80
    assert sanitized("x" * 81).endswith("…")


def test_moments_sizes_and_spans() -> None:
    assert seconds(10_687_040_000) == "10.6870 s"
    assert seconds(-20_000) == "0.0000 s"
    assert [size(7), size(2_100_000), size(3_000_000_000)] == ["7 B", "2.1 MB", "3.0 GB"]
    assert span([0, 1, 2, 3, 7, 9, 10]) == "0-3, 7, 9-10"
    assert span([]) == ""


def test_a_rank_that_others_wait_for_may_have_waited_itself() -> None:
    """As one whose neighbour is slow; the cost is of the one that comes last."""
    ranks = pl.DataFrame({"rank": [2, 3], "cost_ns": [9, 1]})
    for slow, says_so in (((3,), True), ((2,), False), ((), False)):
        result: Any = SimpleNamespace(
            chained=False, ranks=ranks, verdict=SimpleNamespace(named=slow)
        )
        assert cost_note(result).endswith(": see work") == says_so


def test_csv_survives_any_name() -> None:
    names = ['comma, "quote"', "line\nbreak", "sanitized"]
    frame = pl.DataFrame({"name": names, "ranks": [[0, 1], [], [2]], "value_ns": [1, None, 3]})
    rows = list(reader.DictReader(io.StringIO(csv(frame))))
    assert [row["name"] for row in rows] == ['comma, "quote"', "line?break", "sanitized"]
    assert [row["ranks"] for row in rows] == ["0 1", "", "2"]
    assert [row["value_ns"] for row in rows] == ["1", "", "3"], "unknown is empty, not 0"


def test_what_is_finer_than_its_error_is_withheld() -> None:
    assert beyond_error(4_970_000, 700_000) == "4.97"
    assert beyond_error(300_000, 700_000) == "< 0.70"
    assert beyond_error(0, 2_500) == "0.00", "too small an error to show"
    assert beyond_error(0, None) == "0.00"


def test_a_run_that_would_take_no_time(sample: Stored) -> None:
    result = sample.run.imbalance()
    assert result.what_if is not None
    nothing = replace(result, what_if=result.what_if.with_columns(time_ns=pl.lit(0)))
    table = what_if_table(nothing)
    assert table is not None
    assert "the run would take no time" in table.title


def test_why_there_is_no_table_of_gains(sample: Stored) -> None:
    result = sample.run.imbalance()
    assert result.what_if is not None
    small = replace(result, what_if=result.what_if.with_columns(gain=pl.lit(0.0049)))
    assert what_if_table(small) is None
    assert no_gains(small) == "No table of gains: no repair would save 0.5 % of the time."
    unknown = replace(result, what_if=None)
    assert no_gains(unknown) == "No table of gains: the run cannot be replayed."
