"""The answer of `imbalance` as a section of a pull request, an issue or a wiki."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.output.markdown_csv import markdown, prose
from rankscope.output.table_layout import Table


def section(sentence: str, facts: Sequence[str], tables: Sequence[Table]) -> str:
    """A heading with the finding, the rest of the verdict, a list of facts, and tables.

    Args:
        sentence: the sentence of the verdict.
        facts: further lines, such as what to do next.
        tables: the tables to show.
    """
    lead, _, rest = prose(sentence).partition(". ")
    parts = [f"### {lead.rstrip('.')}", rest, "\n".join(f"- {prose(line)}" for line in facts)]
    return "\n\n".join([*filter(None, parts), *map(markdown, tables)])
