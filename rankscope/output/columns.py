"""The columns of all tables: their headings, the format of their values, and their meanings.

The name of a frame's column consists of its content and its unit: `excess_ns`, `last_share`. Text,
Markdown and pages use the content as the heading, and the ending as the unit. Metrics have a row in
`model/metrics.py`; any other column needs a row here if its name is not enough.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from rankscope.model.metrics import metric_in


class Shown(StrEnum):
    """How the values of a column are shown; the text is the kind of column on pages."""

    MS = "ms"  # of ns
    SHARE = "share"  # of fractions of 1: percent
    GIGABYTES = "GB/s"  # of bytes per second
    RANK = "rank"
    ITERATION = "iteration"
    PLAIN = ""


class Column(Struct, frozen=True):
    """A column that is no metric.

    Attributes:
        name: without `_ns`, as frames and CSV have it.
        meaning: a note below text tables that name it, and a tooltip on pages.
        heading: of text tables; default: the name with spaces.
        label: of pages; default: the heading.
        shown: how values are shown; default: as the ending of the name says.
    """

    name: str
    meaning: str = ""
    heading: str = ""
    label: str = ""
    shown: Shown | None = None


_ROWS = (
    Column("ordinal", "position in the iteration: among calls of this operation, or as numbered"),
    Column("iteration_share", heading="of iteration"),
    Column("clear_share", "share of its time during which no collective ran", heading="alone"),
    Column("algorithm_bandwidth", heading="algorithm GB/s"),
    Column("bus_bandwidth", heading="bus GB/s"),
    Column("last_share", "share of calls at which the rank arrived last"),
    Column(
        "last_arriver_share",
        "share of its collectives at which it was clearly last (at some, nobody is), without "
        "sends and receives",
        heading="last",
        label="came last",
    ),
    Column("excess", "time above the role's median in the same iteration"),
    Column("usual", "time on the role's median rank in the same iterations"),
    Column("imbalance", "max / mean - 1", shown=Shown.SHARE),
    Column("share", shown=Shown.SHARE),
    Column("lost", "slowest less this rank, summed over ranks and iterations", "rank time lost"),
    Column("spread", "largest minus smallest value of a rank"),
    Column("cost", "time that other ranks waited for this rank, summed over ranks and iterations"),
    Column("gain", "time that fixing this rank alone would save, summed over the iterations"),
    Column("z", "modified z-score of the rank among the ranks of its role"),
    Column("offset", "add it to this rank's UTC to get the UTC of the lowest rank, at mid-run"),
    Column("drift_ppm", "growth of the offset, in µs per second"),
    Column("evidence", "how the rank of the report was determined"),
    Column("guilty", "runs whose verdict names it", "named"),
    Column(
        "rate",
        "share of its iterations in which it is named, shrunk towards the fleet's rate",
        shown=Shown.SHARE,
    ),
    Column("low", "lower end of the 95 % interval of the rate", label="from", shown=Shown.SHARE),
    Column("high", "upper end of the 95 % interval of the rate", label="to", shown=Shown.SHARE),
    Column(
        "since",
        "start of the first run whose verdict names it, where earlier ones do not",
        label="slow since",
    ),
    Column("p", "probability that chance makes any hardware look as bad"),
    Column("rank_hours", "time that it cost all ranks, in the profiled iterations", "rank-hours"),
)

COLUMNS = {each.name: each for each in _ROWS}
"""Name without `_ns` → column."""

NAMES = frozenset(("host", "name", "communicator", "role", "report", "id", "flagged_ranks"))
"""Columns of text whose middle may be left out on a narrow terminal."""

ENDINGS = {"_ns": Shown.MS, "_share": Shown.SHARE, "_bandwidth": Shown.GIGABYTES}
"""Ending of a name → how its values are shown."""


def column(name: str) -> Column:
    """The `Column` of a frame's column that is no metric; a bare one if `COLUMNS` has none."""
    bare = name.removesuffix("_ns")
    return COLUMNS.get("z" if name.endswith("_z") else bare) or Column(bare)


def shown(name: str) -> Shown:
    """How the values of a frame's column are shown."""
    metric = metric_in(name)
    if metric is not None:
        return Shown.MS if metric.is_time else Shown.PLAIN
    by_ending = next((kind for end, kind in ENDINGS.items() if name.endswith(end)), None)
    if by_ending is None and (name in ("rank", "iteration") or name.endswith("_rank")):
        by_ending = Shown(name.rpartition("_")[2])
    return column(name).shown or by_ending or Shown.PLAIN


def heading(name: str) -> str:
    """The heading of a frame's column in text tables."""
    metric = metric_in(name)
    if metric is not None and not metric.is_time:
        return f"{metric.label} ({metric.unit})"
    bare = name.removesuffix("_ns").removesuffix("_share")
    return column(name).heading or bare.replace("_", " ")


def label(name: str) -> str:
    """The heading of a frame's column on pages."""
    metric = metric_in(name)
    if metric is not None:
        return metric.label if metric.is_time else f"{metric.label} ({metric.unit})"
    known = column(name)
    return known.label or known.heading or name.removesuffix("_ns").replace("_", " ")


def meaning(name: str) -> str | None:
    """The meaning of a frame's column; None if its heading is enough."""
    metric = metric_in(name)
    return metric.meaning if metric is not None else column(name).meaning or None


def notes(*names: str) -> tuple[tuple[str, str], ...]:
    """Headings of a frame's columns and their meanings, for the note below a text table."""
    return tuple((heading(name), meaning(name) or "") for name in names)


def names_in(columns: Iterable[str]) -> frozenset[str]:
    """The headings of those columns of a frame that hold names, which may be cut."""
    return frozenset(map(heading, NAMES.intersection(columns)))
