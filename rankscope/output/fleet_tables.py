"""The answer of `fleet` as tables, and as a text file for node_exporter."""

from typing import Any

import polars as pl

from rankscope.history.fleet.fleet import Fleet
from rankscope.history.fleet.sentences import KINDS, NS_PER_HOUR, in_units
from rankscope.output.columns import heading, names_in, notes
from rankscope.output.prometheus import gauge, labels
from rankscope.output.table_layout import Table
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import UNKNOWN, percent

PREFIX = "rankscope_fleet_"
"""Prefix of the names of metrics for node_exporter."""

LONGEST_ID = 100
"""Most characters of a name of hardware."""


def table(fleet: Fleet, show_all: bool = False) -> Table:
    """The hardware as a table: that which a verdict has named, or with `show_all` all of it."""
    rows = fleet.hardware if show_all else fleet.hardware.filter(pl.col("guilty") > 0)
    columns = (
        "hardware", "id", "host", "slot", heading("guilty"), "runs", "rate", "95 % interval", "p",
        "rank-hours", "trend", "follows", "suspect",
    )  # fmt: skip
    table = Table(
        title="Hardware by cost" if show_all else "Hardware that was ever slow, by cost",
        columns=columns,
        numeric=frozenset((heading("guilty"), "runs", "rate", "95 % interval", "p", "rank-hours")),
        rows=tuple(_cells(row) for row in rows.iter_rows(named=True)),
        drop_first=("follows", "slot", "trend", "95 % interval", "host"),
        shorten=names_in(["id", "host"]),
        notes=notes("guilty", "rate", "p", "rank_hours"),
    )
    return table if rows["suspect"].any() else table.without(frozenset(("suspect",)))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def text(name: str) -> str:
        return UNKNOWN if row[name] is None else sanitized(str(row[name]), LONGEST_ID)

    p = row["p"]
    return (
        KINDS.get(row["kind"], row["kind"]),
        text("id"),
        text("host"),
        text("slot"),
        str(row["guilty"]),
        str(row["runs"]),
        percent(row["rate"]),
        f"{percent(row['low'])} to {percent(row['high'])}",
        UNKNOWN if p is None else "< 0.0001" if p < 1e-4 else f"{p:.2g}",
        in_units(row["cost_ns"], NS_PER_HOUR),
        text("trend"),
        text("follows"),
        "yes" if row["suspect"] else "no",
    )


def prometheus(fleet: Fleet) -> str:
    """The answer for node_exporter's textfile collector.

    Hardware that was never guilty is left out: it would make most of the series.
    """
    guilty = fleet.hardware.filter(pl.col("guilty") > 0)
    keys = [
        labels(kind=kind, id=id_, host=host)
        for kind, id_, host in guilty.select("kind", "id", "host").iter_rows()
    ]
    lines = []
    last = fleet.runs["start_ns"].max()
    single: list[tuple[str, str, object]] = [
        ("runs", "Runs that were compared.", fleet.runs.height),
        ("suspects", "Pieces of hardware that are slow again and again.", len(fleet.suspects)),
    ]
    if isinstance(last, int):
        single.append(("last_run_timestamp_seconds", "Start of the last run.", last / 1e9))
    for name, meaning, value in single:
        lines += gauge(f"{PREFIX}{name}", meaning, [("", value)])
    for name, meaning, values in (
        ("hardware_suspect", "Whether it is slow again and again.", guilty["suspect"].cast(int)),
        ("hardware_compared_runs", "Runs in which it was compared.", guilty["runs"]),
        ("hardware_guilty_runs", "Runs whose verdict names it.", guilty["guilty"]),
        ("hardware_guilt_ratio", "Share of its iterations in which it is named.", guilty["rate"]),
        ("hardware_cost_rank_seconds", "Time that it cost all ranks.", guilty["cost_ns"] / 1e9),
    ):
        lines += gauge(f"{PREFIX}{name}", meaning, [*zip(keys, values, strict=True)])
    return "\n".join(lines) + "\n"
