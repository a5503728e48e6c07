"""Frames as text tables; the names of columns determine headings, units and rounding."""

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
"""Column → heading, if it differs from the column's name without its unit."""

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
            ("ordinal", "position in the iteration: among calls of this operation, or as numbered"),
            ("last", "share of calls at which the rank arrived last"),
        ),
    ),
    "kernel": (
        "By kernel, copy or idle time (ms per rank and iteration; rank in brackets)",
        ("alone", "count", "mean", "slowest", "kind", "phase"),
        (
            ("excess", "time of the slowest rank above its role's median"),
            ("alone", "share of its time during which no collective ran"),
        ),
    ),
    "cause": (
        "By what the training thread did (ms per rank and iteration; rank in brackets)",
        ("count", "mean", "slowest", "phase"),
        (
            ("excess", "time of the slowest rank above its role's median"),
            ("count", "stretches; of functions: samples"),
        ),
    ),
}
"""Value of `--by` → title, columns to drop first in narrow terminals, meanings of columns."""


def by_table(by: str, frame: pl.DataFrame) -> Table:
    """The table of `--by` host, phase, collective, kernel or cause.

    Args:
        by: a key of `BY`.
        frame: what the function of `compare.breakdowns` for it returned.
    """
    title, drop_first, notes = BY[by]
    return replace(
        generic_table(frame, title),
        drop_first=drop_first,
        notes=notes,
        shorten=frozenset(("host", "name", "communicator")),
    )


def generic_table(frame: pl.DataFrame, title: str) -> Table:
    """Any frame as a table.

    Args:
        frame: `_ns` columns become ms, `_share` columns percent, `_bandwidth` columns GB/s; a
            column `X_rank` is put in brackets behind the value of `X_ns` or `X_share`.
        title: the title of the table.
    """
    values = {name: frame[name].to_list() for name in frame.columns}
    columns: dict[str, list[str]] = {}
    numeric: set[str] = set()
    for name, column in values.items():
        stem, _, unit = name.rpartition("_")
        paired = f"{stem}_rank" if unit in ("ns", "share") else ""
        if unit == "rank" and not values.keys().isdisjoint((f"{stem}_ns", f"{stem}_share")):
            continue
        heading = HEADINGS.get(name, (stem if unit in ("ns", "share") else name).replace("_", " "))
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
        drop_first=tuple(columns)[:1:-1],
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
