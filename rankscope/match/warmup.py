"""The first iterations of a run, which take longer than the others. See METHOD.md#iterations."""

import numpy as np
import polars as pl

from rankscope.model.intervals import Floats
from rankscope.util.robust import MAD_FLOOR

ROLLING = 5
"""Iterations of which the median is taken."""

SETTLED_MADS = 5.0
"""Iteration times have settled if their median exceeds the second half's by at most these MADs."""

WARMUP_SHARE, WARMUP_LEAST = 0.1, 3
"""Most iterations that warm-up takes: this share of the run, but as many in any case."""

WARMUP_LONGER = 1.5
"""Steps are warm-up if they, or the work of their median rank, take this many times as long as any
in the second half."""


def warmup_of(common: list[int], lengths: pl.DataFrame) -> tuple[frozenset[int], bool]:
    """Iterations that are warm-up, and whether the run then settled.

    Iteration 0 is, and so are those before the first in which the time or the work of the median
    rank has settled (`SETTLED_MADS`), and neither is much longer than it ever is in the second half
    (`WARMUP_LONGER`). Slow ranks add no work to the median one, which is the lower one.
    """
    times = (
        lengths.filter(pl.col("iteration").is_in(common))
        .group_by("iteration")
        .agg(pl.median("iteration_ns"), pl.col("work_ns").quantile(0.5, "lower"))
        .sort("iteration")
        .drop_nulls("iteration_ns")
    )
    if len(common) == 1:  # a capture taken as a whole, say: there is nothing else to keep
        return frozenset(), True
    always = frozenset(common[:1]) & {0}
    numbers = times["iteration"].to_list()
    if not numbers:
        return always, True
    time, work = (times[name].to_numpy() for name in ("iteration_ns", "work_ns"))
    second_half = slice(len(numbers) // 2, None)
    # NaN, so never, where work is unknown
    most_time, most_work = (WARMUP_LONGER * float(each[second_half].max()) for each in (time, work))

    def settled(values: Floats, first: int) -> bool:
        level = float(np.median(values[second_half]))
        mad = max(float(np.median(np.abs(values[second_half] - level))), MAD_FLOOR * level)
        return float(np.median(values[first : first + ROLLING])) - level <= SETTLED_MADS * mad

    limit = max(WARMUP_LEAST, int(WARMUP_SHARE * len(numbers)))
    for first in range(len(always), min(limit, len(numbers) - 1) + 1):
        is_long = float(np.median(time[first : first + ROLLING])) > most_time
        is_long |= bool(always) and work[first] > most_work
        if not is_long and (settled(time, first) or settled(work, first)):
            return always | {*numbers[:first]}, True
    return always, False
