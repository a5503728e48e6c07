"""Frames as text tables; the names of columns determine headings, units and rounding."""

from pathlib import Path

import polars as pl
from msgspec.structs import replace

from rankscope.model.metrics import Unit, metric_in
from rankscope.output.columns import Shown, heading, names_in, notes, shown
from rankscope.output.markdown_csv import csv, markdown
from rankscope.output.quantities import in_unit, short_path
from rankscope.output.table_layout import Table
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import UNKNOWN, gigabytes, percent, span

OF_SLOWEST = (("excess", "time of the slowest rank above its role's median"),)
"""The meaning of `excess_ns` in tables over ranks."""

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
        ("bytes", "algorithm GB/s", "count", "communicator", "bus GB/s", "ranks", "last"),
        notes("ordinal", "last_share"),
    ),
    "kernel": (
        "By kernel, copy or idle time (ms per rank and iteration; rank in brackets)",
        ("alone", "count", "mean", "slowest", "kind", "phase"),
        (*OF_SLOWEST, *notes("clear_share")),
    ),
    "cause": (
        "By what the training thread did (ms per rank and iteration; rank in brackets)",
        ("count", "mean", "slowest", "phase"),
        (*OF_SLOWEST, ("count", "stretches; of functions: samples")),
    ),
}
"""Value of `--by` → title, columns to drop first in narrow terminals, meanings of columns."""


def by_table(by: str, frame: pl.DataFrame) -> Table:
    """The table of `--by` host, phase, collective, kernel or cause, without unknown columns."""
    title, drop_first, meanings = BY[by]
    unknown = [name for name in frame.columns if frame[name].null_count() == frame.height]
    return replace(
        generic_table(frame.drop(unknown) if frame.height else frame, title),
        drop_first=drop_first,
        notes=meanings,
        most_relevant=_most_relevant(frame),
        shorten=names_in(frame.columns),
    )


def _most_relevant(frame: pl.DataFrame) -> tuple[int, ...]:
    """The rows that cost most time, first: by excess, as they are ordered, or of collectives."""
    if "transfer_ns" not in frame.columns:
        return tuple(range(frame.height)) if "excess_ns" in frame.columns else ()
    cost = frame.select(pl.sum_horizontal("transfer_ns", "wait_ns") * pl.col("count"))
    return tuple(cost.to_series().arg_sort(descending=True))


def frame_text(frame: pl.DataFrame, title: str, *, is_csv: bool) -> str:
    """A frame as CSV, or else as a table in Markdown with a title."""
    return csv(frame) if is_csv else markdown(generic_table(frame, title))


def generic_table(frame: pl.DataFrame, title: str) -> Table:
    """Any frame as a table.

    Args:
        frame: `_ns` columns become ms, `_share` columns percent, `_bandwidth` columns GB/s; a
            column `X_rank` is put in brackets behind the value of `X_ns` or `X_share`.
    """
    values = {name: frame[name].to_list() for name in frame.columns}
    columns: dict[str, list[str]] = {}
    numeric: set[str] = set()
    for name, column in values.items():
        stem, _, unit = name.rpartition("_")
        paired = f"{stem}_rank" if unit in ("ns", "share") else ""
        if unit == "rank" and not values.keys().isdisjoint((f"{stem}_ns", f"{stem}_share")):
            continue
        cells = [_cell(name, value) for value in column]
        if paired in values:
            cells = [
                cell if rank is None else f"{cell} ({rank})"
                for cell, rank in zip(cells, values[paired], strict=True)
            ]
        columns[heading(name)] = cells
        if frame[name].dtype.is_numeric():
            numeric.add(heading(name))
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
        return _number(name, value)
    if isinstance(value, list):
        return span(sorted(value))
    return short_path(Path(str(value))) if name == "path" else sanitized(str(value))


def _number(name: str, value: float) -> str:
    metric, kind = metric_in(name), shown(name)
    if kind is Shown.SHARE:
        return percent(value)
    if kind is Shown.GIGABYTES:
        return gigabytes(value)
    if kind is Shown.MS or metric is not None:
        return in_unit(value, Unit.NS if metric is None else metric.unit)
    return str(value)
