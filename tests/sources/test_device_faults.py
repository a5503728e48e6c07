"""Clocks of devices that are wrong."""

import polars as pl
import pytest

from rankscope.sources.device_faults import fast_clocks

STEP, COUNT = 10_000_000, 20


@pytest.mark.parametrize(
    ("speed", "is_clock"), [(1.1, True), (3.0, True), (0.5, True), (0.0, False), (20.0, False)]
)
def test_a_clock_is_at_most_ten_times_as_fast_or_slow(speed: float, *, is_clock: bool) -> None:
    launch = pl.Series([STEP * (1 + nth) for nth in range(COUNT)])
    start = (launch * speed).cast(pl.Int64)
    same = {"process": [1] * COUNT}
    work = pl.DataFrame({**same, "launch": launch, "start": start}).with_columns(
        kind=pl.lit("kernel"), end=start + 100
    )
    waited = pl.DataFrame({**same, "start": launch - STEP, "end": launch - 1}).with_columns(
        drains=True
    )
    assert bool(fast_clocks(work, waited)) is is_clock
