"""What the comparison of a run rests on: its iterations, its clocks, its roles, its collectives.

These records hold no arrays: a stored answer is read without what computes it.
"""

import polars as pl
from msgspec import Struct

from rankscope.errors import ReportError, UsageError
from rankscope.model.options import Options
from rankscope.model.reports import RunWarning
from rankscope.store.tables import RunTables

ALL = "all"
"""The one role of ranks that nothing distinguishes."""


class Selection(Struct, frozen=True):
    """The selected iterations."""

    numbers: tuple[int, ...]
    warmup: tuple[int, ...]  # left out, unless include_warmup or iter_range is set
    problems: tuple[RunWarning, ...]
    settling: tuple[int, ...] = ()  # all warm-up of the run, selected or not


class ReusedScope(Struct, frozen=True):
    """The parts of the default options' scope that scopes of other options reuse.

    `shifts`: rank → how far its iterations were renumbered. `blind_ranks` as in `Scope`.
    """

    clock: str
    shifts: dict[int, int]
    shift_warnings: tuple[RunWarning, ...]
    blind_ranks: tuple[int, ...]
    selection: Selection


class Scope(Struct, frozen=True, eq=False):
    """The ranks, clock and iterations that a comparison covers.

    `tables`: the run, its iterations renumbered so that a number is the same step on every rank.
    `utc_starts`: rank → UTC of its report's time 0, ns; None where unknown.
    `shifts`: rank → how far its iterations were renumbered.
    `choice`: the selected iterations, or why none can be compared.
    """

    tables: RunTables
    options: Options
    utc_starts: dict[int, int | None]
    shifts: dict[int, int]
    shift_warnings: tuple[RunWarning, ...]
    matched_by: str  # number | ordinal
    clock: str  # gpu | host
    clock_reason: str
    world_size: int | None  # ranks of the job, as its environment says
    missing_ranks: tuple[int, ...]  # of the job, without a report
    blind_ranks: tuple[int, ...]  # without collectives: their work is unknown
    choice: Selection | UsageError | ReportError

    @property
    def comparable(self) -> bool:
        """Whether some iterations can be compared."""
        return isinstance(self.choice, Selection)

    @property
    def selection(self) -> Selection:
        """The selected iterations.

        Raises:
            UsageError, ReportError: none can be compared.
        """
        if isinstance(self.choice, Selection):
            return self.choice
        raise self.choice

    @property
    def in_range(self) -> tuple[int, ...] | None:
        """The selected iterations if `iter_range` limits them; else None."""
        return None if self.options.iter_range is None else self.selection.numbers

    def reused(self) -> ReusedScope:
        """The parts of this scope that scopes of other options reuse.

        Raises:
            UsageError, ReportError: no iterations can be compared.
        """
        return ReusedScope(
            self.clock, self.shifts, self.shift_warnings, self.blind_ranks, self.selection
        )


class Roles(Struct, frozen=True):
    """The role of every rank.

    `source`: `given`, `inferred` or `none`. `replicas`: whether it is known, and not merely
    assumed, that the ranks of a role do the same work. `links`: pairs of ranks that are neighbours
    in a pipeline, if `--roles` says so.
    """

    of: dict[int, str]
    source: str
    replicas: bool
    links: list[tuple[int, int]]

    @property
    def own(self) -> bool:
        """Whether every rank has a role of its own."""
        return len({*self.of.values()}) == len(self.of) > 1


class ClockFit(Struct, frozen=True):
    """The relation of one clock to the reference clock.

    `offset_ns`, added to this clock's reading at the middle of the run, gives the reference's
    reading; it grows by `drift_ppm` µs per second. Ends then agree to `spread_ns` (robust standard
    deviation, summed over the links of the graph): the residual, which is the finest difference
    that the fit can show. Where the drift is unknown, it includes a drift of `ASSUMED_DRIFT_PPM`
    over the longest time between a tie and the run's first or last moment.
    """

    offset_ns: int
    drift_ppm: float
    spread_ns: int


class Clocks(Struct, frozen=True):
    """The clocks of a run; ranks not tied to the lowest rank are absent.

    `middle_ns` is the moment, on the lowest rank's UTC, at which the offsets hold.
    """

    fits: dict[int, ClockFit]
    middle_ns: int
    method: str


class MatchSummary(Struct, frozen=True):
    """The number of matched calls and of their iterations, with two fields of `Matched`."""

    calls: int
    iterations: int
    unmatched: pl.DataFrame
    clocks: Clocks


class Matching(Struct, frozen=True, eq=False):
    """The result of matching a run's collectives: who communicates with whom, and the clocks.

    `summary`: how many calls were matched, which were not, the clocks. `streams` as in `Matched`.
    `groups`: the communicators, with the columns of `waits.GROUPS`.
    """

    summary: MatchSummary
    streams: pl.DataFrame
    groups: pl.DataFrame

    @property
    def clocks(self) -> Clocks:
        """The clocks of the ranks that collectives tie together."""
        return self.summary.clocks

    @property
    def wait_error_ns(self) -> int | None:
        """The largest error of the waits that are shown, over all communicators."""
        arrival = pl.col("shown") == "arrival"
        error = pl.when(arrival).then("clock_error_ns").otherwise("ends_error_ns")
        largest = self.groups.select(error).to_series().max()
        return largest if isinstance(largest, int) else None


def all_tied(clocks: Clocks, tables: RunTables) -> bool:
    """Whether all ranks' clocks are tied together; a single rank has nobody to be tied to."""
    return len(clocks.fits) > 1 and {*clocks.fits} >= {*tables.ranks["rank"]}
