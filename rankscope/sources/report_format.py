"""What a report format has to state: one `Format`, in the module of the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from rankscope.errors import UnreadableReport

if TYPE_CHECKING:
    from rankscope.model.reports import CaptureFacts, Trace
    from rankscope.sources.conventions import Vocabulary


COPY_HINT = "was it still being written, or cut while copying? Copy it again"
"""What to do about a file that ends too early."""


def not_opened(path: Path, error: OSError) -> UnreadableReport:
    """The error of a file that the system does not let read."""
    text = f"{path}: cannot be read ({error.strerror})"
    return UnreadableReport(text, hint="check its permissions")


class Viewer(Enum):
    """A program that shows the events of a report."""

    NSYS_GUI = "the Nsight Systems GUI"
    BROWSER = "a trace viewer in the browser"


class IterationHints(Struct, frozen=True, kw_only=True):
    """Advice for a report without iterations."""

    ranges: str  # the word for the host ranges of this format: "NVTX"
    no_ranges: str  # how to record ranges at all
    pattern: str | None = None  # ranges that end iterations if none is named like one


class Format(Struct, frozen=True, kw_only=True):
    """One format of reports.

    Rows are imported to find reports, before anything heavy: `facts` and `read` import what they
    need when they are called.
    """

    name: str
    """As users and databases see it."""

    family: str
    """Forms of one report have one family, one folder and one name without its ending."""

    facts: Callable[[Path], CaptureFacts]
    """Host, times and rank evidence without the events; raises `UnreadableReport`."""

    read: Callable[[Path, Vocabulary | None, Sequence[Path]], Trace]
    """The whole report, together with further windows of the same process; need not hold ranges
    that the vocabulary calls operators, unless it asks for all."""

    hints: IterationHints

    joined: Callable[[Iterable[Path]], list[tuple[Path, ...]]] | None = None
    """Which files are windows of one process, in the order of time; None: none are."""

    suffixes: tuple[str, ...] = ()
    """Endings of files, in lower case; files are matched in any case."""

    inner_suffixes: tuple[str, ...] = ()
    """Endings before the suffix that are not part of the report's name, the last one first."""

    folders: tuple[str, ...] = ()
    """Endings of folders that are one report each."""

    sniff: Callable[[Path], bool] | None = None
    """Whether a file with one of the suffixes is such a report; None: the suffix is enough."""

    sniffed_as: str = ""
    """What `sniff` accepts, for messages: "traces of the PyTorch profiler"."""

    preference: int = 0
    """Of the forms of one report, that with the lowest is read."""

    recorded: bool = False
    """The profiler itself wrote it, so that forms older than it are not read."""

    exported: bool = False
    """It is read through an export in the cache."""

    any_name: bool = False
    """A file that the user names is of this format if no suffix fits."""

    viewer: Viewer | None = None
    """The program that opens it; None: no program, but one may open another form of the report."""

    listed: bool = True
    """Whether messages list its endings as those of reports."""

    def ending(self, name: str) -> str | None:
        """The ending by which a file or folder of this name is of the format; None if it is not."""
        fitting = [end for end in self.suffixes if name.lower().endswith(end)]
        fitting += [end for end in self.folders if name.endswith(end)]
        return max(fitting, key=len, default=None)

    def stem(self, name: str) -> str:
        """The name without the ending, which forms of one report share."""
        return name[: len(name) - len(self.ending(name) or "")]

    def title(self, name: str) -> str:
        """The name without any ending: what the user called the report."""
        stem = self.stem(name)
        if stem == name:
            return Path(name).stem
        for ending in self.inner_suffixes:
            if stem.lower().endswith(ending):
                stem = stem[: len(stem) - len(ending)]
        return stem
