"""The mean phases of each rank, for the picture and the page."""

import polars as pl
from msgspec import Struct

from rankscope.compare.comparison import Comparison
from rankscope.compare.scores import score
from rankscope.errors import UsageError
from rankscope.model.kinds import PHASES
from rankscope.output.palette import COMMUNICATION_PARTS
from rankscope.util.robust import lower_median
from rankscope.util.wording import counted


class PhaseShares(Struct, frozen=True):
    """Mean phase lengths per rank.

    Attributes:
        frame: a row per rank, those furthest above their role's median first: rank, role, host,
            `<part>_ns` for phases and `COMMUNICATION_PARTS` (null: unknown), total_ns (sum of
            the phases), median_ns (median total of the role).
        iterations: the iterations of the means.
        left_out: the number of selected iterations that are not among them.
    """

    frame: pl.DataFrame
    iterations: tuple[int, ...]
    left_out: int

    @property
    def phases(self) -> tuple[str, ...]:
        """The known phases."""
        return tuple(name for name in PHASES if self.frame[f"{name}_ns"].is_not_null().any())

    @property
    def communication(self) -> tuple[str, ...]:
        """The known members of `COMMUNICATION_PARTS`."""
        return tuple(
            name for name in COMMUNICATION_PARTS if self.frame[f"{name}_ns"].is_not_null().any()
        )

    @property
    def over(self) -> str:
        """The iterations of the means, in words."""
        known = counted(len(self.iterations), "iteration")
        return f"the {known} in which all phases are known" if self.left_out else known

    @property
    def notes(self) -> list[str]:
        """What is unknown, in words."""
        unknown = self.frame.filter(
            pl.col("wait_ns").is_null() & pl.col("exposed_communication_ns").is_null()
        )
        hidden = [name for name in PHASES if name not in self.phases]
        notes = [f"unknown: {', '.join(hidden)}"] if hidden else []
        if "exposed_communication" in self.communication:
            notes.append("the share of waiting in the communication is unknown")
        if unknown.height:
            notes.append(f"communication unknown on {counted(unknown.height, 'rank')}")
        return notes


def phase_shares(comparison: Comparison) -> PhaseShares:
    """The mean length of each part of the selected iterations, per rank.

    An iteration in which a rank lacks a phase that it has elsewhere (the first one of a capture
    lacks its loading) is left out, because parts would not add up; unless all would be left out.

    Raises:
        UsageError: no phase is known on any rank.
    """
    chosen = comparison.rows().with_columns(
        transfer_ns=pl.col("exposed_communication_ns") - pl.col("wait_ns")
    )
    phases = [f"{name}_ns" for name in PHASES]
    lacking = pl.any_horizontal(
        pl.col(name).is_null() & pl.col(name).is_not_null().any().over("rank") for name in phases
    )
    incomplete = chosen.filter(lacking)["iteration"].unique()
    whole = chosen.filter(~pl.col("iteration").is_in(incomplete.implode()))
    chosen = chosen if whole.is_empty() else whole
    values = (score(f"{name}_ns", "mean") for name in (*PHASES, *COMMUNICATION_PARTS))
    ranked = chosen.group_by("rank").agg(values).sort("rank")
    if all(ranked[name].is_null().all() for name in phases):
        raise UsageError(
            "plot phases: the phases are unknown on every rank of this run",
            hint="name the ranges of phases with rankscope ingest --phase NAME=REGEX",
        )
    unsplit = pl.col("wait_ns").is_null()
    places = chosen.group_by("rank").agg(pl.col("role", "host").first())
    frame = ranked.join(places, on="rank").with_columns(
        exposed_communication_ns=pl.when(unsplit).then("exposed_communication_ns"),
        total_ns=pl.sum_horizontal(phases),
    )
    above = pl.col("total_ns") - pl.col("median_ns")
    numbers = chosen["iteration"].unique().sort()
    return PhaseShares(
        frame.with_columns(median_ns=lower_median(pl.col("total_ns")).over("role")).sort(
            above, "rank", descending=[True, False]
        ),
        tuple(numbers),
        len(comparison.selection.numbers) - len(numbers),
    )
