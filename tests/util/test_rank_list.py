"""Ranks as users write them, within what a job can have."""

import pytest

from rankscope.errors import UsageError
from rankscope.util.rank_list import MOST_RANKS, parse_ranks


@pytest.mark.parametrize("text", ["0:30000000", str(2**40), f"-{2**40}:3", "9" * 4000])
def test_ranks_that_no_job_has_are_refused_before_they_are_listed(text: str) -> None:
    with pytest.raises(UsageError, match=f"above {MOST_RANKS}") as refused:
        parse_ranks(text)
    assert len(refused.value.message) < 120


def test_lists_and_ranges() -> None:
    assert parse_ranks("7,0:3,2") == [7, 0, 1, 2]
    assert parse_ranks("0-2, 7") == [0, 1, 2, 7], "as they are printed"
    with pytest.raises(UsageError, match="is not a list of ranks"):
        parse_ranks("3-2")
