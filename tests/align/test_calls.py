"""Calls sorted into instances by one number that counts through all of them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankscope.align.calls import INSTANCE, OWN, together


@pytest.mark.parametrize("steps", [[0, 1, 2], [-5, 0, 7], [3, 2**31 + 1, 9 * 10**17]])
def test_calls_are_sorted_and_their_instances_told(steps: list[int]) -> None:
    draw = np.random.default_rng(3)
    calls = (
        pl.DataFrame(
            {
                "group": draw.integers(0, 3, 500),
                "operation": pl.Series(
                    draw.choice(["barrier", "all_reduce"], 500), dtype=pl.Categorical
                ),
                "iteration": draw.choice(steps, 500),
                "ordinal": draw.integers(0, 4, 500),
                "rank": draw.choice([0, 4, 8191], 500),
                "gradient": draw.integers(0, 2, 500) == 1,
                "arrival_ns": draw.integers(0, 10**15, 500),
                "end_ns": draw.integers(0, 10**15, 500),
            }
        )
        .cast({"operation": pl.Categorical})
        .unique([*INSTANCE, "rank"], keep="first", maintain_order=True)
    )
    as_text = pl.col("operation").cast(pl.String)
    expected = calls.with_columns(as_text).sort(*INSTANCE, "rank")
    own, instances, size = together({name: calls[name] for name in calls.columns})
    assert own.equals(expected.select(name for name in OWN if name in expected.columns))
    shared = instances.with_columns(as_text)
    assert shared.equals(expected.select(INSTANCE).unique(maintain_order=True))
    assert size.tolist() == expected.group_by(INSTANCE, maintain_order=True).len()["len"].to_list()
