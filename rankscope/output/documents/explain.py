"""The document of `explain`."""

from typing import Annotated

from msgspec import Struct

from rankscope.output import explain as terms
from rankscope.output.documents.common import Answer, struct_of
from rankscope.util.meaning import says


class Entry(Struct, kw_only=True):
    """One term and its explanation."""

    group: Annotated[str, says("what kind of name it is")]
    term: Annotated[str, says("the name")]
    summary: Annotated[str, says("the first sentence")]
    text: Annotated[str, says("the explanation as plain text")]
    markdown: Annotated[str, says("the explanation in Markdown")]


class Explain(Answer, kw_only=True, tag="rankscope/explain/1"):
    """The meaning of a name that rankscope prints."""

    term: Annotated[str | None, says("what was asked; null: all entries")]
    entries: Annotated[tuple[Entry, ...], says("the entries of the term")]
    related: Annotated[tuple[str, ...], says("terms that contain it")]


def explain(term: str | None, explanation: terms.Explanation) -> Explain:
    """The document of `explain`."""
    entries = tuple(
        struct_of(Entry, each, text="\n\n".join(each.paragraphs)) for each in explanation.entries
    )
    return Explain(run=None, warnings=(), term=term, entries=entries, related=explanation.related)
