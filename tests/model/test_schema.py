"""Frames are checked against their schema: a misspelt column never becomes unknown."""

import polars as pl
import pytest

from rankscope.model.schema import EXPOSED, conform

ROW = {"rank": [1], "iteration": [2], "clock": ["gpu"], "start_ns": [3], "end_ns": [4]}


def test_columns_come_in_order_and_type() -> None:
    frame = pl.DataFrame(ROW).select(reversed(ROW)).cast({"rank": pl.Int32})
    assert conform(frame, EXPOSED).schema == EXPOSED
    assert conform(frame, EXPOSED).row(0) == (1, 2, "gpu", 3, 4)


def test_a_misspelt_column_is_an_error() -> None:
    frame = pl.DataFrame(ROW).rename({"start_ns": "strat_ns"})
    with pytest.raises(ValueError, match="start_ns is missing, strat_ns is not in the schema"):
        conform(frame, EXPOSED)
    with pytest.raises(ValueError, match="start_ns is missing"):
        conform(frame, EXPOSED, drop_others=True)


def test_what_may_be_missing_is_unknown() -> None:
    frame = pl.DataFrame(ROW).drop("rank").with_columns(extra=1)
    found = conform(frame, EXPOSED, optional=("rank",), drop_others=True)
    assert found.schema == EXPOSED
    assert found["rank"].to_list() == [None]
