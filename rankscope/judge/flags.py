"""Which rank stands out in which iteration, and in which phase. See METHOD.md#verdict."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.judge.cells import places_of, where_of
from rankscope.judge.excess import Excess
from rankscope.judge.story import Story


def flagged(excess: Excess, story: Story) -> pl.DataFrame:
    """Every rank and iteration with its excess, and whether it stands out.

    A rank stands out where it has an event, or is slow by the story of the run.

    Args:
        excess: of all ranks, in some iterations.
        story: of the whole run.

    Returns:
        rank, role, iteration, excess_ns (null where unknown), length_ns (the role's median
        iteration), flagged, cause (phase with the largest excess, where flagged),
        cause_excess_ns and `<phase>_excess`.
    """
    known = ~np.isnan(excess.total)
    apart = np.nan_to_num(excess.share) > story.event
    for each in story.slow:
        apart |= where_of(excess, places_of(excess, each.ranks), each.pattern.iterations)
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
    shown = pl.col("flagged") & pl.Series(has_cause)
    return frame.with_columns(
        cause=pl.when(shown).then("cause"), cause_excess_ns=pl.when(shown).then("cause_excess_ns")
    )
