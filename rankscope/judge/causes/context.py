"""The data that detectors read."""

from collections.abc import Callable, Collection
from functools import cached_property

import polars as pl
from msgspec import Struct

from rankscope.judge.causes.excess import ACTIVITY_EXCESS, HostExcess, activity_excess, host_excess
from rankscope.judge.causes.launches import SLOWDOWN, same_overlap
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding

LEAST_SHARE = 0.15
"""Share of the excess that a finding must explain to be reported."""

HOST_EXCESS = pl.Schema(
    {
        "state": pl.String,  # a HostState
        "name": pl.String,
        "excess_total_ns": pl.Float64,
        "excess_count": pl.Float64,
        "usual_count": pl.Float64,
        "usual_ns": pl.Float64,
    }
)
"""Columns of `CauseContext.host`; amounts over all flagged iterations of the slow ranks."""

Tables = Callable[[str, Collection[int]], pl.DataFrame | None]
"""Table and iterations → the rows of all ranks in them; None where the run has no such table."""


class CauseContext(Struct, frozen=True, dict=True):
    """The slow ranks' flagged iterations, and the tables of the run in them."""

    read: Callable[[str], pl.DataFrame | None]
    """A table of the run: the rows of all ranks in the flagged iterations; None without it."""
    roles: dict[int, str]
    flagged: pl.DataFrame  # rank, iteration, excess_ns, `<phase>_excess` of the slow ranks
    phase: str | None  # the phase with most of the excess; None: look at all phases
    _tables: dict[str, pl.DataFrame | None] = {}

    def table(self, name: str) -> pl.DataFrame | None:
        """A table by its name in the database, read once; None where it has no rows here."""
        if name not in self._tables:
            rows = self.read(name)
            self._tables[name] = None if rows is None or rows.is_empty() else rows
        return self._tables[name]

    @cached_property
    def total_ns(self) -> int:
        """The slow ranks' excess in all flagged iterations."""
        return int(self.flagged["excess_ns"].sum() or 0)

    @property
    def phase_ns(self) -> int:
        """The part of `total_ns` that is in the phase."""
        name = "excess_ns" if self.phase is None else f"{self.phase}_excess"
        return int(self.flagged[name].sum() or 0)

    @cached_property
    def activities(self) -> pl.DataFrame:
        """`activity_excess` of the phase; no rows where the run has no activities in it."""
        rows = self.table("activities")
        if rows is None:
            return pl.DataFrame(schema=ACTIVITY_EXCESS)
        slow = self.flagged.select("rank", "iteration")
        return activity_excess(rows, self.roles, slow, self.phase)

    def matters(self, excess_total_ns: float) -> bool:
        """Whether an excess over all flagged iterations is large enough to be reported."""
        return excess_total_ns >= LEAST_SHARE * self.total_ns

    def large(self, kinds: tuple[str, ...]) -> pl.DataFrame:
        """Rows of `activities` of some kinds whose excess is large enough to be reported."""
        large = pl.col("excess_total_ns") >= LEAST_SHARE * self.total_ns
        return self.activities.filter(pl.col("kind").is_in(kinds) & large)

    def host_excess(self, chosen: pl.Expr) -> HostExcess:
        """How much longer the slow ranks' threads did what an expression chooses.

        Args:
            chosen: of the columns `state` and `name` of HOST_STATES.
        """
        rows = self.table("host_states")
        if rows is None:
            return HostExcess(0, 0)
        here = pl.lit(True) if self.phase is None else pl.col("phase") == self.phase
        slow = self.flagged.select("rank", "iteration")
        return host_excess(rows, chosen & here, self.roles, slow)

    @cached_property
    def host(self) -> pl.DataFrame:
        """HOST_EXCESS of the phase: what the slow ranks' threads did longer; no rows if unknown."""
        rows = self.table("host_states")
        if rows is None:
            return pl.DataFrame(schema=HOST_EXCESS)
        zero = pl.lit(0, pl.Int64)
        as_activities = rows.with_columns(kind="state", size=zero, clear_size=zero)
        slow = self.flagged.select("rank", "iteration")
        excess = activity_excess(as_activities, self.roles, slow, self.phase)
        return excess.rename({"kind": "state"}).select(HOST_EXCESS.names())

    @cached_property
    def most_by_host_ns(self) -> float:
        """The most that the host can explain, over all flagged iterations.

        Where the device works in the phase, that is what it starved longer: what the host does
        while the device is busy delays nothing. Else it is the excess. See METHOD.md#causes.
        """
        rows = self.activities
        if rows.filter(pl.col("kind").is_in(["kernel", "graph", "copy"])).is_empty():
            return self.total_ns
        return min(max(0.0, self.device_ns(idle=True)), self.total_ns)

    def device_ns(self, *, idle: bool) -> float:
        """How much longer devices idle, or work, in the phase; 0 where that is unknown."""
        rows = self.activities.filter((pl.col("kind") == "idle") == idle)
        return float(rows["excess_total_ns"].sum())

    @cached_property
    def slowdowns(self) -> pl.DataFrame:
        """`same_overlap` of the slow ranks; no rows without activities."""
        rows = self.table("activities")
        if rows is None:
            return pl.DataFrame(schema=SLOWDOWN)
        slow = self.flagged.select("rank", "iteration")
        return same_overlap(rows, self.roles, slow, self.phase)

    def finding(
        self,
        cause: CauseKind,
        activity: str,
        name: str,
        excess_total_ns: float,
        usual_total_ns: float | None = None,
        *,
        evidence: tuple[str, ...] = ("activities",),
        count: int = 1,
    ) -> Finding:
        """A finding: so much of the excess lies in one activity.

        Args:
            cause: what it says.
            activity, name, evidence, count: as in `Finding`.
            excess_total_ns: over all flagged iterations.
            usual_total_ns: the same of the median rank; None: unknown.
        """
        return Finding(
            kind=cause,
            name=name,
            excess_ns=round(excess_total_ns / self.flagged.height),
            share=min(1.0, excess_total_ns / self.total_ns),
            activity=activity,
            phase=self.phase,
            evidence=evidence,
            usual_ns=None
            if usual_total_ns is None
            else round(usual_total_ns / self.flagged.height),
            count=count,
            ranks=tuple(self.flagged["rank"].unique().sort().to_list()),
        )

    def findings(self, cause: CauseKind, rows: pl.DataFrame) -> list[Finding]:
        """A finding for each row of `activities`."""
        return [
            self.finding(cause, *row)
            for row in rows.select("kind", "name", "excess_total_ns", "usual_ns").iter_rows()
        ]
