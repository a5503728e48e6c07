"""Which ranks stand out in which iterations. See METHOD.md#verdict."""

import numpy as np
import polars as pl

from rankscope.judge.claims import Story, event_of
from rankscope.judge.excess import Excess
from rankscope.model.kinds import Phase


def flagged(excess: Excess, story: Story) -> pl.DataFrame:
    """Every rank and iteration with its excess, and whether it stands out.

    A rank stands out where it has an event, or is slow by the story of the run.

    Args:
        excess: of all ranks, in some iterations.
        story: of the whole run.

    Returns:
        rank, iteration, excess_ns, flagged, cause (phase with the largest excess, where flagged);
        a row where the excess is known.
    """
    stands_out = excess.share > event_of(story.noise)
    for each in story.slow:
        stands_out |= each.cells(excess)
    stands_out &= excess.total > 0
    at = np.nonzero(stands_out)
    by_phase = np.nan_to_num(excess.by_phase[at])
    # `other` holds what is unknown, as loading in a capture's first iteration, or all time where no
    # phase is known: there it causes nothing
    unknown = np.isnan(excess.spent)
    hidden = (unknown & ~unknown.all(axis=1, keepdims=True))[at].any(axis=1)
    largest, has_cause = by_phase.argmax(axis=1), by_phase.max(axis=1) > 0
    has_cause &= ~hidden | (np.array(excess.phases)[largest] != Phase.OTHER)
    cause = np.full(excess.total.shape, len(excess.phases))
    cause[at] = np.where(has_cause, largest, len(excess.phases))
    known = ~np.isnan(excess.total)
    row, column = np.nonzero(known)
    return pl.DataFrame(
        {
            "rank": excess.ranks[row],
            "iteration": excess.numbers[column],
            "excess_ns": excess.total[known].round().astype(np.int64),
            "flagged": stands_out[known],
            "cause": pl.Series([*excess.phases, None]).gather(cause[known]),
        }
    )
