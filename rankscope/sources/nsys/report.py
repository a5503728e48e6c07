"""`.nsys-rep` and `.qdrep`, as nsys wrote them: read through `nsys export`; and `.qdstrm`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from rankscope.errors import UnreadableReport
from rankscope.sources.nsys import exports
from rankscope.sources.nsys.exports import FAMILY, HINTS
from rankscope.sources.nsys.header import head_facts, session
from rankscope.sources.report_format import Format, Viewer

if TYPE_CHECKING:
    from rankscope.model.reports import Trace
    from rankscope.sources.conventions import Vocabulary


def read(path: Path, words: Vocabulary | None = None, more: Sequence[Path] = ()) -> Trace:
    """The whole report, exported first.

    Raises:
        UnreadableReport: it is truncated or not a report.
        ToolError: nsys is missing, too old, or out of room.
    """
    from rankscope.sources.nsys.export import exported
    from rankscope.sources.nsys.windows import in_one

    if more:
        return in_one(path, [read(each, words) for each in (path, *more)])
    head = head_facts(path)
    trace = exports.read(exported(path), words)
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


def joined(paths: Iterable[Path]) -> list[tuple[Path, ...]]:
    """The windows of each session that wrote several."""
    from rankscope.sources.nsys import windows

    return windows.joined(paths, FORMAT.stem, session)


FORMAT = Format(
    name="nsys-report",
    family=FAMILY,
    facts=head_facts,
    read=read,
    joined=joined,
    hints=HINTS,
    suffixes=(".nsys-rep", ".qdrep"),
    preference=3,  # an export spares exporting
    recorded=True,
    exported=True,
    viewer=Viewer.NSYS_GUI,
)


def refuse_recording(path: Path, *_: object) -> NoReturn:
    """Raises `UnreadableReport`: only nsys's own importer, of the same version, reads these."""
    raise UnreadableReport(
        f"{path}: is a raw .qdstrm recording that was never converted to a report (nsys was "
        "stopped, or the disk was full)",
        hint="convert it: QdstrmImporter -i FILE.qdstrm, of the nsys version that recorded it",
    )


RECORDING = Format(
    name="nsys-raw",
    family=FAMILY,
    facts=refuse_recording,
    read=refuse_recording,
    hints=HINTS,
    suffixes=(".qdstrm",),
    preference=4,
    listed=False,  # found only to be refused with the remedy
)
