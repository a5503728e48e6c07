"""The format of dumps of NCCL Inspector and RCCL Inspector: `.log`, `.jsonl`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.sources.report_format import Format, IterationHints

if TYPE_CHECKING:
    from rankscope.model.reports import CaptureFacts, Trace
    from rankscope.sources.conventions import Vocabulary

SIGN = b'"inspector_output_format_version"'
"""In the first line of a dump."""

HEAD_BYTES = 2**12


def facts(path: Path) -> CaptureFacts:
    """Rank and host; times are known once the events are read; raises `UnreadableReport`."""
    from rankscope.sources.inspector import reader

    return reader.facts(path)


def read(path: Path, _words: Vocabulary | None = None, _more: Sequence[Path] = ()) -> Trace:
    """The whole dump; raises `UnreadableReport` where it is not a valid one."""
    from rankscope.sources.inspector import reader

    return reader.read(path)


def is_dump(path: Path) -> bool:
    """Whether a file looks like a dump."""
    try:
        with path.open("rb") as file:
            return SIGN in file.read(HEAD_BYTES)
    except OSError:
        return False


FORMAT = Format(
    name="inspector",
    family="inspector",
    facts=facts,
    read=read,
    hints=IterationHints(
        ranges="host",
        no_ranges="NCCL Inspector records none; profile with nsys or the PyTorch profiler",
    ),
    suffixes=(".log", ".jsonl"),
    sniff=is_dump,
    sniffed_as="dumps of NCCL Inspector",
)
