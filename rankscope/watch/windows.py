"""The profiled windows of a job, and the window of each report.

Each window has a database of its own: `run.duckdb`, `run-2.duckdb`, … So each has a verdict of its
own, and `fleet` and `diff` can compare them.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Self

import msgspec
import polars as pl
from msgspec import Struct

from rankscope.errors import DatabaseError
from rankscope.ingestion.existing import StoredReports
from rankscope.ingestion.runs import runs_of
from rankscope.model.kinds import VerdictKind
from rankscope.model.reports import ReportFile
from rankscope.model.results import Verdict
from rankscope.sources.same_job import CLOCK_SLACK_NS, Capture
from rankscope.store import Database
from rankscope.store.connection import IN_USE
from rankscope.util.atomic_io import exists
from rankscope.util.meaning import says

NEAR_NS = 300 * 10**9
"""Captures whose times are unknown before they are read are of one window if their files were
written within this time, ns."""

NOTE_KEY = "announced"
"""Key of `meta`: the verdict that was announced last, and from which reports."""


class VerdictKey(msgspec.Struct, frozen=True):
    """What makes a verdict another one; as in `verdict`."""

    kind: Annotated[VerdictKind, says("its class")] = msgspec.field(name="class")
    ranks: Annotated[tuple[int, ...], says("its ranks")]
    hosts: Annotated[tuple[str, ...], says("its hosts")]
    roles: Annotated[tuple[str, ...], says("its roles")]
    cause: Annotated[str | None, says("its phase")]

    @classmethod
    def of(cls, verdict: Verdict) -> Self:
        """That of a verdict."""
        return cls(verdict.kind, verdict.ranks, verdict.hosts, verdict.roles, verdict.cause)


class Note(Struct, frozen=True):
    """The verdict that was announced last for a window."""

    essence: VerdictKey
    reports: str  # `Window.reports` at that time

    def to_json(self) -> str:
        """As text for the database."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """The inverse of `to_json`; None if the text is something else."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError:
            return None


class Taken(Struct, frozen=True):
    """A capture, and when its file was written, ns since the epoch."""

    capture: Capture
    written_ns: int


class Window(Struct):
    """A window of the job, and its database, which is made with the first report.

    Attributes:
        taken: resolved path of a report → its capture.
        reports: what changes with the reports; empty without any.
        newest_s: when the last of its reports was written, s since the epoch.
    """

    number: int
    db: Path
    taken: dict[Path, Taken] = {}
    stored: StoredReports | None = None
    announced: Note | None = None
    unwritten: Note | None = None  # what is not in the database yet
    reports: str = ""
    newest_s: float = 0.0
    world_size: int | None = None
    ranks: frozenset[int] = frozenset()
    state: tuple[int, ...] = ()

    def load(self, shaping: str) -> None:
        """Read what the database holds, if it has changed.

        Raises:
            DatabaseError: it cannot be read, or another process writes it.
        """
        state = Database.state(self.db)
        if not state or state == self.state:
            return
        self.stored = StoredReports(self.db, shaping)
        with Database.open(self.db) as database:
            reports, ranks = database.table("reports"), database.table("ranks")
            noted = Note.from_json(database.meta().get(NOTE_KEY, ""))
        self.announced = self.unwritten or noted
        files = reports.select("bytes", "modified_ns", "options").sort(pl.all())
        self.reports = hashlib.sha256(repr(files.rows()).encode()).hexdigest()[:16]
        newest = reports["modified_ns"].max()
        self.newest_s = newest / 1e9 if isinstance(newest, int) else 0.0
        world = ranks["world_size"].max()
        self.world_size = world if isinstance(world, int) else None
        self.ranks = frozenset(ranks["rank"])
        self.taken = {each.capture.path: each for each in _taken(reports, ranks)}
        self.state = state

    def note(self, announced: Note) -> None:
        """Note what was announced; in the database as soon as nobody else uses it."""
        self.announced = self.unwritten = announced
        try:
            self.write_note()
        except DatabaseError as error:
            if IN_USE not in error.message:
                raise

    def write_note(self) -> None:
        """Write what was announced into the database, if it is not there yet.

        Raises:
            DatabaseError: it cannot be written, or another process uses it.
        """
        if self.unwritten is None:
            return
        with Database.open(self.db, write=True) as database:
            database.note(NOTE_KEY, self.unwritten.to_json())
            database.checkpoint()
        self.unwritten = None
        self.state = Database.state(self.db)

    def holds_copy(self, capture: Capture) -> bool:
        """Whether it has the same capture under another path, for example its export."""
        origin = _origin(capture)
        return origin is not None and any(
            _origin(other.capture) == origin
            for path, other in self.taken.items()
            if path != capture.path
        )

    def fits(self, new: Taken) -> bool:
        """Whether a capture can be of this window: same time, same job, and its rank is free."""
        own = new.capture
        others = [(path, each.capture) for path, each in self.taken.items()]
        gaps = [abs(new.written_ns - each.written_ns) for each in self.taken.values()]
        near = own.end_ns is not None or min(gaps, default=0) <= NEAR_NS
        return near and all(
            _together(own, other) and (path == own.path or not {*own.ranks} & {*other.ranks})
            for path, other in others
        )

    def beside(self, other: Self) -> bool:
        """Whether both have a capture of one rank at one time: they are of two jobs."""
        own, theirs = (
            {rank: each.capture for each in window.taken.values() for rank in each.capture.ranks}
            for window in (self, other)
        )
        return any(_overlap(own[rank], theirs[rank]) for rank in own.keys() & theirs.keys())

    def distance_ns(self, new: Taken) -> int:
        """How far a capture is from the window: by the starts, else by the times of the files."""
        start = new.capture.start_ns
        starts = [each.capture.start_ns for each in self.taken.values()]
        known = [abs(start - each) for each in starts if start is not None and each is not None]
        files = [abs(new.written_ns - each.written_ns) for each in self.taken.values()]
        return min(known or files, default=0)


class Windows:
    """The windows whose databases lie beside each other."""

    def __init__(self, db: Path, shaping: str) -> None:
        """Those of `db` and of its numbered neighbours; `shaping` are the options, as JSON."""
        self._db = db
        self._shaping = shaping
        self._windows: dict[int, Window] = {}

    def __iter__(self) -> Iterator[Window]:
        return iter([self._windows[number] for number in sorted(self._windows)])

    def refresh(self) -> bool:
        """Read what the databases hold now; False if one of them is gone.

        Raises:
            DatabaseError: one cannot be read, or another process writes it.
        """
        databases = self._databases()
        gone = {number for number in self._windows if number not in databases}
        for number in gone:
            del self._windows[number]
        for number, path in databases.items():
            self._windows.setdefault(number, Window(number, path)).load(self._shaping)
        return not gone

    def holds(self, file: ReportFile) -> bool:
        """Whether a window has a report as it is now."""
        return any(
            each.stored is not None and each.stored.unchanged(file) is not None for each in self
        )

    def windows_of(
        self, reports: Sequence[tuple[ReportFile, Capture]]
    ) -> list[tuple[Window, list[ReportFile]]]:
        """The windows of new or changed reports, new windows among them.

        Copies of captures that a window has already are left out. Call `read_again` once the
        reports were taken in, or could not be.
        """
        files_of: dict[int, list[ReportFile]] = {}
        run_of = self._runs([Taken(capture, file.modified_ns) for file, capture in reports])
        for file, capture in sorted(reports, key=_in_time):
            if any(window.holds_copy(capture) for window in self):
                continue
            new = Taken(capture, file.modified_ns)
            window = self._window_of(new, run_of)
            window.taken[capture.path] = new
            files_of.setdefault(window.number, []).append(file)
        return [(self._windows[number], files_of[number]) for number in sorted(files_of)]

    def read_again(self, windows: Iterable[Window]) -> None:
        """Read windows from their databases; those that have none are forgotten.

        Raises:
            DatabaseError: one cannot be read, or another process writes it.
        """
        for window in windows:
            window.state = ()
        self.refresh()

    def before(self, window: Window) -> Window | None:
        """The window before another one, of those whose verdict was announced."""
        earlier = [each for each in self if each.number < window.number and each.announced]
        return earlier[-1] if earlier else None

    def _runs(self, fresh: list[Taken]) -> dict[Path, int]:
        """The number of the run of each new capture, and of those in the windows that one fits."""
        near = [window for window in self if any(window.fits(new) for new in fresh)]
        known = {path: taken for window in near for path, taken in window.taken.items()}
        known |= {new.capture.path: new for new in fresh}
        runs = runs_of(each.capture for each in known.values())
        return {each.path: number for number, run in enumerate(runs) for each in run}

    def _window_of(self, new: Taken, run_of: dict[Path, int]) -> Window:
        """The nearest window that a capture fits and that has captures of its run, else a new one.

        Several jobs may be profiled into one folder at a time.
        """
        run = run_of[new.capture.path]
        fitting = [
            each
            for each in self
            if each.fits(new) and any(run_of.get(path) == run for path in each.taken)
        ]
        if fitting:
            return min(fitting, key=lambda each: (each.distance_ns(new), -each.number))
        number = max(self._windows, default=0) + 1
        path = self._db if number == 1 else self._db.with_stem(f"{self._db.stem}-{number}")
        window = Window(number, path)
        self._windows[number] = window
        return window

    def _databases(self) -> dict[int, Path]:
        """The number of each window whose database exists, and the database."""
        own = re.compile(rf"{re.escape(self._db.stem)}-([1-9]\d*){re.escape(self._db.suffix)}")
        databases = {1: self._db} if exists(self._db) else {}
        for path in self._db.parent.iterdir():
            if match := own.fullmatch(path.name):
                databases.setdefault(int(match[1]), path)
        return databases


def _in_time(report: tuple[ReportFile, Capture]) -> tuple[int, Path]:
    file, capture = report
    return file.modified_ns if capture.start_ns is None else capture.start_ns, file.path


def _taken(reports: pl.DataFrame, ranks: pl.DataFrame) -> Iterator[Taken]:
    """The captures that a database holds."""
    of_report = ranks.group_by("path").agg(pl.col("rank").sort(), pl.col("world_size").max())
    known = reports.join(of_report, on="path", how="left")
    for row in known.iter_rows(named=True):
        capture = Capture(
            Path(row["path"]),
            tuple(row["rank"] or ()),
            row["world_size"],
            row["host"],
            row["utc_start_ns"],
            row["duration_ns"],
        )
        yield Taken(capture, row["modified_ns"])


def _origin(capture: Capture) -> tuple[object, ...] | None:
    """The key that copies of a capture share; None if it is unknown."""
    known = (capture.ranks, capture.host, capture.start_ns)
    return known if capture.ranks and None not in known else None


def _overlap(one: Capture, other: Capture, slack_ns: int = 0) -> bool | None:
    """Whether two captures overlap in time; None where a start or an end is unknown."""
    begun = [each.start_ns for each in (one, other) if each.start_ns is not None]
    ended = [end for each in (one, other) if (end := each.end_ns) is not None]
    return max(begun) <= min(ended) + slack_ns if len(begun) == len(ended) == 2 else None


def _together(one: Capture, other: Capture) -> bool:
    """Whether two captures can be of one window of one job.

    The clocks of two hosts may differ; captures of one host overlap by its own clock.
    """
    if None not in (one.world_size, other.world_size) and one.world_size != other.world_size:
        return False
    same_host = one.host is not None and one.host == other.host
    return _overlap(one, other, 0 if same_host else CLOCK_SLACK_NS) is not False
