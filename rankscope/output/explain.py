"""The meaning of every name that rankscope prints, read from the documents in `rankscope/docs`.

It imports nothing that takes long, so that `rankscope explain` answers at once.
"""

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from rankscope.errors import UsageError
from rankscope.model.metrics import Unit

FOLDER = Path(__file__).resolve().parent.parent / "docs"
"""The documents that ship with the package."""

PAGES = ("EXPLAIN.md", "GLOSSARY.md")
"""Documents of entries: `## group` and `### term` above the text of each entry."""

NEAREST = 5
"""Most similar terms in the error about an unknown term."""

LEAST_SIMILAR = 0.5
"""Least similarity, as difflib computes it, of a term that is offered for an unknown one."""

SCHEMA = "json-schema/rankscope.schema.json"
"""The JSON Schema of all documents, with the meaning of each key."""

FIELDS_OF = "JSON of"
"""Prefix of the group of a key of JSON; the command follows."""

COLUMN_ENDINGS = frozenset(("z", *(unit.lower() for unit in Unit)))
"""Last words of columns that hold values or scores of a metric."""

LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


class Entry(Struct, frozen=True):
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


class Explanation(Struct, frozen=True):
    """Entries that a term names, and terms that contain it."""

    entries: tuple[Entry, ...]
    related: tuple[str, ...] = ()


@cache
def entries() -> tuple[Entry, ...]:
    """All entries, in the order of the documents."""
    return tuple(entry for page in PAGES for entry in _parsed((FOLDER / page).read_text("utf-8")))


@cache
def documents() -> tuple[tuple[str, str, tuple[Entry, ...]], ...]:
    """The keys of JSON by document: first those that all documents share.

    Returns:
        Per document: the name of the command, the description of the document, and an entry per
        key of a shape that no earlier key has explained.
    """
    schema = json.loads((FOLDER / SCHEMA).read_text("utf-8"))
    shapes = schema["$defs"]
    shared = shapes["Answer"]["properties"]
    explained: set[str] = set()
    fields_by_command = []
    for each in ("Answer", *(_shape_name(each) for each in schema["oneOf"])):
        properties = dict(shapes[each]["properties"])
        command = properties["format"].get("enum", ["/errors/"])[0].split("/")[1]
        if each == "Answer":
            command = "all commands"
        else:
            properties = {name: value for name, value in properties.items() if name not in shared}
        explained.add(each)
        keys = _keys(properties, "", shapes, explained)
        entries = tuple(Entry(f"{FIELDS_OF} {command}", key, text) for key, text in keys)
        fields_by_command.append((command, shapes[each]["description"], entries))
    return tuple(fields_by_command)


def _keys(
    properties: dict[str, Any],
    path: str,
    shapes: dict[str, Any],
    explained: set[str],
) -> Iterator[tuple[str, str]]:
    """The keys of an object and of the objects in it, each with its meaning as a sentence.

    Args:
        explained: shapes that are not explained again; those of the keys are added.
    """
    for name, schema in properties.items():
        key, suffix = f"{path}{name}", "."
        alternatives = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
        inner = alternatives[0] if alternatives else schema
        if "items" in inner and isinstance(inner["items"], dict):
            inner, suffix = inner["items"], "[]."
        shape = shapes[_shape_name(inner)] if "$ref" in inner else inner
        text = schema.get("description") or shape["description"].rstrip(".")
        is_new = shape.get("title") not in explained
        explained |= {shape["title"]} if "title" in shape else set()
        if "enum" in shape and is_new:
            text += f" ({', '.join(f'`{value}`' for value in shape['enum'])})"
        yield key, f"{text[:1].upper()}{text[1:]}."
        if "properties" in shape and is_new:
            yield from _keys(shape["properties"], f"{key}{suffix}", shapes, explained)


def _shape_name(reference: dict[str, str]) -> str:
    """The name of the shape that a `$ref` points to."""
    return reference["$ref"].rpartition("/")[2]


@cache
def fields() -> tuple[Entry, ...]:
    """The keys of JSON: an entry each."""
    return tuple(entry for _, _, entries in documents() for entry in entries)


def explain(term: str) -> Explanation:
    """The entries of a term: those named like it, else those whose name ends or begins with it.

    Case, `-`, `_` and spaces do not matter. A key of JSON is looked for last: by its path, or by
    the end of it.

    Raises:
        UsageError: no entry has such a name; the hint lists the nearest terms.
    """
    words = _words(term)
    named, keys = ([(each, _words(each.term)) for each in of] for of in (entries(), fields()))
    candidates = [
        [entry for entry, name in named if name == words],
        [entry for entry, name in named if name[-len(words) :] == words],
        [entry for entry, name in named if name[: len(words)] == words],
        [entry for entry, name in keys if name[-len(words) :] == words],
        [entry for entry, name in keys if f" {' '.join(words)} " in f" {' '.join(name)} "],
    ]
    if not any(candidates) and {*words[-1:]} & COLUMN_ENDINGS:
        return explain(" ".join(words[:-1]))
    matching = next((each for each in candidates if each and words), None)
    if matching is None:
        raise UsageError(f"explain {term!r}: there is no such term", hint=_hint(words))
    others = (entry for each in candidates for entry in each if entry not in matching)
    return Explanation(tuple(matching), tuple(dict.fromkeys(entry.term for entry in others)))


def _hint(words: list[str]) -> str:
    """The hint of an unknown term: terms like it, or whose text says it, and what lists all."""
    terms = {" ".join(_words(entry.term)): entry.term for entry in entries()}
    wanted = " ".join(words)
    containing = [terms[text] for text in terms if wanted and wanted in text]
    saying = [each.term for each in entries() if len(words) > 1 and wanted in _said(each)]
    near = [terms[text] for text in get_close_matches(wanted, terms, NEAREST, LEAST_SIMILAR)]
    nearest = list(dict.fromkeys((*containing, *(saying or near))))[:NEAREST]
    listed = "rankscope explain lists all terms"
    return f"nearest: {', '.join(nearest)}; {listed}" if nearest else listed


def _said(entry: Entry) -> str:
    """The words of an entry's text."""
    return " ".join(_words(" ".join(entry.paragraphs)))


def _words(term: str) -> list[str]:
    """The words of a term in a form in which they are compared."""
    words = re.findall(r"[^\s_.\[\]()-]+", term.casefold())
    return ["communication" if word == "comm" else word for word in words]  # as in a heading


def _parsed(page: str) -> list[Entry]:
    """The entries of one document."""
    entries: list[Entry] = []
    group = ""
    for block in re.split(r"(?m)^(?=##+ )", page)[1:]:
        heading, _, text = block.partition("\n")
        level, _, name = heading.partition(" ")
        if level == "##":
            group = name.strip()
        else:
            for term in name.split(", "):  # several names of one thing
                entries.append(Entry(group, term.strip().strip("`"), text.strip()))
    return entries
