"""`rankscope explain`: the meaning of any name that rankscope prints."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from rankscope_cli import console
from rankscope_cli.options import Format, FormatOption, Quiet

if TYPE_CHECKING:
    from rankscope.output.explain import Entry, Explanation

TERM_WIDTH = 29
"""Characters of the first column of the list."""


def explain(
    term: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TERM]",
            help="A metric, verdict class, cause, warning code, exit code, heading, or word of the "
            "glossary; else all are listed.",
        ),
    ] = None,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """The meaning of a name that rankscope prints, its formula, and what to do.

    Examples:

      rankscope explain

      rankscope explain exposed_communication

      rankscope explain missing-ranks

      rankscope explain exit 3
    """
    from rankscope.output import explain as documents

    text = " ".join(term or [])
    explanation = documents.explain(text) if text else documents.Explanation(documents.entries())
    if output is Format.JSON:
        from rankscope.output.documents.explain import explain as document

        console.write_document(document(text or None, explanation))
    elif output is Format.CSV:
        _write_csv(explanation.entries)
    elif output is Format.MARKDOWN:
        texts = (f"## {entry.term}\n\n{entry.markdown}" for entry in explanation.entries)
        console.write("\n\n".join(texts))
    elif text:
        _show(explanation)
    else:
        _list(explanation.entries)
        console.say(f"\nThe documents: {documents.FOLDER}", quiet)


def _show(explanation: Explanation) -> None:
    """Every entry in full."""
    for number, entry in enumerate(explanation.entries):
        if number:
            console.write("")
        console.headline(f"{entry.term} ({entry.group.lower()})")
        for paragraph in entry.paragraphs:
            console.prose(paragraph)
    if explanation.related:
        console.write("")
        console.prose(f"See also: {', '.join(explanation.related)}")


def _list(entries: tuple[Entry, ...]) -> None:
    """All terms by group, each with its first sentence."""
    for number, (group, members) in enumerate(groupby(entries, lambda entry: entry.group)):
        if number:
            console.write("")
        console.headline(group)
        for entry in members:
            console.item(entry.term, entry.summary, TERM_WIDTH)


def _write_csv(entries: tuple[Entry, ...]) -> None:
    import polars as pl

    from rankscope.output.markdown_csv import csv

    rows = [(entry.group, entry.term, " ".join(entry.paragraphs)) for entry in entries]
    console.write(csv(pl.DataFrame(rows, ["group", "term", "text"], orient="row")))
