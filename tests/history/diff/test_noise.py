"""The noise of scores."""

import numpy as np
import pytest

from rankscope.history.diff import noise


def test_the_error_of_a_mean_is_that_of_independent_values() -> None:
    values = np.random.default_rng(1).normal(1000, 20, (3, 400)).round()
    assert noise.sampling(values, "mean") == pytest.approx([1.0] * 3, rel=0.3)


def test_the_error_of_a_mean_is_unknown_where_a_value_is() -> None:
    values = np.arange(40.0).reshape(2, 20)
    values[1, 3] = np.nan
    known, unknown = noise.sampling(values, "mean")
    assert known > 0
    assert np.isnan(unknown)
