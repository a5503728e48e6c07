"""`.nsys-rep` and `.qdrep`, as nsys wrote them: read through `nsys export`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rankscope.model.reports import CaptureFacts, Trace
from rankscope.sources.columns.folders import ParquetColumns
from rankscope.sources.columns.sqlite import SQLiteColumns
from rankscope.sources.conventions import Vocabulary
from rankscope.sources.nsys import tables
from rankscope.sources.nsys.export import exported
from rankscope.sources.nsys.header import head_facts


def facts(path: Path) -> CaptureFacts:
    """Host and rank evidence from the head, without nsys; raises `UnreadableReport`."""
    return head_facts(path)


def read(path: Path, words: Vocabulary | None = None) -> Trace:
    """The whole report, exported first.

    Raises:
        UnreadableReport: it is none, or truncated.
        ToolError: nsys is missing, too old, or out of room.
    """
    head = head_facts(path)
    export = exported(path)
    is_folder = export.is_dir()
    columns = ParquetColumns(export) if is_folder else SQLiteColumns(export)
    trace = tables.trace(columns, words)
    # The head states the environment of the process, an export at best that of the command.
    return replace(
        trace,
        facts=replace(
            trace.facts,
            host=trace.facts.host or head.host,
            environment=head.environment or trace.facts.environment,
            exporter=head.exporter,
            local_rank=trace.facts.local_rank if head.local_rank is None else head.local_rank,
        ),
    )
