"""Reads reports of a folder into the databases of their windows, and finds changed verdicts."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rankscope.api import reading
from rankscope.compare.comparison import Comparison, Stage
from rankscope.errors import DatabaseError, ReportError, UsageError
from rankscope.ingestion.job import ingest_reports
from rankscope.ingestion.preflight import captures
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile, RunWarning
from rankscope.sources.conventions import vocabulary
from rankscope.sources.identify import pattern
from rankscope.sources.same_job import Capture
from rankscope.store.connection import IN_USE
from rankscope.util.atomic_io import check_writable
from rankscope.util.wording import counted
from rankscope.watch.arrivals import Arrivals, Signature, signature
from rankscope.watch.windows import Note, VerdictKey, Window, Windows

SETTLE_S = 10.0
"""A report that did not change for this long is complete, s."""

PATIENCE_S = 300.0
"""A window whose reports are not all there is compared when none came for this long, s."""

log = logging.getLogger("rankscope.watch")


class WatchOptions(Struct, frozen=True):
    """How a folder is watched.

    Attributes:
        shaping: how reports become rows.
        jobs: worker processes; None for the cores that this process may use.
        settle_s, patience_s: in place of `SETTLE_S` and `PATIENCE_S`.
    """

    shaping: ShapingOptions
    jobs: int | None = None
    settle_s: float = SETTLE_S
    patience_s: float = PATIENCE_S


class Announcement(Struct, frozen=True):
    """The verdict of a window that is new, or another one than before.

    Attributes:
        time_ns: now, in UTC.
        warnings: those of the comparison; the database may change before they are shown.
        previous: what was announced last for this window, else for the one before it.
    """

    time_ns: int
    window: int
    db: Path
    comparison: Comparison
    warnings: tuple[RunWarning, ...]
    previous: VerdictKey | None

    @property
    def changed(self) -> bool:
        """Whether the verdict is another one than `previous`."""
        return VerdictKey.of(self.comparison.verdict) != self.previous


class Poll(Struct, frozen=True):
    """The result of one poll of the folder.

    Attributes:
        announcements: verdicts; `Watcher.announced` takes each once it was shown.
        problems: warnings; each is given once.
        taken: number of reports that were read.
        growing: number of reports that are still being written.
        waiting: windows whose verdict waits for more reports.
    """

    announcements: tuple[Announcement, ...]
    problems: tuple[RunWarning, ...]
    taken: int
    growing: int
    waiting: tuple[str, ...]


class Watcher:
    """A folder and the databases of its windows.

    The databases hold all that was read and announced, so that a watch can be ended and started
    again.
    """

    def __init__(self, folder: Path, db: Path, options: WatchOptions) -> None:
        """Watch a folder.

        Args:
            db: the database of the first window; the others get its name and a number.

        Raises:
            UsageError: there is no such folder, a pattern is wrong, or nothing can be written.
            DatabaseError: a database is damaged, or of another version.
        """
        if not folder.is_dir():
            raise UsageError(
                f"{folder}: is no folder", hint="name the folder in which reports arrive"
            )
        check_writable(db)
        vocabulary(options.shaping)  # raises for a wrong pattern
        self._own = pattern(options.shaping.rank_pattern)
        self._options = options
        self._arrivals = Arrivals(folder, options.settle_s)
        self._windows = Windows(db, options.shaping.to_json())
        self._seen: dict[Path, tuple[Signature, bool]] = {}  # reports, and whether they are usable
        self._judged: dict[int, str] = {}  # number of a window → its reports then
        self._began_s = time.monotonic()
        self._arrived_s: dict[int, float] = {}  # number of a window → when its last report came
        self._at_once: set[frozenset[int]] = set()  # pairs of windows of two jobs
        self._busy = False
        self._last: tuple[str, Comparison] | None = None

    @property
    def windows(self) -> Windows:
        """The windows that the last poll found."""
        return self._windows

    @property
    def failed(self) -> int:
        """The number of reports that could not be used."""
        return sum(not usable for _, usable in self._seen.values())

    def poll(self, once: bool = False) -> Poll:
        """Take in the reports that are complete, and compare the windows that changed.

        Args:
            once: this is the only poll, so that only the times of the files tell whether more
                reports may come.

        Raises:
            DatabaseError: a database is damaged, or the disk is full.
        """
        arrived = self._arrivals.list_folder()
        problems = [*arrived.problems]
        growing = len(arrived.growing)
        try:
            for window in self._windows:
                window.write_note()
            taken = self._take_in(arrived.complete, problems, once)
            announced, waiting = self._compared(growing > 0, problems)
        except DatabaseError as error:
            if once or IN_USE not in error.message:
                raise
            if not self._busy:
                problems.append(RunWarning("database-busy", f"{error.message}: waiting for it"))
            self._busy = True
            return Poll((), tuple(problems), 0, growing, ())
        self._busy = False
        return Poll(tuple(announced), tuple(problems), taken, growing, tuple(waiting))

    def announced(self, announcement: Announcement) -> None:
        """Note that a verdict was announced, so that it is not announced again.

        Raises:
            DatabaseError: the disk is full.
        """
        essence = VerdictKey.of(announcement.comparison.verdict)
        for window in self._windows:
            if window.number == announcement.window:
                window.note(Note(essence, window.reports))

    def latest(self) -> tuple[Window, Comparison] | None:
        """The last window whose verdict was announced, and its comparison."""
        window = next((each for each in reversed([*self._windows]) if each.announced), None)
        if window is None:
            return None
        if self._last is None or self._last[0] != window.reports:
            self._last = (window.reports, _comparison(window.db))
        return window, self._last[1]

    def _take_in(
        self, complete: tuple[ReportFile, ...], problems: list[RunWarning], once: bool
    ) -> int:
        """Read the new and changed reports, and return their number."""
        if not self._windows.refresh():  # a database was removed: its reports are new
            self._seen = {}
            self._judged = {}
        fresh = self._fresh(complete)
        known: list[tuple[ReportFile, Capture]] = []
        for file, capture in zip(fresh, captures(fresh, self._own), strict=True):
            if isinstance(capture, Capture):
                known.append((file, replace(capture, path=capture.path.resolve())))
            else:
                self._seen[file.path] = signature(file), False
                problems.append(_unusable(capture.message))
        by_window = self._windows.windows_of(known)
        taken = 0
        for window, files in by_window:
            count = self._ingested(window, files, problems)
            taken += count
            if count and not once:
                self._arrived_s[window.number] = time.monotonic()
        read = {file.path for _, files in by_window for file in files}
        for file, _ in known:
            if file.path not in read:
                log.info("%s: its window has this capture already", file.path)
                self._seen[file.path] = signature(file), True
        problems += self._jobs_at_once([window for window, _ in by_window])
        self._windows.read_again(window for window, _ in by_window)
        return taken

    def _jobs_at_once(self, changed: list[Window]) -> Iterator[RunWarning]:
        """Warnings of windows of different jobs, each once."""
        for window in changed:
            for other in self._windows:
                pair = frozenset((window.number, other.number))
                if other is window or pair in self._at_once or not window.beside(other):
                    continue
                self._at_once.add(pair)
                one, two = (min(each.taken).name for each in (other, window))
                text = (
                    f"windows {other.number} and {window.number} are of two jobs at one time (such "
                    f"as {one} and {two}); a verdict is compared with that of the window before, "
                    "whichever job that is of: watch a folder for each job"
                )
                yield RunWarning("several-jobs", text)

    def _fresh(self, complete: tuple[ReportFile, ...]) -> list[ReportFile]:
        """The reports that are new or have changed."""
        fresh: list[ReportFile] = []
        for file in complete:
            last, _ = self._seen.get(file.path, (None, True))
            if last == signature(file):
                continue
            if self._windows.holds(file):
                self._seen[file.path] = signature(file), True
            else:
                fresh.append(file)
        return fresh

    def _ingested(self, window: Window, files: list[ReportFile], problems: list[RunWarning]) -> int:
        """Read reports into the database of a window, and return the number of usable ones."""
        try:
            done = ingest_reports(
                [file.path for file in files],
                window.db,
                self._options.shaping,
                jobs=self._options.jobs,
                on_error="skip",
            )
        except (ReportError, UsageError) as error:  # the latter: a file is gone meanwhile
            problems.append(_unusable(error.message))
            bad = {file.path for file in files}
        else:
            skipped = [each for each in done.outcomes if each.status == "skipped"]
            problems += [_unusable(f"{each.path}: {each.reason}") for each in skipped]
            bad = {each.path for each in skipped}
        for file in files:
            self._seen[file.path] = signature(file), file.path not in bad
        return sum(file.path not in bad for file in files)

    def _compared(
        self, growing: bool, problems: list[RunWarning]
    ) -> tuple[list[Announcement], list[str]]:
        """Verdicts to announce, and the windows that wait for more reports, in words."""
        announced: list[Announcement] = []
        waiting: list[str] = []
        previous: VerdictKey | None = None  # of the window before
        for window in self._windows:
            last = window.announced
            known = self._judged.get(window.number, last.reports if last else None)
            if known != window.reports and not self._is_due(window, growing):
                waiting.append(_progress(window))
            elif known != window.reports:
                self._judged[window.number] = window.reports
                announcement = self._judged_window(window, previous, problems)
                if announcement is not None:
                    announced.append(announcement)
                    previous = VerdictKey.of(announcement.comparison.verdict)
                    continue
            previous = last.essence if last else previous
        return announced, waiting

    def _judged_window(
        self, window: Window, previous: VerdictKey | None, problems: list[RunWarning]
    ) -> Announcement | None:
        """The verdict of a window, if it is another one than was announced for it."""
        try:
            comparison = _comparison(window.db)
            key, warnings = VerdictKey.of(comparison.verdict), comparison.warnings
        except (ReportError, UsageError) as error:  # no iterations to compare
            problems.append(RunWarning("no-verdict", error.message))
            return None
        if window.announced is not None and key == window.announced.essence:
            window.note(Note(key, window.reports))
            return None
        before = previous if window.announced is None else window.announced.essence
        now = time.time_ns()
        return Announcement(now, window.number, window.db, comparison, warnings, before)

    def _is_due(self, window: Window, growing: bool) -> bool:
        """Whether all reports of a window are there, or none came for a long time."""
        if window.world_size is not None and len(window.ranks) >= window.world_size:
            return True
        before = self._windows.before(window)
        usual = window.world_size is None if before is None else window.ranks >= before.ranks
        if usual and not growing:
            return True
        patience_s, now_s = self._options.patience_s, time.monotonic()
        if window.number in self._arrived_s:
            return now_s - self._arrived_s[window.number] >= patience_s
        # a time far in the future is that of another clock: it does not say that a report just came
        is_old = abs(time.time() - window.newest_s) >= patience_s
        return is_old or now_s - self._began_s >= patience_s


def _comparison(db: Path) -> Comparison:
    with reading(db) as run:
        return run.compare(until=Stage.SUMMARY)


def _unusable(message: str) -> RunWarning:
    return RunWarning("unusable", f"{message}; tried again when it changes")


def _progress(window: Window) -> str:
    present = counted(len(window.ranks), "rank")
    if window.world_size is not None:
        present = f"{len(window.ranks)} of {counted(window.world_size, 'rank')}"
    return f"window {window.number} has {present}: its verdict waits for more"
