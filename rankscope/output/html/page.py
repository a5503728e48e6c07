"""A run → one page that opens from disk.

Names in it come from reports and are text: every one is made plain, the data stands in the page as
JSON without a `<`, scripts put it there as text alone, and the page's policy lets nothing run but
the scripts it was made with, and nothing load at all.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable
from importlib.resources import files

from rankscope.compare.comparison import Analysis
from rankscope.compare.picks import Picks
from rankscope.model.metrics import METRICS
from rankscope.model.results import Imbalance
from rankscope.output import json_documents
from rankscope.output.html import columns, page_text, tables
from rankscope.output.html.lanes import Detail, lanes
from rankscope.output.html.page_text import Origin
from rankscope.output.json_documents import Document
from rankscope.output.quantities import shown_unit
from rankscope.output.text_tables import run_line
from rankscope.util.sanitize import sanitized

SCRIPTS = ("data", "look", "picked", "map", "phases", "timeline", "tables", "main")
"""The page's own scripts, in their order; they share one scope."""

CHARTS = "vendor/plotly-cartesian.min.js"

LONGEST = 500
LONGEST_LINE = 20_000
"""Of a command: half of one is none."""

ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}
"""So that data can end no script and open no comment (what is not ASCII is escaped anyway)."""

FIRST_METRICS = ("work", "load", "iteration")
"""What the map shows at first: the first of these that is known."""


def page(
    analysis: Analysis, result: Imbalance, picks: Picks, detail: Detail, origin: Origin
) -> bytes:
    """The whole page, UTF-8.

    Args:
        analysis: the run, and how to look at it.
        result: its imbalance, all metrics.
        picks: the ranks of the timeline.
        detail: their timeline, or why there is none.
        origin: what the page is made from, and by.
    """
    told = content(analysis, result, picks, detail, origin)
    own = "\n".join(_part(f"js/{name}.js") for name in SCRIPTS)
    scripts = {"vendor": _part(CHARTS), "script": f'"use strict";\n(() => {{\n{own}\n}})();'}
    sentence = told["verdict"]["sentence"]
    parts = {
        **scripts,
        "policy": html.escape(_policy(scripts.values())),
        "title": html.escape(f"{told['run']['name']} – rankscope"),
        "style": _part("page.css"),
        "sentence": html.escape(sentence),
        "next": html.escape(told["next"]),
        "facts": html.escape(told["facts"]),
        "data": json.dumps(told, separators=(",", ":"), allow_nan=False).translate(ESCAPES),
    }
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part("template.html"))
    return text.encode("utf-8", "replace")


def content(
    analysis: Analysis, result: Imbalance, picks: Picks, detail: Detail, origin: Origin
) -> Document:
    """Everything that the page's scripts show."""
    facts = analysis.facts
    found = tables.flagged(analysis)
    timeline = lanes(detail, picks)
    cells = columns.cells(analysis.chosen, facts.ranks, facts.iterations, tuple(METRICS))
    own = {
        "verdict": json_documents.verdict(result.verdict),
        "next": f"Next: {result.verdict.next}.",
        "facts": run_line(facts),
        "figures": page_text.figures(result),
        "quality": page_text.quality(analysis, facts, cells["unit_ns"], found.height),
        "metrics": {
            each.name: {
                "name": each.label,
                "meaning": each.meaning,
                "unit": shown_unit(each.unit),
                "column": each.column,
            }
            for each in METRICS.values()
        },
        "metric": next(name for name in FIRST_METRICS if name in cells["columns"]),
        "first": _first(analysis, result, picks),
        "flagged": {
            "columns": ["rank", "iteration", "cause"],
            "values": [found[name].to_list() for name in ("rank", "iteration", "cause")],
        },
        "timeline": timeline.chart,
        "tables": [
            *tables.numbers(analysis, result),
            *timeline.tables,
            *tables.quality(analysis, facts),
        ],
        "made": f"Made by {origin.program}. This page holds all its data and loads nothing.",
    }
    document = _safe(json_documents.document("page", origin.db, facts, analysis.problems, own))
    document["cells"] = cells
    document["commands"] = [
        (what, sanitized(line, LONGEST_LINE))
        for what, line in page_text.commands(analysis, picks, origin)
    ]
    return document


def _first(analysis: Analysis, result: Imbalance, picks: Picks) -> Document:
    """The cell that is picked at first: the accused's largest excess, or where the picks differ."""
    found = tables.flagged(analysis)
    accused = found.filter(found["rank"].is_in(result.verdict.ranks))
    rows = accused if accused.height else found
    if rows.height:
        return rows.select("rank", "iteration").row(0, named=True)
    slowest = next((each for each in picks.picks if each.label == "max"), picks.picks[0])
    return {"rank": slowest.rank, "iteration": slowest.worst.iteration}


def _safe(value: Document) -> Document:
    """With every text in it harmless."""

    def safe(each: object) -> object:
        if isinstance(each, str):
            return sanitized(each, LONGEST)
        if isinstance(each, dict):
            return {key: safe(inner) for key, inner in each.items()}
        return [safe(inner) for inner in each] if isinstance(each, list | tuple) else each

    return {key: safe(inner) for key, inner in value.items()}


def _policy(scripts: Iterable[str]) -> str:
    """Content-Security-Policy: these scripts, styles of the page itself, and nothing from outside.

    The charts set styles of their own, so styles cannot be held to one text.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _part(name: str) -> str:
    """A file of this room."""
    return files(__package__).joinpath(name).read_text("utf-8")
