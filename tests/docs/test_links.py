"""Every link leads somewhere: in Markdown files, and from docstrings into the documents."""

import re
from pathlib import Path

import pytest

from tests.readme import ROOT

SKIPPED = {"node_modules", "build", "dist", "venv"}

DOCUMENTS = ROOT / "rankscope" / "docs"

LINK = re.compile(r"\]\((?!https?:)([^)\s]*)\)")
CODE = re.compile(r"```.*?```", re.DOTALL)

FROM_SOURCES = re.compile(r"\b([A-Z]+\.md)(?:#([\w-]+))?")
"""`METHOD.md#waits` in a docstring or comment."""

MOST_TERMS = 40
"""Terms of the glossary: more words are more than one for a concept."""


def ours(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return not any(part.startswith(".") or part in SKIPPED for part in parts) and (
        parts[0] in ("rankscope", "cli", "tests", "sample_reports") or len(parts) == 1
    )


PAGES = [path for path in sorted(ROOT.rglob("*.md")) if ours(path)]


def anchors(page: Path) -> set[str]:
    """Explicit anchors, and those that a heading gets by its text."""
    text = CODE.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in headings}
    return slugs | {*re.findall(r'<a id="([\w-]+)"></a>', text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_links_in_sources_lead_to_sections_that_exist() -> None:
    known = {page.name: anchors(page) for page in DOCUMENTS.glob("*.md")}
    broken = [
        f"{path.relative_to(ROOT)}: {name}#{anchor}"
        for folder in ("rankscope", "cli")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, anchor in FROM_SOURCES.findall(path.read_text("utf-8"))
        if name in known and anchor and anchor not in known[name]
    ]
    assert not broken


def test_the_glossary_is_short() -> None:
    terms = re.findall(r"^### (.+)$", (DOCUMENTS / "GLOSSARY.md").read_text("utf-8"), re.MULTILINE)
    assert 0 < len(terms) <= MOST_TERMS
    assert len({*terms}) == len(terms)
