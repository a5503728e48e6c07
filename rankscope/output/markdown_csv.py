"""Tables as Markdown, frames as CSV; names from reports stay plain text in both."""

import re
from collections.abc import Sequence

import polars as pl

from rankscope.output.table_layout import Table

LIVE = re.compile(r"[<`\[\\]|&#?\w+;|://|www\.|\w@\w|(?<!\w)[@#]\w", re.IGNORECASE)
"""Text that Markdown, or a platform that renders it, could take for HTML, a link or a mention."""

ESCAPES = {"<": "&lt;", ">": "&gt;", "[": "\\[", "`": "\\`", "\\": "\\\\", "&": "&amp;"}

BROKEN_LINKS = (("://", ":&#47;&#47;"), ("www.", "www&#46;"), ("@", "&#64;"))
"""Parts of texts that platforms turn into links, and references that look the same."""

FORMULA = r"^[=+\-@\t\r＝＋－＠]"
"""The start of a formula; spreadsheets treat the wide characters like the narrow ones."""

NUMBER = r"^[+-]?[0-9][0-9.,]*(?:[eE][+-]?[0-9]+)?$"
"""A number, which is no formula whatever its sign."""


def markdown(table: Table) -> str:
    """The title and the table in GitHub Markdown, followed by the note.

    A cell that could be markup is shown as code, where markup has no effect.
    """

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(map(_cell, cells)) + " |"

    rule = tuple("--:" if name in table.numeric else "---" for name in table.columns)
    body = [line(table.columns), "| " + " | ".join(rule) + " |", *map(line, table.rows)]
    title = [f"**{prose(table.title)}**", ""] if table.title else []
    return "\n".join([*title, *body, *(["", prose(table.note)] if table.note else [])])


def section(sentence: str, facts: Sequence[str], tables: Sequence[Table]) -> str:
    """A heading with the first sentence of the verdict, its other sentences, facts, and tables."""
    lead, _, remainder = prose(sentence).partition(". ")
    parts = [f"### {lead.rstrip('.')}", remainder, "\n".join(f"- {prose(line)}" for line in facts)]
    return "\n\n".join([*filter(None, parts), *map(markdown, tables)])


def prose(text: str) -> str:
    """A sentence as Markdown, in which names are never HTML or links."""
    escaped = "".join(ESCAPES.get(char, char) for char in text)
    for part, harmless in BROKEN_LINKS:
        escaped = re.sub(re.escape(part), harmless, escaped, flags=re.IGNORECASE)
    return escaped


def _cell(text: str) -> str:
    if LIVE.search(text):
        fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
        pad = " " if text.startswith("`") or text.endswith("`") else ""
        text = f"{fence}{pad}{text}{pad}{fence}"
    return text.replace("|", "\\|")


def csv(frame: pl.DataFrame) -> str:
    """CSV with a line of headings; lists are joined by spaces, unknown is empty.

    Text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    flat = frame.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join(" ")
        for name, dtype in frame.schema.items()
        if isinstance(dtype, pl.List)
    )
    texts = [
        name
        for name, dtype in frame.schema.items()
        if dtype == pl.String or (isinstance(dtype, pl.List) and dtype.inner == pl.String)
    ]
    harmless = flat.with_columns(map(_no_formula, texts))
    return (
        harmless.with_columns(pl.col(pl.String).str.replace_all(r"\p{C}", "?"))
        .write_csv()
        .rstrip("\n")
    )


def _no_formula(name: str) -> pl.Expr:
    text = pl.col(name)
    is_formula = text.str.contains(FORMULA) & ~text.str.contains(NUMBER)
    return pl.when(is_formula).then(pl.lit("'") + text).otherwise(text).alias(name)
