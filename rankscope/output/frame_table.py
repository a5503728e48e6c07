"""Frames → tables of text, named and rounded by what their columns' names say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from rankscope.model.metrics import Unit, metric_in
from rankscope.output.quantities import UNKNOWN, in_unit, percent, short_path, span
from rankscope.output.table_layout import Table
from rankscope.util.sanitize import sanitized

HEADINGS = {
    "iteration_share": "of iteration",
    "clear_share": "alone",
    "algorithm_bandwidth": "algorithm GB/s",
    "bus_bandwidth": "bus GB/s",
}
"""Column headings that the name of a frame's column does not make."""

BY = {
    "host": (
        "By host (mean over its ranks and iterations, ms)",
        ("other", "optimizer", "forward", "exposed communication", "backward", "ranks"),
        (),
    ),
    "phase": (
        "By phase (mean over ranks and iterations, ms; rank in brackets)",
        ("median", "of iteration"),
        (),
    ),
    "collective": (
        "By collective (ms per rank and call; rank in brackets)",
        ("bytes", "algorithm GB/s", "bus GB/s", "ranks", "count", "communicator", "last"),
        (
            ("ordinal", "which of its like in the iteration"),
            ("last", "share of calls that the rank came last to"),
        ),
    ),
    "kernel": (
        "By kernel, copy or idling (ms per rank and iteration; rank in brackets)",
        ("alone", "count", "mean", "slowest", "kind", "phase"),
        (
            ("excess", "of the slowest rank over its role's median"),
            ("alone", "share of its time beside which no collective ran"),
        ),
    ),
}
"""--by → title, columns that go first where it is narrow, and what columns mean."""


def by_table(by: str, frame: pl.DataFrame) -> Table:
    """A frame of `--by` host, phase, collective or kernel."""
    title, spare, notes = BY[by]
    table = rows_table(frame, title)
    return replace(table, spare=spare, notes=notes, cut=frozenset(("host", "name", "communicator")))


def rows_table(frame: pl.DataFrame, title: str) -> Table:
    """Any frame: times in ms, shares in percent, a `…_rank` in brackets behind its value."""
    values = {name: frame[name].to_list() for name in frame.columns}
    columns: dict[str, list[str]] = {}
    numeric: set[str] = set()
    for name, column in values.items():
        what, _, unit = name.rpartition("_")
        paired = f"{what}_rank" if unit in ("ns", "share") else ""
        if unit == "rank" and not values.keys().isdisjoint((f"{what}_ns", f"{what}_share")):
            continue
        heading = HEADINGS.get(name, (what if unit in ("ns", "share") else name).replace("_", " "))
        if (metric := metric_in(name)) and not metric.is_time:
            heading = f"{metric.label} ({metric.unit})"
        cells = [_cell(name, value) for value in column]
        if paired in values:
            cells = [
                cell if rank is None else f"{cell} ({rank})"
                for cell, rank in zip(cells, values[paired], strict=True)
            ]
        columns[heading] = cells
        if frame[name].dtype.is_numeric():
            numeric.add(heading)
    return Table(
        title=title,
        columns=tuple(columns),
        spare=tuple(columns)[:1:-1],
        numeric=frozenset(numeric),
        rows=tuple(zip(*columns.values(), strict=True)),
    )


def _cell(name: str, value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, int | float) and not isinstance(value, bool):
        metric = metric_in(name)
        if metric is not None or name.endswith("_ns"):
            return in_unit(value, Unit.NS if metric is None else metric.unit)
        if name.endswith("_share"):
            return percent(value)
        if name.endswith("_bandwidth"):
            return f"{value / 1e9:,.1f}"
    if isinstance(value, list):
        return span(sorted(value))
    return short_path(Path(str(value))) if name == "path" else sanitized(str(value))
