"""A section for a pull request: heading, list, tables, and names that stay text."""

from __future__ import annotations

from rankscope.output.markdown_page import section
from rankscope.output.table_layout import Table

TABLE = Table(title="By rank", columns=("rank", "work"), rows=(("2", "14.0"),), numeric=frozenset())


def test_it_is_a_section_with_the_finding_as_its_heading() -> None:
    text = section("Rank 2 is slow. Fixing it saves 3 ms.", ["Next: look.", "4 ranks"], [TABLE])
    assert text.split("\n\n") == [
        "### Rank 2 is slow",
        "Fixing it saves 3 ms.",
        "- Next: look.\n- 4 ranks",
        "**By rank**",
        "| rank | work |\n| --- | --- |\n| 2 | 14.0 |",
    ]
    assert section("Balanced", [], []) == "### Balanced"


def test_names_are_no_markup() -> None:
    text = section("Rank 2 (<img src=x>) is slow. On [a](http://b) `c`", ["<b>"], [])
    assert "<" not in text
    assert "\\[a]" in text
    assert "\\`c\\`" in text
