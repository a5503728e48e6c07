"""Which reports of a folder are complete.

A folder is listed again and again, because shared file systems such as NFS and Lustre do not notify
of files that another host writes.
"""

import time
from pathlib import Path

from msgspec import Struct, field

from rankscope.errors import ReportError, UsageError
from rankscope.model.reports import ReportFile, RunWarning
from rankscope.sources.discover import discover

OLD_S = 120.0
"""A report whose last change is this much older than the settling time is complete at first sight,
s. The clocks of a host and of a file server usually differ by less."""

Signature = tuple[int, int]
"""Size and time of modification of a report."""


class Arrived(Struct, frozen=True):
    """The reports of a folder as they are now.

    Attributes:
        complete: reports that did not change during the settling time.
        growing: the other reports.
        problems: warnings of inaccessible files and folders, each once.
    """

    complete: tuple[ReportFile, ...]
    growing: tuple[ReportFile, ...]
    problems: tuple[RunWarning, ...]


def signature(file: ReportFile) -> Signature:
    """Properties of a file that change when it is written to."""
    return file.bytes, file.modified_ns


class Arrivals(Struct):
    """A folder and what was seen in it so far."""

    folder: Path
    settle_s: float
    _seen: dict[Path, tuple[Signature, float]] = {}
    _reported: set[str] = field(default_factory=set)

    def list_folder(self) -> Arrived:
        """List the folder."""
        problems: list[RunWarning] = []
        files = self._files(problems)
        now = time.monotonic()
        before, self._seen = self._seen, {}
        complete: list[ReportFile] = []
        growing: list[ReportFile] = []
        for file in files:
            last, since = before.get(file.path, (None, now))
            since = since if last == signature(file) else now
            self._seen[file.path] = (signature(file), since)
            age = time.time() - file.modified_ns / 1e9
            settled = now - since >= self.settle_s or age >= self.settle_s + OLD_S
            (complete if settled else growing).append(file)
        return Arrived(tuple(complete), tuple(growing), tuple(problems))

    def _files(self, problems: list[RunWarning]) -> list[ReportFile]:
        def failed(path: Path, error: ReportError) -> None:
            if error.message not in self._reported:
                self._reported.add(error.message)
                problems.append(RunWarning("not-accessible", error.message))

        try:
            return discover([self.folder], failed)
        except UsageError:  # no report yet, or the folder is gone for a while
            return []
        except ReportError as error:
            failed(self.folder, error)
            return []
