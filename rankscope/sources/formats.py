"""The registry of report formats: to add one, write its `Format` and name it in `FORMATS`.

Importing this loads nothing heavy: rows import their readers when they are called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.errors import UnreadableReport
from rankscope.model.reports import ReportFile
from rankscope.sources.inspector import dump_file
from rankscope.sources.kineto import trace_file
from rankscope.sources.nsys import exports, report
from rankscope.sources.report_format import Format

if TYPE_CHECKING:
    from rankscope.model.reports import CaptureFacts, Trace
    from rankscope.sources.conventions import Vocabulary

FORMATS: tuple[Format, ...] = (
    report.FORMAT,
    exports.SQLITE,
    report.RECORDING,
    trace_file.FORMAT,
    exports.PARQUET,
    exports.ARROW,
    dump_file.FORMAT,
)
"""All formats; messages list their endings in this order."""


def find(name: str) -> Format | None:
    """The format of that name; None where there is none."""
    return next((each for each in FORMATS if each.name == name), None)


def named(name: str) -> Format:
    """The format of that name.

    Raises:
        UnreadableReport: there is none, as in a database that a newer rankscope wrote.
    """
    form = find(name)
    if form is None:
        raise UnreadableReport(
            f"{name}: is not a known report format",
            hint=f"known are {', '.join(each.name for each in FORMATS)}; update rankscope",
        )
    return form


def of_folder(name: str) -> Format | None:
    """The format of a folder of that name; None for a folder that is not a report."""
    return next((each for each in FORMATS if name.endswith(each.folders)), None)


def of_file(path: Path) -> Format | None:
    """The format of a file by its name, and by its content where a name is not enough."""
    candidates = _by_suffix(path.name)
    return next((each for each in candidates if each.sniff is None or each.sniff(path)), None)


def of_name(name: str) -> Format | None:
    """The format of a file by its name alone; None where that is not enough."""
    return next((each for each in _by_suffix(name) if each.sniff is None), None)


def of_content(name: str) -> Format | None:
    """The format whose files may have such a name, if only the content decides."""
    return next((each for each in _by_suffix(name) if each.sniff is not None), None)


def suffixes() -> tuple[str, ...]:
    """Endings of files that may be reports, in lower case."""
    return tuple(end for each in FORMATS for end in each.suffixes)


def is_known(name: str) -> bool:
    """Whether files with such a name may be reports."""
    return name.lower().endswith(suffixes())


def of_named_file(path: Path) -> Format:
    """The format of a file that the user names, which is taken for a report in any case."""
    candidates = _by_suffix(path.name)
    if len(candidates) > 1 and (form := of_file(path)):
        return form
    return next(iter(candidates), None) or next(each for each in FORMATS if each.any_name)


def of_report(path: Path) -> Format:
    """The format of a report, which need not exist any more."""
    return of_folder(path.name) or of_named_file(path)


def title(path: Path) -> str:
    """The name of a report without its endings."""
    return of_report(path).title(path.name)


def endings() -> list[str]:
    """Endings of reports, for messages."""
    listed = [each for each in FORMATS if each.listed]
    return [end for each in listed for end in each.suffixes] + [
        end for each in listed for end in each.folders
    ]


def forms(report: Path) -> list[tuple[Format, Path]]:
    """The forms that a viewer opens and that one report could have: their formats and paths.

    The report itself comes first if a viewer opens it; its other forms need not exist.
    """
    own = of_report(report)
    if own.viewer is not None:
        return [(own, report)]
    stem = own.stem(report.name)
    return [
        (each, report.with_name(stem + end))
        for each in FORMATS
        if each.family == own.family and each.viewer is not None
        for end in (*each.suffixes, *each.folders)
    ]


def facts(file: ReportFile) -> CaptureFacts:
    """Host, times and rank evidence of a report, without its events."""
    return named(file.kind).facts(file.place)


def read(file: ReportFile, words: Vocabulary | None = None) -> Trace:
    """The whole report as a `Trace`; ranges that are operators by `words` need not be held."""
    place, *more = file.places
    return named(file.kind).read(place, words, more)


def _by_suffix(name: str) -> list[Format]:
    """The formats of files with such a name, that with the longest suffix first."""
    fitting = [(each, each.ending(name)) for each in FORMATS if each.suffixes]
    matching = [(each, end) for each, end in fitting if end in each.suffixes]
    return [each for each, end in sorted(matching, key=lambda one: -len(one[1] or ""))]
