"""The words that commands print: headings of tables, and labels."""

import re
from pathlib import Path

import pytest
from matplotlib.text import Text
from rankscope_cli import console

from rankscope.api import Run
from rankscope.model.kinds import By
from rankscope.output.plots import KINDS
from rankscope.output.table_layout import Table
from tests.output.test_html import Page
from tests.support import SAMPLE, Cli

COMMANDS = (
    ("ingest", SAMPLE, "-v"),
    ("check", SAMPLE, "-v"),
    ("imbalance", "--all"),
    *(("imbalance", "--by", by.value) for by in By if by is not By.RANK),
    ("pick-reports",),
    ("diff", "rankscope.duckdb", "other.duckdb", "--all"),
    ("fleet", "rankscope.duckdb", "other.duckdb", "--all"),
)
"""Commands that print tables."""

WRITING = (
    ("plot", "heatmap"),  # the others print the same facts
    ("export", "-o", "picks.json"),
    ("export", "-o", "run.parquet"),
)
"""Commands that write a file, and print facts about it."""

FEW_WORDS = 3
"""Words of a name; longer labels are sentences."""


def headings(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The headings of all tables of text, and what stands in their columns of names."""
    found: set[str] = set()

    def show(table: Table, show_all: bool = False) -> None:
        found.update(table.columns)
        for column in ("metric", "pick", "what"):
            if column in table.columns:
                found.update(row[table.columns.index(column)] for row in table.rows)

    monkeypatch.setattr(console, "show", show)
    for words in COMMANDS:
        assert cli(*words).code == 0, words
    for words in WRITING:
        output = cli(*words, "--format", "markdown").out
        [row] = re.findall(r"(?m)^\| (.*) \|\n\| -", output)
        found.update(row.split(" | "))
    plain = (re.sub(r" \(.*\)", "", each) for each in found)  # units, and which axis
    return {part for each in plain for part in each.split(", ")} - {""}


def labels_of_pictures(run: Run) -> set[str]:
    """The legends of all pictures, and the headings of columns in them."""
    found: set[str] = set()
    for kind in KINDS:
        if kind != "why":  # needs reports that say what threads do
            figure = run.plot(kind).figure
            found.update(text.get_text() for text in figure.findobj(Text))
    found = {re.sub(r" \(.*\)|:.*", "", each) for each in found}
    return {each for each in found if re.fullmatch(r"[a-z][a-z -]+", each)} - {
        each for each in found if len(each.split()) > FEW_WORDS
    }


def labels_of_page(cli: Cli) -> set[str]:
    """The headings of the page's tables, and its figures."""
    assert cli("report", "-o", "page.html").code == 0
    output = Page(Path("page.html").read_text("utf-8")).data
    found = {column["label"] for table in output["tables"] for column in table["columns"]}
    found |= {term for term, *_ in output["figures"]}
    return found
