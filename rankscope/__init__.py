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
    from rankscope.api import AnalysisOptions, Run, diff, ingest, open_run
    from rankscope.compare.comparison import Comparison, Outliers, Stage, Summary
    from rankscope.compare.picks import Picks
    from rankscope.errors import DatabaseError, RankscopeError, ReportError, ToolError, UsageError
    from rankscope.history.diff.compare import RunDiff
    from rankscope.history.diff.shifts import Change
    from rankscope.ingestion.job import Ingested
    from rankscope.model.options import Options
    from rankscope.model.reports import RunWarning
    from rankscope.model.results import (
        Efficiency,
        Finding,
        Imbalance,
        MetricSummary,
        Pick,
        RunFacts,
        Score,
        Timeline,
        Verdict,
        Window,
    )

__all__ = [
    "AnalysisOptions",
    "Change",
    "Comparison",
    "DatabaseError",
    "Efficiency",
    "Finding",
    "Imbalance",
    "Ingested",
    "MetricSummary",
    "Options",
    "Outliers",
    "Pick",
    "Picks",
    "RankscopeError",
    "ReportError",
    "Run",
    "RunDiff",
    "RunFacts",
    "RunWarning",
    "Score",
    "Stage",
    "Summary",
    "Timeline",
    "ToolError",
    "UsageError",
    "Verdict",
    "Window",
    "diff",
    "ingest",
    "open_run",
]

_HOMES = {
    "api": ("AnalysisOptions", "Run", "diff", "ingest", "open_run"),
    "compare.comparison": ("Comparison", "Outliers", "Stage", "Summary"),
    "history.diff.compare": ("RunDiff",),
    "history.diff.shifts": ("Change",),
    "compare.picks": ("Picks",),
    "errors": ("DatabaseError", "RankscopeError", "ReportError", "ToolError", "UsageError"),
    "ingestion.job": ("Ingested",),
    "model.options": ("Options",),
    "model.reports": ("RunWarning",),
    "model.results": (
        "Efficiency",
        "Finding",
        "Imbalance",
        "MetricSummary",
        "Pick",
        "RunFacts",
        "Score",
        "Timeline",
        "Verdict",
        "Window",
    ),
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that `--help` need not wait for polars."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"rankscope.{home}"), name)
    raise AttributeError(f"module 'rankscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
