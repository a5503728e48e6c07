"""Numbers with their nouns, in the singular and the plural."""

from __future__ import annotations

import pytest

from rankscope.util.wording import counted, ranks_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 reports"), (1, "1 report"), (2, "2 reports"), (1024, "1,024 reports")],
)
def test_counts(count: int, text: str) -> None:
    assert counted(count, "report") == text


def test_other_plurals() -> None:
    assert counted(2, "entry", "entries") == "2 entries"
    assert counted(1, "entry", "entries") == "1 entry"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([], "no rank"), ([3], "rank 3"), ([3, 1, 2], "ranks 1-3"), ([0, 2, 4, 6], "ranks 0, 2, …")],
)
def test_ranks(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks, most=2) == text
