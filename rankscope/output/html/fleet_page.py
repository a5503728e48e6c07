"""The answer about a fleet's hardware as one page that opens from disk.

It is made like the page of a run (`page`): names stay text, and nothing is loaded.
"""

import html

import polars as pl

from rankscope._version import __version__
from rankscope.history.fleet.fleet import Fleet
from rankscope.history.fleet.sentences import KINDS, NS_PER_HOUR, cost_text
from rankscope.output import columns
from rankscope.output.documents.common import Document
from rankscope.output.fleet_map import FleetMap, fleet_map
from rankscope.output.html import fleet_chart
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
    colors = [in_both_themes(lambda theme: theme.css), fleet_chart.style()]
    styles = [*colors, package_text("page.css"), package_text("fleet.css")]
    label = f"Hardware by runs. {sentence} The tables hold the numbers."
    markup = {
        "style": "\n".join(styles),
        "figures": _figures(fleet),
        "warnings": _warnings(fleet),
        "legend": _legend(grid),
        "chart": fleet_chart.chart(grid, label),
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
        f"<div><dt>{html.escape(term)}</dt><dd>{html.escape(value)}</dd></div>"
        for term, value in figures
    )


def _warnings(fleet: Fleet) -> str:
    if not fleet.problems:
        return ""
    items = "".join(
        f"<li>{html.escape(sanitized(each.message, LONGEST))}</li>" for each in fleet.problems
    )
    return f'<div id="limits"><h2>Warnings</h2><ul>{items}</ul></div>'


def _legend(grid: FleetMap) -> str:
    return "".join(
        f'<li><i class="{name}"></i>{html.escape(text)}</li>'
        for name, text in fleet_chart.legend(grid)
    )


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
