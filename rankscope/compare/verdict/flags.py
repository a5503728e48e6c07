"""Which rank stands out in which iteration, and in which phase. See METHOD.md#verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from rankscope.compare.verdict.candidates import Candidate
from rankscope.compare.verdict.excess import Excess
from rankscope.compare.verdict.levels import LEAST_EVENT, Levels


def flagged(excess: Excess, levels: Levels, slow: Sequence[Candidate]) -> pl.DataFrame:
    """Every rank and iteration with its excess, and whether it stands out.

    A rank stands out where it has an event, or where its level sets it apart from its role.

    Args:
        excess: of all ranks.
        levels: what is usual for each.
        slow: sets of ranks that are usually slow.

    Returns:
        rank, role, iteration, excess_ns (null where unknown), length_ns (the role's median
        iteration), flagged, cause (phase with the largest excess, where flagged),
        cause_excess_ns and `<phase>_excess`.
    """
    known = ~np.isnan(excess.total)
    apart = levels.events > 0
    for candidate in slow:
        apart |= candidate.where & (levels.usual > LEAST_EVENT * excess.unit)
    row, column = np.nonzero(known)
    by_phase = excess.by_phase[row, column]
    filled = np.where(np.isnan(by_phase), -np.inf, by_phase)
    largest = filled.argmax(axis=1)
    most = filled[np.arange(len(row)), largest]
    names = pl.Series(excess.phases)
    # where no phase is known all time is `other`, and that causes nothing
    has_cause = np.isfinite(most) & (most > 0)
    marked = apart[row, column] & (excess.total[row, column] > 0)
    frame = pl.DataFrame(
        {
            "rank": excess.ranks[row],
            "role": pl.Series(excess.role_names).gather(excess.roles[row]),
            "iteration": excess.numbers[column],
            "excess_ns": excess.total[row, column].round().astype(np.int64),
            "length_ns": np.nan_to_num(excess.length[row, column]).round().astype(np.int64),
            "flagged": marked,
            "cause": names.gather(largest),
            "cause_excess_ns": np.where(has_cause, most, 0.0).round().astype(np.int64),
            **{
                f"{phase}_excess": pl.Series(by_phase[:, place])
                .fill_nan(None)
                .round()
                .cast(pl.Int64)
                for place, phase in enumerate(excess.phases)
            },
        }
    )
    told = pl.col("flagged") & pl.Series(has_cause)
    return frame.with_columns(
        cause=pl.when(told).then("cause"), cause_excess_ns=pl.when(told).then("cause_excess_ns")
    )
