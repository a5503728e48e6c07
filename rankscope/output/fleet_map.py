"""Hardware by runs: which was compared in a run, and which its verdict named."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.history.fleet.fleet import Fleet
from rankscope.history.fleet.sentences import KINDS, unit_of
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import counted

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
    verdict: str


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
    def unit(self) -> tuple[str, int]:
        """The unit in which the costs are readable, and its ns."""
        return unit_of(int(self.cost_ns.max(initial=0)))

    @property
    def left_out(self) -> list[str]:
        """What the map leaves out, in words."""
        parts = []
        if self.more_rows:
            parts.append(f"{counted(self.more_rows, 'piece')} of hardware with less cost")
        if self.more_runs:
            parts.append(counted(self.more_runs, "earlier run"))
        return parts


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
        rows=tuple(_row(each) for each in hardware.iter_rows(named=True)),
        runs=tuple(_run(each) for each in runs.iter_rows(named=True)),
        present=present,
        guilty=guilty,
        cost_ns=cost,
        blind=(~runs["run"].is_in(fleet.rows["run"].unique().implode())).to_numpy(),
        more_rows=named.height - count if named.height > count else 0,
        more_runs=fleet.runs.height - runs.height,
    )


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_ID else f"{name[: LONGEST_ID - 1]}…"


def _row(row: dict[str, Any]) -> MapRow:
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


def _run(row: dict[str, Any]) -> MapRun:
    start = row["start_ns"]
    known = "" if start is None else f"{datetime.fromtimestamp(start / 1e9, UTC):%Y-%m-%d %H:%M}"
    return MapRun(known, sanitized(row["db"], 300), row["verdict"] or "")
