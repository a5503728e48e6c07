"""The answer about a fleet's hardware as one page that opens from disk.

It is made like the page of a run (`page`): names stay text, and nothing is loaded. The map of
hardware by runs is inline SVG without a script, whose colours are variables of the page's style.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope._version import __version__
from rankscope.history.fleet.fleet import Fleet
from rankscope.history.fleet.sentences import KINDS, NS_PER_HOUR, cost_text
from rankscope.output import columns
from rankscope.output.documents.common import Document
from rankscope.output.html.page import WHOLE, filled, package_text, safe
from rankscope.output.html.tables import sortable_table
from rankscope.output.palette import in_both_themes
from rankscope.output.quantities import moment
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

ROW, LETTER, BOLD = 22, 7.2, 8.2
"""Height of a row, and widths of a letter beside it, in pixels."""

LEAST_CELL, MOST_CELL, USUAL_WIDTH = 8, 26, 900
"""Limits of the width of a cell, and the width of all cells that is aimed at, in pixels."""

ABOVE, BELOW, BESIDE, GAP = 8, 44, 130, 8
"""Room around the cells, in pixels."""

DATE = 84
"""Least distance of two dates, in pixels."""

MOST_ROWS, LEAST_ROWS = 30, 8
"""Most rows of a map, and least: hardware that was never named fills it up to these."""

MOST_RUNS = 240
"""Most runs in a map: the latest ones."""

LONGEST_ID = 16
"""Most characters of a name beside a row."""


@dataclass(frozen=True, slots=True)
class MapRow:
    """A piece of hardware; `label` names it in a few characters."""

    label: str
    name: str  # in full
    suspect: bool
    guilty: int
    runs: int

    @property
    def counts(self) -> str:
        """How often it was named, as written beside its row."""
        return f"{self.guilty} of {self.runs}" + (", suspect" if self.suspect else "")


@dataclass(frozen=True, slots=True)
class MapRun:
    """A run; `start` is a time of UTC, empty where it is unknown."""

    start: str
    db: str


@dataclass(frozen=True, slots=True)
class FleetMap:
    """Hardware by runs.

    Attributes:
        rows: suspects first, then by cost.
        runs: in the order of time.
        present: shape (rows, runs): compared in the run.
        guilty: shape (rows, runs): named by the verdict of the run.
        cost_ns: shape (rows, runs): what it cost all ranks; 0 where it is innocent.
        blind: runs in which no hardware at all was compared.
        more_rows, more_runs: how many are left out.
    """

    rows: tuple[MapRow, ...]
    runs: tuple[MapRun, ...]
    present: NDArray[np.bool_]
    guilty: NDArray[np.bool_]
    cost_ns: NDArray[np.int64]
    blind: NDArray[np.bool_]
    more_rows: int
    more_runs: int

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
        "legend": _legend(grid),
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


def _legend(grid: FleetMap) -> str:
    return "".join(f'<li><i class="{name}"></i>{escape(text)}</li>' for name, text in legend(grid))


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
    items = []
    if grid.guilty.any():
        for level, limit in enumerate(_limits(grid)):
            text = f"up to {cost_text(int(limit))}"
            items.append((f"cost-{level}", text if level else f"named, cost {text}"))
    items.append(("there", "compared, not named"))
    if grid.blind.any():
        items.append(("blind", "run without a comparison"))
    return items


def _chart(grid: FleetMap, label: str) -> str:
    """The SVG of a map; `label` describes it for screen readers."""
    if not grid.rows:
        return "<p>No run has compared any hardware.</p>"
    rows, columns = grid.present.shape
    left = GAP + max(len(row.label) * (BOLD if row.suspect else LETTER) for row in grid.rows)
    cell = min(max(USUAL_WIDTH // columns, LEAST_CELL), MOST_CELL)
    width, height = left + columns * cell + BESIDE, ABOVE + rows * ROW + BELOW
    parts = [
        f'<svg class="fleet" role="img" aria-label="{escape(label)}" width="{width:.0f}" '
        f'height="{height}" viewBox="0 0 {width:.0f} {height}">'
    ]
    for column in np.flatnonzero(grid.blind):
        parts.append(
            f'<rect class="blind" x="{left + column * cell:.1f}" y="{ABOVE}" width="{cell - 1}" '
            f'height="{rows * ROW - 1}"><title>{escape(_run(grid, int(column)))}: nobody was '
            "compared</title></rect>"
        )
    level = _levels(grid)
    for row, each in enumerate(grid.rows):
        top = ABOVE + row * ROW
        mark = ' class="suspect"' if each.suspect else ""
        parts.append(
            f'<text{mark} x="{left - GAP:.1f}" y="{top + 15}" text-anchor="end">'
            f"{escape(each.label)}<title>{escape(each.name)}</title></text>"
        )
        compared = np.flatnonzero(grid.present[row] & ~grid.guilty[row])
        path = "".join(
            f"M{left + column * cell:.1f} {top}h{cell - 1}v{ROW - 1}h-{cell - 1}z"
            for column in compared
        )
        if path:
            parts.append(f'<path class="there" d="{path}"/>')
        for column in np.flatnonzero(grid.guilty[row]):
            cost = cost_text(int(grid.cost_ns[row, column]))
            text = f"{each.name}, {_run(grid, int(column))}: {cost}"
            parts.append(
                f'<rect class="cost-{level[row, column]}" x="{left + column * cell:.1f}" y="{top}" '
                f'width="{cell - 1}" height="{ROW - 1}"><title>{escape(text)}</title></rect>'
            )
        parts.append(
            f'<text{mark} x="{left + columns * cell + GAP:.1f}" y="{top + 15}">{each.counts}</text>'
        )
    return "\n".join([*parts, *_dates(grid, left, cell, ABOVE + rows * ROW), "</svg>"])


def _dates(grid: FleetMap, left: float, cell: int, top: int) -> list[str]:
    """Dates below the cells, as many as there is room for."""
    step = max(1, -(-DATE // cell))
    lines = []
    for column in range(0, len(grid.runs), step):
        day, _, hour = (grid.runs[column].start or f"run {column + 1}").partition(" ")
        middle = left + (column + 0.5) * cell
        lines.append(
            f'<text class="date" x="{middle:.1f}" y="{top + 16}" text-anchor="middle">{day}</text>'
            f'<text class="date" x="{middle:.1f}" y="{top + 32}" text-anchor="middle">{hour}</text>'
        )
    return lines


def _run(grid: FleetMap, column: int) -> str:
    run = grid.runs[column]
    return f"{run.start} {run.db}".strip()


def _limits(grid: FleetMap) -> list[float]:
    """The largest cost of each level; levels are equal on a logarithmic scale."""
    cost = np.maximum(grid.cost_ns[grid.guilty], 1).astype(float)
    levels = LEVELS if cost.max() > cost.min() else 1
    return [float(each) for each in np.geomspace(cost.min(), cost.max(), levels + 1)[1:]]


def _levels(grid: FleetMap) -> np.ndarray:
    """The level of each cell."""
    if not grid.guilty.any():
        return np.zeros(grid.guilty.shape, dtype=int)
    inner = np.array(_limits(grid)[:-1])
    return np.asarray(np.searchsorted(inner, grid.cost_ns.astype(float)))


def fleet_map(fleet: Fleet) -> FleetMap:
    """The hardware that was named most, in the latest runs."""
    named = fleet.hardware.filter(pl.col("suspect") | (pl.col("guilty") > 0))
    count = min(max(named.height, LEAST_ROWS), MOST_ROWS)
    hardware = fleet.hardware.head(count).with_row_index("row")
    runs = fleet.runs.tail(MOST_RUNS).with_row_index("column")
    cells = (
        fleet.rows.select("kind", "id", "run", "guilty", "cost_ns")
        .join(hardware.select("kind", "id", "row"), on=["kind", "id"])
        .join(runs.select("run", "column"), on="run")
    )
    shape = (hardware.height, runs.height)
    place = (cells["row"].to_numpy(), cells["column"].to_numpy())
    present, guilty = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    cost = np.zeros(shape, dtype=np.int64)
    present[place] = True
    guilty[place] = cells["guilty"].to_numpy()
    cost[place] = cells["cost_ns"].to_numpy()
    return FleetMap(
        rows=tuple(_map_row(each) for each in hardware.iter_rows(named=True)),
        runs=tuple(_map_run(each) for each in runs.iter_rows(named=True)),
        present=present,
        guilty=guilty,
        cost_ns=cost,
        blind=(~runs["run"].is_in(fleet.rows["run"].unique().implode())).to_numpy(),
        more_rows=max(named.height - count, 0),
        more_runs=fleet.runs.height - runs.height,
    )


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_ID else f"{name[: LONGEST_ID - 1]}…"


def _map_row(row: dict[str, Any]) -> MapRow:
    whole = sanitized(row["id"], 200)
    short = _cut(whole)
    kind = KINDS[row["kind"]]
    host = "" if row["kind"] == "host" or not row["host"] else sanitized(row["host"], 200)
    beside = f" ({_cut(host)})" if host else ""
    # A GPU's id says itself what it is.
    label = short if short.upper().startswith(kind.upper()) else f"{kind} {short}"
    slot = f", slot {sanitized(row['slot'], 50)}" if row["slot"] else ""
    return MapRow(
        label=f"{label}{beside}",
        name=f"{kind} {whole}{f' in host {host}' if host else ''}{slot}",
        suspect=row["suspect"],
        guilty=row["guilty"],
        runs=row["runs"],
    )


def _map_run(row: dict[str, Any]) -> MapRun:
    start = row["start_ns"]
    known = "" if start is None else f"{datetime.fromtimestamp(start / 1e9, UTC):%Y-%m-%d %H:%M}"
    return MapRun(known, sanitized(row["db"], 300))
