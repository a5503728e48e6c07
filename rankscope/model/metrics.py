"""The metric registry: one row per metric. See METHOD.md#metrics.

Everything that is shown of a metric derives from its row: the column of the metric table, the
column and the comment in the database, the unit and the keys in JSON, headings of text, HTML and
Markdown tables, names and units on the page, `--metric` with its completion and its error.

CONTRIBUTING.md says how to add one.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from rankscope.errors import UsageError
from rankscope.model.kinds import Phase


class Unit(StrEnum):
    """The unit of a metric's values; the text is the `unit` in JSON."""

    NS = "ns"
    COUNT = "count"
    BYTES = "bytes"
    RATIO = "ratio"
    MHZ = "MHz"

    @property
    def is_whole(self) -> bool:
        """Whether the values in one iteration are integers."""
        return self in (Unit.NS, Unit.COUNT, Unit.BYTES)


class Scope(StrEnum):
    """What must be known besides the rank's own ranges and device work."""

    RANK = "rank"
    """Nothing else."""
    COLLECTIVES = "collectives"
    """The collectives of the rank; without them the metric is unknown."""
    PEERS = "peers"
    """The collectives of all ranks; unknown where a rank is missing."""


class Display(StrEnum):
    """Where a metric is shown without being named by `--metric`."""

    HEADLINE = "headline"
    """In all tables; the table of ranks starts with it and is sorted by it."""
    LEADING = "leading"
    """In all tables."""
    OVERVIEW = "overview"
    """In the table of metrics, not in the table of ranks."""
    ON_REQUEST = "on request"
    """In tables only with `--metric` or `--all`: it is similar to another metric."""

    @property
    def is_usual(self) -> bool:
        """Whether tables show the metric by default."""
        return self is not Display.ON_REQUEST


class Need(StrEnum):
    """What a report must hold for a metric; metrics with the same need are available together."""

    ITERATIONS = "iterations"
    LOADING = "loading"
    PHASES = "phases"
    COMMUNICATION = "communication"
    MATCHED_COLLECTIVES = "matched collectives"
    GRADIENT_REDUCTIONS = "gradient reductions"
    DEVICE_WORK = "device work"


class Metric(Struct, frozen=True):
    """One metric: how it is named, what it means, what it needs, and where it is shown."""

    name: str
    meaning: str
    needs: Need
    unit: Unit = Unit.NS
    scope: Scope = Scope.RANK
    display: Display = Display.OVERVIEW
    title: str = ""  # in prose and on the page; default: the name with spaces
    short: str = ""  # column heading of text tables; default: the name
    limited_by_wait_error: bool = False  # values below the error of waits may be 0

    @property
    def column(self) -> str:
        """Its column in every table that has a value per rank, e.g. `load_ns`."""
        return f"{self.name}_{self.unit.lower()}"

    @property
    def is_time(self) -> bool:
        """Whether values are nanoseconds, which are shown in milliseconds."""
        return self.unit is Unit.NS

    @property
    def label(self) -> str:
        """Its name in prose and on the page."""
        return self.title or self.name.replace("_", " ")

    @property
    def with_unit(self) -> str:
        """Its name in rows, with the unit unless it is a time."""
        return self.name if self.is_time else f"{self.name} ({self.unit})"

    @property
    def heading(self) -> str:
        """Its column heading in text tables, with the unit unless it is a time."""
        name = self.short or self.name
        return name if self.is_time else f"{name} ({self.unit})"

    @property
    def comment(self) -> str:
        """Its meaning with its unit, for the comment of a database column."""
        return f"{self.meaning[0].upper()}{self.meaning[1:]}, {self.unit}"

    def key(self, name: str) -> str:
        """A key of JSON for a value in the metric's unit: `value_ns`, but `value` of a count."""
        return f"{name}_ns" if self.is_time else name


def _length_of(phase: Phase) -> Metric:
    """The metric that is the length of a phase."""
    needs = Need.LOADING if phase is Phase.LOAD else Need.PHASES
    display = Display.OVERVIEW if phase is Phase.OTHER else Display.LEADING
    return Metric(phase.value, phase.meaning, needs, display=display)


_ROWS = (
    Metric("iteration", "length of the iteration's window", Need.ITERATIONS),
    *map(_length_of, Phase),
    Metric(
        "exposed_communication",
        "communication that no work of the rank covers",
        Need.COMMUNICATION,
        scope=Scope.COLLECTIVES,
        short="exposed comm.",
    ),
    Metric(
        "work",
        "iteration less exposed communication: what the rank itself needed",
        Need.COMMUNICATION,
        scope=Scope.COLLECTIVES,
        display=Display.HEADLINE,
    ),
    Metric(
        "wait",
        "part of the exposed communication spent waiting for other ranks",
        Need.MATCHED_COLLECTIVES,
        scope=Scope.PEERS,
        display=Display.LEADING,
        title="waiting for others",
        limited_by_wait_error=True,
    ),
    Metric(
        "time_to_all_reduce",
        "window start to arrival at the last gradient reduction, less exposed communication "
        "before it",
        Need.GRADIENT_REDUCTIONS,
        scope=Scope.COLLECTIVES,
        display=Display.LEADING,
        title="time to all-reduce",
        short="to all-reduce",
    ),
    Metric(
        "time_to_first_all_reduce",
        "the same to the first gradient reduction",
        Need.GRADIENT_REDUCTIONS,
        scope=Scope.COLLECTIVES,
        display=Display.ON_REQUEST,
        title="time to first all-reduce",
    ),
    Metric("compute", "union of computation on the device", Need.DEVICE_WORK),
    Metric(
        "communication",
        "union of communication on the device",
        Need.DEVICE_WORK,
        display=Display.ON_REQUEST,
    ),
    Metric("idle", "window less all device work", Need.DEVICE_WORK),
    Metric(
        "host",
        "time of the training thread outside of calls that wait for the device or other ranks",
        Need.DEVICE_WORK,
        display=Display.ON_REQUEST,
    ),
    Metric(
        "collective_wait",
        "waiting for others in collectives, overlapped or not",
        Need.MATCHED_COLLECTIVES,
        scope=Scope.PEERS,
        display=Display.ON_REQUEST,
        limited_by_wait_error=True,
    ),
    Metric(
        "collective_transfer",
        "collectives' time once all had arrived, overlapped or not",
        Need.MATCHED_COLLECTIVES,
        scope=Scope.PEERS,
        display=Display.ON_REQUEST,
    ),
)

METRICS = {each.name: each for each in _ROWS}
"""Name → metric, in the order of all lists and tables."""

WAITS = ("wait", "collective_wait")
"""Metrics of waiting for others: the rank that others wait for has least of it."""


def check_metrics(names: list[str]) -> list[str]:
    """The given names, all of them metrics.

    Raises:
        UsageError: a name is not a metric; the hint lists all that are.
    """
    for name in names:
        if name not in METRICS:
            raise UsageError(
                f"--metric {name}: there is no such metric", hint=f"one of {', '.join(METRICS)}"
            )
    return names


def column_of(name: str) -> str:
    """The column of a metric, by the metric's name."""
    return METRICS[name].column


def columns_of(names: Iterable[str]) -> list[str]:
    """The columns of metrics, by the metrics' names."""
    return [METRICS[name].column for name in names]


def metric_in(column: str) -> Metric | None:
    """The metric whose values a column holds; None where it holds something else."""
    return next((each for each in METRICS.values() if each.column == column), None)


def measured_metrics() -> list[Metric]:
    """The metrics that a rank's own report gives: those of the table `measures`."""
    return [each for each in METRICS.values() if each.scope is not Scope.PEERS]


def compared_metrics() -> list[Metric]:
    """The metrics that exist only across ranks."""
    return [each for each in METRICS.values() if each.scope is Scope.PEERS]


def leading_metrics(*also: str | None) -> list[str]:
    """The metrics in the table of ranks, and those named in `also`; the headline first."""
    headline = [each.name for each in METRICS.values() if each.display is Display.HEADLINE]
    leading = [
        each.name
        for each in METRICS.values()
        if each.display is Display.LEADING or each.name in also
    ]
    return [*headline, *leading]
