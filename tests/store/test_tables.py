"""Tables of a run, loaded in part and in narrow types."""

import polars as pl

from rankscope.store.tables import narrowed


def test_numbers_of_iterations_may_be_huge() -> None:
    """They are read off names: a step may be numbered by anything."""
    frame = pl.DataFrame({"rank": [3], "iteration": [10**18], "ordinal": [0], "clock": ["gpu"]})
    assert narrowed(frame).rows() == frame.rows()
