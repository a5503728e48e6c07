"""Matching of iterations without numbers across ranks. See METHOD.md#iterations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.align.calls import SPLITTABLE
from rankscope.align.clocks import fit_clock
from rankscope.errors import ReportError
from rankscope.model.intervals import Times
from rankscope.model.reports import RunWarning
from rankscope.store.tables import RunTables, TableReader, TableRequest, requested

FURTHEST = 50
"""Largest shift between two captures that is searched, in steps."""

LEAST_OVERLAP = 4

NUMBERED = ("iterations", "measures", "collectives", "exposed", "activities")
"""Tables that hold iteration numbers as given by their reports."""

SHARPER = 4
"""A shift is accepted if its ends agree this many times better than those of any other."""


def pair_iterations(
    iterations: pl.DataFrame,
    collectives: pl.DataFrame,
    utc_starts: dict[int, int | None],
    counted: list[int],
) -> tuple[dict[int, int], list[RunWarning]]:
    """The shift of each rank's counted iterations after which equal numbers mean equal steps.

    Two kinds of evidence are used: the sequence of collectives, where iterations differ; and the
    ends of the last collectives of iterations, whose differences between two ranks vary little
    only if the same steps are compared.

    Args:
        iterations: RANK_ITERATIONS.
        collectives: COLLECTIVES.
        utc_starts: rank → UTC of its report's time 0.
        counted: ranks whose iterations carry no numbers.

    Returns:
        rank → shift (0 is left out), and the warnings.

    Raises:
        ReportError: the sequences of two ranks match at no shift.
    """
    if not counted or iterations["rank"].n_unique() < 2:
        return {}, []
    steps = _steps(iterations.filter("complete"), collectives, utc_starts)
    reference = max(steps, key=lambda rank: (len(steps[rank][0]), -rank))
    found: dict[int, int] = {}
    unsure: list[int] = []
    for rank, own in steps.items():
        if rank == reference:
            found[rank] = 0
            continue
        fits = _fits(own[0], steps[reference][0])
        if not fits:
            raise ReportError(
                f"iterations have no numbers, and the collectives of rank {rank} and rank "
                f"{reference} match at no shift: their iterations cannot be paired",
                hint="number the ranges (f'step {i}'), or capture the same steps on every rank",
            )
        sharpest = _sharpest(own[1], steps[reference][1], fits)
        if sharpest is None:
            unsure.append(rank)
        found[rank] = min(fits, key=abs) if sharpest is None else sharpest
    lowest = min(found.values())
    shifts = {rank: shift - lowest for rank, shift in found.items() if shift != lowest}
    return shifts, _problems(shifts, unsure)


@dataclass(frozen=True, slots=True)
class _ShiftedTables:
    """A `TableReader` that shifts the iteration numbers of some ranks."""

    reader: TableReader
    shifts: dict[int, int]

    def read(self, request: TableRequest) -> pl.DataFrame:
        """The requested columns and rows; iterations are those after the shift."""
        if request.table not in NUMBERED:
            return self.reader.read(request)
        frame = self.reader.read(replace(request, columns=None, iterations=None))
        by = pl.col("rank").replace_strict(self.shifts, default=0, return_dtype=pl.Int64)
        moved = frame.with_columns(
            iteration=(pl.col("iteration") + by).cast(frame.schema["iteration"])
        )
        return requested(moved, replace(request, ranks=None, narrow=False))


def renumbered(tables: RunTables, shifts: dict[int, int]) -> RunTables:
    """The tables with the iteration numbers of some ranks shifted.

    Args:
        tables: the run.
        shifts: rank → how far its iterations are shifted.
    """
    if not shifts:
        return tables
    return RunTables(tables.name, _ShiftedTables(tables.reader, shifts))


def _problems(shifts: dict[int, int], unsure: list[int]) -> list[RunWarning]:
    doubt = "; their collectives neither prove nor contradict this" if unsure else ""
    problems = [
        RunWarning(
            "matched-by-ordinal",
            "iterations have no numbers and are matched by counting" + doubt,
            tuple(unsure),
        )
    ]
    if shifts:
        moved = ", ".join(f"rank {rank} by {shift}" for rank, shift in sorted(shifts.items()))
        problems.append(
            RunWarning(
                "windows-shifted",
                f"captures start at different steps; shifted by their collectives: {moved}",
                tuple(sorted(shifts)),
            )
        )
    return problems


def _steps(
    iterations: pl.DataFrame, collectives: pl.DataFrame, utc_starts: dict[int, int | None]
) -> dict[int, tuple[list[str], Times]]:
    """The collectives of each rank and iteration as text, and the UTC end of the last one.

    An iteration without collectives ends at -1.
    """
    collectives = collectives.filter(pl.col("operation").is_in(SPLITTABLE))
    spelled = (
        collectives.group_by("rank", "iteration", "operation")
        .agg(count=pl.len(), bytes=pl.col("bytes").sum())
        .sort("operation")
        .group_by("rank", "iteration", maintain_order=True)
        .agg(text=pl.format("{}*{}:{}", "operation", "count", "bytes").str.join(" "))
    )
    ends = collectives.group_by("rank", "iteration").agg(end=pl.col("end_ns").max())
    rows = (
        iterations.select("rank", "iteration")
        .join(spelled, on=["rank", "iteration"], how="left")
        .join(ends, on=["rank", "iteration"], how="left")
        .sort("rank", "iteration")
    )
    found: dict[int, tuple[list[str], Times]] = {}
    for (rank,), frame in rows.partition_by("rank", as_dict=True).items():
        start = utc_starts.get(rank) or 0
        moments = (frame["end"] + start).fill_null(-1).to_numpy()
        found[rank] = (frame["text"].fill_null("").to_list(), moments)
    return found


def _fits(own: list[str], reference: list[str]) -> list[int]:
    """Shifts at which two sequences agree wherever they overlap."""
    least = min(LEAST_OVERLAP, len(own), len(reference))
    low = max(least - len(own), -FURTHEST)
    high = min(len(reference) - least, FURTHEST)
    fits = []
    for shift in range(low, high + 1):
        first, last = max(0, -shift), min(len(own), len(reference) - shift)
        if own[first:last] == reference[first + shift : last + shift]:
            fits.append(shift)
    return fits


def _sharpest(own: Times, reference: Times, fits: list[int]) -> int | None:
    """The shift at which the ends clearly agree best; None where no shift stands out."""
    spreads: dict[int, int] = {}
    for shift in fits:
        first, last = max(0, -shift), min(len(own), len(reference) - shift)
        mine, theirs = own[first:last], reference[first + shift : last + shift]
        both = (mine >= 0) & (theirs >= 0)
        if np.count_nonzero(both) >= LEAST_OVERLAP:
            # Few steps can agree by chance: the fewer overlap, the better they must agree.
            few = min(len(own), len(reference)) / np.count_nonzero(both)
            spreads[shift] = round(few * fit_clock(theirs[both], mine[both]).spread_ns)
    order = sorted(spreads, key=lambda shift: spreads[shift])
    if not order:
        return None
    if len(order) == 1 and len(fits) == 1:
        return order[0]
    if len(order) > 1 and SHARPER * spreads[order[0]] <= spreads[order[1]]:
        return order[0]
    return None
