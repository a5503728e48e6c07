"""The evidence of runs that were added to a ledger. See METHOD.md#fleet."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rankscope.history.fleet.collect import Collected, merged
from rankscope.history.fleet.evidence import EVIDENCE, RUNS
from rankscope.store.ledger import Ledger

TABLES = {"runs": RUNS, "evidence": EVIDENCE}
"""The tables of a ledger."""


def add(path: Path, collected: Collected) -> None:
    """Put the evidence of runs into a ledger, in place of what it had of the same runs.

    Raises:
        DatabaseError: it cannot be written, or is no ledger.
    """
    Ledger(path, TABLES).add({"runs": collected.runs, "evidence": collected.evidence})


def recorded(path: Path, more: Collected | None = None) -> Collected:
    """The evidence of a ledger, and of other runs.

    Raises:
        DatabaseError: there is no ledger, or the file is none.
    """
    tables = Ledger(path, TABLES).read()
    if more is None:
        return merged(tables["runs"], tables["evidence"])
    known = more.runs.filter(~pl.col("run").is_in(tables["runs"]["run"].implode()))
    fresh = more.evidence.filter(pl.col("run").is_in(known["run"].implode()))
    return merged(
        pl.concat([tables["runs"], known]),
        pl.concat([tables["evidence"], fresh]),
        more.problems,
    )
