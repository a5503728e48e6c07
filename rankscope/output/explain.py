"""The meaning of every name that rankscope prints, read from the documents in `rankscope/docs`.

Only the standard library is used, so that `rankscope explain` answers at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from rankscope.errors import UsageError

FOLDER = Path(__file__).resolve().parent.parent / "docs"
"""The documents that ship with the package."""

PAGES = ("EXPLAIN.md", "GLOSSARY.md")
"""Documents of entries: `## group` and `### term` above the text of each entry."""

NEAREST = 5
"""Similar terms that the error about an unknown term offers."""

LEAST_SIMILAR = 0.5
"""Share of two terms that must agree before one is offered for the other (as difflib counts)."""

CONTRACT, JSON = "CONTRACT.md", "## JSON"
"""The document of the keys of JSON, and the heading of its part about them."""

FIELDS_OF = "JSON of"
"""The beginning of the group of a key; then comes the command."""

LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One term and its explanation."""

    group: str
    term: str
    markdown: str

    @property
    def paragraphs(self) -> list[str]:
        """The explanation as plain text, each paragraph on one line."""
        plain = LINK.sub(r"\1", self.markdown).replace("`", "").replace("**", "")
        return [" ".join(each.split()) for each in plain.split("\n\n")]

    @property
    def summary(self) -> str:
        """The first sentence."""
        return re.split(r"(?<=\.)\s", self.paragraphs[0], maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Entries that a term names, and terms that contain it."""

    entries: tuple[Entry, ...]
    related: tuple[str, ...] = ()


@cache
def entries() -> tuple[Entry, ...]:
    """All entries, in the order of the documents."""
    return tuple(entry for page in PAGES for entry in _parsed((FOLDER / page).read_text("utf-8")))


@cache
def fields() -> tuple[Entry, ...]:
    """The keys of JSON, in the order of CONTRACT.md: an entry each."""
    page = (FOLDER / CONTRACT).read_text("utf-8")
    part = page[page.index(JSON) :].split("\n## ", 1)[0]
    found: list[Entry] = []
    group = ""
    for line in part.splitlines():
        if line.startswith("### "):
            group = f"{FIELDS_OF} {line.removeprefix('### ').lower()}"
        row = re.match(r"\| (`.*?`) \| (.*) \|$", line)
        if row is not None:
            text = f"{row[2][:1].upper()}{row[2][1:].rstrip('.')}."
            found += [Entry(group, key, text) for key in re.findall(r"`([^`]+)`", row[1])]
    return tuple(found)


def explain(term: str) -> Explanation:
    """The entries of a term: those named like it, else those whose name ends or begins with it.

    Case, `-`, `_` and spaces do not matter: `--clock gpu`, `clock gpu` and `gpu` name one entry.
    A term with leading dashes names option values only. A key of JSON is looked for last: by its
    path, or by the end of it.

    Raises:
        UsageError: no entry has such a name; the hint lists the nearest terms.
    """
    words = _words(term)
    option = "--" if term.startswith("--") else ""
    named = [(each, _words(each.term)) for each in entries() if each.term.startswith(option)]
    keys = [] if option else [(each, _words(each.term)) for each in fields()]
    alike = [
        [entry for entry, own in named if own == words],
        [entry for entry, own in named if own[-len(words) :] == words],
        [entry for entry, own in named if own[: len(words)] == words],
        [entry for entry, own in keys if own[-len(words) :] == words],
        [entry for entry, own in keys if _contains(own, words)],
    ]
    if not any(alike) and words[-1:] in (["ns"], ["z"]):  # a column of a metric
        return explain(" ".join(words[:-1]))
    found = next((each for each in alike if each and words), None)
    if found is None:
        raise UsageError(f"explain {term!r}: there is no such term", hint=_hint(words))
    others = (entry for each in alike for entry in each if entry not in found)
    return Explanation(tuple(found), tuple(dict.fromkeys(entry.term for entry in others)))


def _contains(own: list[str], words: list[str]) -> bool:
    """Whether words stand in a term, side by side."""
    count = len(words)
    return any(own[at : at + count] == words for at in range(len(own) - count + 1))


def _hint(words: list[str]) -> str:
    """The nearest terms, and the command that lists all."""
    terms = {" ".join(_words(entry.term)): entry.term for entry in entries()}
    wanted = " ".join(words)
    containing = [own for own in terms if wanted and wanted in own]
    near = get_close_matches(wanted, terms, NEAREST, LEAST_SIMILAR)
    nearest = list(dict.fromkeys(terms[own] for own in (*containing, *near)))[:NEAREST]
    listed = "rankscope explain lists all terms"
    return f"nearest: {', '.join(nearest)}; {listed}" if nearest else listed


def _words(term: str) -> list[str]:
    """The words of a term, comparable."""
    return re.findall(r"[^\s_.\[\]-]+", term.casefold())


def _parsed(page: str) -> list[Entry]:
    """The entries of one document."""
    found: list[Entry] = []
    group = ""
    for block in re.split(r"(?m)^(?=##+ )", page)[1:]:
        heading, _, text = block.partition("\n")
        level, _, name = heading.partition(" ")
        if level == "##":
            group = name.strip()
        else:
            for term in name.split(", "):  # several names of one thing
                found.append(Entry(group, term.strip().strip("`"), text.strip()))
    return found
