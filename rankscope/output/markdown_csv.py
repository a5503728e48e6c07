"""Tables as Markdown, frames as CSV."""

from __future__ import annotations

import polars as pl

from rankscope.output.table_layout import Table


def markdown(table: Table) -> str:
    """The title and the table in GitHub Markdown, followed by the note."""

    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    table = table.without(table.graphic)
    rule = tuple("--:" if name in table.numeric else "---" for name in table.columns)
    body = [line(table.columns), line(rule), *map(line, table.rows)]
    title = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*title, *body, *(["", table.note] if table.note else [])])


def csv(frame: pl.DataFrame) -> str:
    """CSV with a line of headings; lists are joined by spaces, unknown is empty."""
    flat = frame.with_columns(
        pl.col(name).cast(pl.List(pl.String)).list.join(" ")
        for name, dtype in frame.schema.items()
        if isinstance(dtype, pl.List)
    ).with_columns(pl.col(pl.String).str.replace_all(r"\p{C}", "?"))
    return flat.write_csv().rstrip("\n")
