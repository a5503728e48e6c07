"""A run as one page that opens from disk.

Names in the page come from reports and must remain text. So every name is sanitized, the data is
JSON without `<`, `>` and `&`, the scripts insert it only as text nodes, and the page's
Content-Security-Policy allows its own scripts only, and no loading.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import polars as pl

from rankscope.compare.comparison import Comparison
from rankscope.compare.picks import Picks
from rankscope.errors import UsageError
from rankscope.model.kinds import Phase
from rankscope.model.metrics import METRICS
from rankscope.model.results import Imbalance
from rankscope.output.documents.common import Document, plain, run_of
from rankscope.output.excess_scale import MAP_METRICS
from rankscope.output.html import columns, page_text, tables
from rankscope.output.html.lanes import ShownTimeline, timeline_section
from rankscope.output.html.page_text import Origin
from rankscope.output.html.states import MOST_CELLS, cell_states
from rankscope.output.nsys_view import LONGEST_COMMAND, with_options
from rankscope.output.palette import (
    COMMUNICATION_PARTS,
    STATE_NAMES,
    THEMES,
    in_both_themes,
    part_name,
)
from rankscope.output.phase_shares import phase_shares
from rankscope.output.quantities import shown_unit
from rankscope.output.table_layout import UNIT
from rankscope.output.text_tables import run_line
from rankscope.util.sanitize import sanitized

SCRIPTS = (
    *("basics", "data", "look", "server", "states", "picked", "map"),
    *("phases", "timeline", "tables", "address", "main"),
)
"""The page's own scripts in the order in which they run; they share one scope."""

CHARTS = "vendor/plotly-cartesian.min.js"
"""The library that draws the charts."""

LONGEST = 500
"""Most characters of a name."""

SENTENCES, LONGEST_SENTENCE = ("sentence", "next"), 5_000
"""Keys of texts of whole sentences, and their most characters: the verdict is never cut."""

PROSE = ("sentence", "figures", "quality", "caption")
"""Keys of texts that hold no command or path, which are copied as they are."""

ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}
"""Escapes with which data cannot end a script or open a comment; JSON escapes non-ASCII itself."""

WHOLE = "The page contains all its data and loads nothing."
SERVED = "The page asks rankscope on this machine for more, and nothing else."
"""The last sentence of a page from disk, and of one that is served."""


def filled(
    template: str,
    data: Document,
    scripts: Iterable[str],
    texts: Mapping[str, str],
    markup: Mapping[str, str],
    is_served: bool = False,
) -> bytes:
    """A page as UTF-8.

    Args:
        scripts: the names of its own scripts in the order in which they run; they share one scope.
        texts: block of the template → text, which is escaped.
        markup: block → HTML, CSS, or the script `vendor`.
        is_served: the page may ask its own server.
    """
    sources = "\n".join(package_text(f"js/{name}.js") for name in scripts)
    script = f'"use strict";\n(() => {{\n{sources}\n}})();'
    allowed = [markup[name] for name in ("vendor",) if name in markup]
    escaped = {**texts, "policy": policy([*allowed, script], is_served)}
    blocks = {
        **markup,
        **{name: html.escape(text) for name, text in escaped.items()},
        "script": script,
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).translate(ESCAPES),
    }
    text = re.sub(r"\{\{(\w+)\}\}", lambda match: blocks[match[1]], package_text(template))
    return text.encode("utf-8", "replace")


def render_page(
    comparison: Comparison, result: Imbalance, picks: Picks, detail: ShownTimeline, origin: Origin
) -> bytes:
    """The whole page as UTF-8.

    Args:
        comparison: up to its last stage.
        result: `Comparison.imbalance` of all metrics.
        detail: the timeline of the picks.
    """
    data = page_data(comparison, result, picks, detail, origin)
    lead, stop, remainder = data["verdict"]["sentence"].partition(". ")
    lead += stop
    texts = {
        "title": f"{lead.strip()} – {data['run']['name']} – rankscope",
        "sentence": lead,
        "rest": remainder,
        "next": data["next"],
        "facts": data["facts"],
    }
    style = f"{in_both_themes(lambda theme: theme.css)}\n{package_text('page.css')}"
    markup = {"vendor": package_text(CHARTS), "style": style}
    return filled("template.html", data, SCRIPTS, texts, markup, origin.is_served)


def page_data(
    comparison: Comparison, result: Imbalance, picks: Picks, detail: ShownTimeline, origin: Origin
) -> Document:
    """The data that the page's scripts show, as one JSON document."""
    facts = comparison.facts
    flagged_cells = tables.flagged(comparison)
    first = _first_cell(flagged_cells, result, picks)
    of_note = pl.concat([pl.DataFrame([first]), flagged_cells.select("rank", "iteration")])
    labels = {each.rank: each.title for each in picks.picks}
    chart, of_timeline = timeline_section(detail, labels)
    cells = columns.cells(
        comparison.rows(flags=True), facts.ranks, facts.iterations, tuple(METRICS)
    )
    iter_range = comparison.options.iter_range
    data = {
        "format": "rankscope/page/1",
        "run": plain(run_of(origin.db, facts)),
        "warnings": plain(comparison.warnings),
        "verdict": plain(result.verdict),
        "next": f"Next: {with_options(result.verdict.next, origin.db, iter_range)}.",
        "facts": run_line(facts),
        "figures": page_text.figures(result),
        "quality": page_text.quality(comparison, facts, cells["unit_ns"], flagged_cells.height),
        "metrics": {
            each.name: {
                "name": part_name(each.name),
                "meaning": each.meaning,
                "unit": shown_unit(each.unit),
                "column": each.column,
            }
            for each in METRICS.values()
        },
        "metric": next(name for name in MAP_METRICS if name in cells["columns"]),
        "phases": [phase.value for phase in Phase],
        "phase_means": phase_means(comparison),
        "communication": list(COMMUNICATION_PARTS),
        "parts": {part: part_name(part) for part in THEMES["light"].parts},
        "first": first,
        "flagged": {
            "columns": ["rank", "iteration", "cause"],
            "values": [flagged_cells[name].to_list() for name in ("rank", "iteration", "cause")],
        },
        "states": cell_states(comparison, of_note.unique(maintain_order=True).head(MOST_CELLS)),
        "state_names": STATE_NAMES,
        "timeline": chart,
        "tables": [
            *tables.number_tables(comparison, result, flagged_cells),
            *of_timeline,
            *tables.quality_tables(comparison, facts),
        ],
        "served": origin.is_served,
        "made": f"Made by {origin.program}. {SERVED if origin.is_served else WHOLE}",
    }
    document = safe(data)
    document["cells"] = cells
    document["commands"] = [
        (purpose, sanitized(line, LONGEST_COMMAND))
        for purpose, line in page_text.commands(comparison, picks, origin)
    ]
    return document


def phase_means(comparison: Comparison) -> Document | None:
    """The bars of `PhaseShares`; None if no phase is known.

    Returns:
        `parts` (part of an iteration → ms of each rank in the order of the map's rows, null if
        unknown), `over` (what the means are over) and `notes` (what is unknown).
    """
    try:
        shares = phase_shares(comparison)
    except UsageError:
        return None
    rows = pl.DataFrame({"rank": comparison.facts.ranks}).join(
        shares.frame, on="rank", how="left", maintain_order="left"
    )
    parts = (*shares.phases, *shares.communication)
    return {
        "parts": {part: (rows[f"{part}_ns"] / 1e6).to_list() for part in parts},
        "over": shares.over,
        "notes": shares.notes,
    }


def _first_cell(flagged_cells: pl.DataFrame, result: Imbalance, picks: Picks) -> Document:
    """The cell that is picked first: the largest excess, of a straggler if there is one."""
    stragglers = flagged_cells.filter(flagged_cells["rank"].is_in(result.verdict.ranks))
    rows = stragglers if stragglers.height else flagged_cells
    if rows.height:
        return rows.select("rank", "iteration").row(0, named=True)
    named = [each for each in picks.picks if each.slow or each.leads or each.label == picks.late]
    slowest = max(named, key=lambda each: each.slow or each.leads, default=picks.picks[0])
    return {"rank": slowest.rank, "iteration": slowest.worst.iteration}


def safe(value: Document) -> Document:
    """The document with all texts sanitized and cut: to LONGEST, SENTENCES to LONGEST_SENTENCE.

    PROSE is not broken between a number and its unit.
    """

    def inside(each: Any, key: str = "") -> Any:
        if isinstance(each, str):
            text = sanitized(each, LONGEST_SENTENCE if key in SENTENCES else LONGEST)
            return UNIT.sub("\N{NO-BREAK SPACE}", text) if key in PROSE else text
        if isinstance(each, dict):
            return {name: inside(inner, name) for name, inner in each.items()}
        return [inside(inner, key) for inner in each] if isinstance(each, list | tuple) else each

    document: Document = inside(value)
    return document


def policy(scripts: Iterable[str], is_served: bool = False) -> str:
    """The Content-Security-Policy: these scripts, inline styles, and nothing from outside.

    A page that is served may ask its own server. The chart library sets styles itself, so inline
    styles cannot be limited by a hash.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        + ("connect-src 'self'; " if is_served else "")
        + "base-uri 'none'; form-action 'none'"
    )


def package_text(name: str) -> str:
    """A text file of this package."""
    return files(__package__).joinpath(name).read_text("utf-8")
