"""The answer about a fleet's hardware as one page that opens from disk.

It is made like the page of a run (`page`): names stay text, and nothing is loaded. The map of
hardware by runs is a table without a script, whose colours are variables of the page's style.
"""

from bisect import bisect_left
from datetime import UTC, datetime
from html import escape
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope._version import __version__
from rankscope.history.fleet.fleet import Fleet
from rankscope.history.fleet.sentences import KINDS, NS_PER_HOUR, cost_text
from rankscope.output import columns
from rankscope.output.documents.common import Document
from rankscope.output.html.page import WHOLE, filled, package_text, safe
from rankscope.output.html.tables import sortable_table
from rankscope.output.palette import in_both_themes
from rankscope.output.quantities import moment
from rankscope.output.table_layout import middle_out
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import counted

SCRIPTS = ("basics", "tables", "fleet")
"""The page's own scripts."""

LONGEST = 2000
"""Most characters of a sentence."""

MOST_NAMED = 6
"""Most pieces of hardware that are listed beside a run."""

LEVELS = 3
"""Number of colours of costs."""

LEAST_CELL, MOST_CELL, USUAL_WIDTH = 8, 26, 900
"""Limits of the width of a cell, and the width of all cells that is aimed at, in pixels."""

DATE = 84
"""Least distance of two dates, in pixels."""

MOST_ROWS, LEAST_ROWS = 30, 8
"""Most rows of a map, and least: hardware that was never named fills it up to these."""

MOST_RUNS = 240
"""Most runs in a map: the latest ones."""

LONGEST_ID = 16
"""Most characters of a name beside a row."""


class FleetMap(Struct, frozen=True):
    """Hardware by runs.

    Attributes:
        hardware: HARDWARE: suspects first, then by cost.
        runs: RUNS in the order of time.
        costs: row and column → what the piece cost all ranks in the run, ns; None: it was compared,
            and not named.
        blind: columns of runs in which no hardware at all was compared.
        more_rows, more_runs: how many are left out.
    """

    hardware: pl.DataFrame
    runs: pl.DataFrame
    costs: dict[tuple[int, int], int | None]
    blind: frozenset[int]
    more_rows: int
    more_runs: int

    @property
    def named(self) -> list[int]:
        """The costs of the cells of hardware that was named."""
        return [cost for cost in self.costs.values() if cost is not None]

    @property
    def left_out(self) -> list[str]:
        """What the map leaves out, in words."""
        parts = []
        if self.more_rows:
            parts.append(f"{counted(self.more_rows, 'piece')} of hardware with less cost")
        if self.more_runs:
            parts.append(counted(self.more_runs, "earlier run"))
        return parts


def render_fleet(fleet: Fleet) -> bytes:
    """The whole page as UTF-8."""
    grid = fleet_map(fleet)
    sentence = sanitized(fleet.sentence, LONGEST)
    count = len(fleet.suspects)
    texts = {
        "title": f"Fleet of {counted(fleet.runs.height, 'run')} – rankscope",
        "class": "suspects" if count else "balanced",
        "badge": counted(count, "suspect") if count else "nobody beyond chance",
        "sentence": sentence,
        "next": sanitized(f"Next: {fleet.next}.", LONGEST),
        "left_out": f"Left out here: {' and '.join(grid.left_out)}." if grid.left_out else "",
        "made": f"Made by rankscope {__version__}. {WHOLE}",
    }
    colors = [in_both_themes(lambda theme: theme.css), _style()]
    styles = [*colors, package_text("page.css"), package_text("fleet.css")]
    label = f"Hardware by runs. {sentence} The tables hold the numbers."
    markup = {
        "style": "\n".join(styles),
        "figures": _figures(fleet),
        "warnings": _warnings(fleet),
        "legend": "".join(
            f'<li><i class="{name}"></i>{escape(text)}</li>' for name, text in legend(grid)
        ),
        "chart": _chart(grid, label),
    }
    return filled("fleet.html", safe(_data(fleet)), SCRIPTS, texts, markup)


def _figures(fleet: Fleet) -> str:
    pieces = dict(fleet.hardware["kind"].value_counts().iter_rows())
    cost = int(fleet.hardware.filter("suspect")["cost_ns"].sum())
    figures = [
        ("runs", f"{fleet.runs.height:,}"),
        *((f"{name}s", f"{pieces[kind]:,}") for kind, name in KINDS.items() if kind in pieces),
        ("suspects", f"{len(fleet.suspects):,}"),
        *([("cost of the suspects", cost_text(cost))] if fleet.suspects else []),
    ]
    return "".join(
        f"<div><dt>{escape(term)}</dt><dd>{escape(value)}</dd></div>" for term, value in figures
    )


def _warnings(fleet: Fleet) -> str:
    if not fleet.problems:
        return ""
    items = "".join(
        f"<li>{escape(sanitized(each.message, LONGEST))}</li>" for each in fleet.problems
    )
    return f'<div id="limits"><h2>Warnings</h2><ul>{items}</ul></div>'


def _data(fleet: Fleet) -> Document:
    plain = ("id", "host", "slot", "name", "suspect", "guilty", "runs", "rate", "low", "high")
    hardware = fleet.hardware.select(
        pl.col("kind").replace(KINDS),
        *plain,
        pl.col("p").map_elements(lambda p: float(f"{p:.2g}"), pl.Float64),
        (pl.col("cost_ns") / NS_PER_HOUR)
        .map_elements(lambda cost: float(f"{cost:.3g}"), pl.Float64)
        .alias("rank_hours"),
        "trend",
        pl.col("since_ns").map_elements(moment, pl.String).alias("since"),
        "follows",
    )
    named = (
        fleet.rows.filter("guilty", pl.col("kind").is_in([*KINDS]))
        .sort("cost_ns", "id", descending=[True, False])
        .group_by("run", maintain_order=True)
        .agg(pl.col("id").head(MOST_NAMED).str.join(", ").alias("named"), pl.len().alias("count"))
        .with_columns(
            named=pl.col("named")
            + pl.when(pl.col("count") > MOST_NAMED)
            .then(pl.format(" and {} more", pl.col("count") - MOST_NAMED))
            .otherwise(pl.lit(""))
        )
    )
    runs = (
        fleet.runs.join(named, on="run", how="left", maintain_order="left")
        .with_columns(start=pl.col("start_ns").map_elements(moment, pl.String))
        .select("start", "db", "ranks", "iterations", "verdict", "gain_ns", "named", "software")
    )
    explained = ("guilty", "rate", "p", "rank_hours")
    note = "; ".join(f"{columns.label(name)}: {columns.meaning(name)}" for name in explained)
    return {
        "tables": [
            sortable_table("hardware", "Hardware", hardware, "hardware", note),
            sortable_table("runs", "Runs", runs, "runs", "Gain: what a repair would save, in ms."),
        ]
    }


def _style() -> str:
    """The colours of costs as CSS variables, in both themes."""
    return in_both_themes(
        lambda theme: " ".join(
            f"--cost-{level}: {color};" for level, color in enumerate(theme.excess[-LEVELS:])
        )
    )


def legend(grid: FleetMap) -> list[tuple[str, str]]:
    """Class of a cell → its meaning."""
    items = [
        (f"cost-{level}", f"{'' if level else 'named, cost '}up to {cost_text(int(limit))}")
        for level, limit in enumerate(_limits(grid))
    ]
    items.append(("there", "compared, not named"))
    if grid.blind:
        items.append(("blind", "run without a comparison"))
    return items


def _chart(grid: FleetMap, label: str) -> str:
    """The table of a map; `label` describes it for screen readers."""
    if grid.hardware.is_empty():
        return "<p>No run has compared any hardware.</p>"
    width = min(max(USUAL_WIDTH // grid.runs.height, LEAST_CELL), MOST_CELL)
    runs = [*grid.runs.select("start_ns", "db").iter_rows()]
    names = [f"{_start(start)} {sanitized(db, 300)}".strip() for start, db in runs]
    inner = _limits(grid)[:-1]

    def cell(row: int, column: int, piece: str) -> str:
        if column in grid.blind:
            return f'<td class="blind" title="{escape(names[column])}: nobody was compared">'
        if (row, column) not in grid.costs:
            return "<td>"
        cost = grid.costs[row, column]
        if cost is None:
            return '<td class="there">'
        text = escape(f"{piece}, {names[column]}: {cost_text(cost)}")
        return f'<td class="cost-{bisect_left(inner, cost)}" title="{text}">'

    lines = [f'<table class="fleet" aria-label="{escape(label)}" style="--cell: {width}px"><tbody>']
    for row, piece in enumerate(grid.hardware.iter_rows(named=True)):
        short, name = _names(piece)
        mark, more = (' class="suspect"', ", suspect") if piece["suspect"] else ("", "")
        cells = "".join(cell(row, column, name) for column in range(len(runs)))
        lines.append(
            f'<tr><th scope="row"{mark} title="{escape(name)}">{escape(short)}</th>{cells}'
            f"<td{mark}>{piece['guilty']} of {piece['runs']}{more}</td></tr>"
        )
    step = -(-DATE // width)
    dates = (
        f'<td colspan="{step}">{(_start(runs[at][0]) or f"run {at + 1}").replace(" ", "<br>")}</td>'
        for at in range(0, len(runs), step)
    )
    return "\n".join([*lines, f"</tbody><tfoot><tr><td></td>{''.join(dates)}</tr></tfoot></table>"])


def _limits(grid: FleetMap) -> list[float]:
    """The largest cost of each level; levels are equal on a logarithmic scale."""
    costs = np.maximum(grid.named, 1).astype(float)
    if not len(costs):
        return []
    levels = LEVELS if costs.max() > costs.min() else 1
    return [float(each) for each in np.geomspace(costs.min(), costs.max(), levels + 1)[1:]]


def fleet_map(fleet: Fleet) -> FleetMap:
    """The hardware that was named most, in the latest runs."""
    named = fleet.hardware.filter(pl.col("suspect") | (pl.col("guilty") > 0))
    count = min(max(named.height, LEAST_ROWS), MOST_ROWS)
    hardware, runs = fleet.hardware.head(count), fleet.runs.tail(MOST_RUNS)
    columns = runs.select("run").with_row_index("column")
    cells = (
        fleet.rows.join(hardware.with_row_index("row"), on=["kind", "id"])
        .join(columns, on="run")
        .select("row", "column", pl.when("guilty").then("cost_ns"))
    )
    blind = columns.filter(~pl.col("run").is_in(fleet.rows["run"].unique().implode()))
    return FleetMap(
        hardware=hardware,
        runs=runs,
        costs={(row, column): cost for row, column, cost in cells.iter_rows()},
        blind=frozenset(blind["column"]),
        more_rows=max(named.height - count, 0),
        more_runs=fleet.runs.height - runs.height,
    )


def _names(piece: dict[str, Any]) -> tuple[str, str]:
    """The name of a piece of hardware in a few characters, and in full."""
    whole, kind = sanitized(piece["id"], 200), KINDS[piece["kind"]]
    host = "" if kind == "host" or not piece["host"] else sanitized(piece["host"], 200)
    # A GPU's id says itself what it is.
    prefix = "" if whole.upper().startswith(kind.upper()) else f"{kind} "
    slot = f", slot {sanitized(piece['slot'], 50)}" if piece["slot"] else ""
    inside = f" ({middle_out(host, LONGEST_ID)})" if host else ""
    return (
        f"{prefix}{middle_out(whole, LONGEST_ID)}{inside}",
        f"{kind} {whole}{f' in host {host}' if host else ''}{slot}",
    )


def _start(ns: int | None) -> str:
    """A time of UTC; empty where it is unknown."""
    return "" if ns is None else f"{datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d %H:%M}"
