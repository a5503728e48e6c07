"""Which rank of a distributed training job is slow, in which iterations, in which phase.

import rankscope

run = rankscope.ingest(["profiles/"])
print(run.imbalance(iter_range=slice(10, 50)).verdict.sentence)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from rankscope._version import __version__ as __version__

if TYPE_CHECKING:
    from rankscope.api import Run, diff, ingest, open_run
    from rankscope.compare.picks import Picks
    from rankscope.errors import (
        DatabaseError,
        RankscopeError,
        ReportError,
        ToolError,
        UsageError,
    )
    from rankscope.model.options import Options
    from rankscope.model.results import Imbalance, Verdict

__all__ = [
    "DatabaseError",
    "Imbalance",
    "Options",
    "Picks",
    "RankscopeError",
    "ReportError",
    "Run",
    "ToolError",
    "UsageError",
    "Verdict",
    "diff",
    "ingest",
    "open_run",
]

_HOMES = {
    "api": ("Run", "diff", "ingest", "open_run"),
    "compare.picks": ("Picks",),
    "model.results": ("Imbalance", "Verdict"),
    "model.options": ("Options",),
    "errors": ("DatabaseError", "RankscopeError", "ReportError", "ToolError", "UsageError"),
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that `--help` need not wait for polars."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"rankscope.{home}"), name)
    raise AttributeError(f"module 'rankscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
