"""Own work that becomes less, between one border of a rank's phases and the next.

See METHOD.md#verdict.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.judge.replay_inputs import Floats, Numbers, Small
from rankscope.model.kinds import PHASES
from rankscope.model.metrics import column_of

PHASE_COLUMNS = frozenset(map(column_of, PHASES))

EACH = len(PHASE_COLUMNS) + 1
"""Borders of a window: its begin, and the end of each phase."""


def phases_in(windows: pl.DataFrame) -> list[str]:
    """The columns of the phases, in their order."""
    return [name for name in windows.columns if name in PHASE_COLUMNS]


class Less(NamedTuple):
    """The work that is taken out.

    `change`: to the work done by each border, at most 0. `slope`: to the work done from there to
    the rank's next border, per ns.
    """

    change: Floats
    slope: Floats


class Borders:
    """The own work that each rank has done by each border of its windows.

    Args:
        ranks: ascending.
        windows: rank, own_begin and `<phase>_ns` in the order of the work, by rank and iteration.
    """

    def __init__(self, ranks: Numbers, windows: pl.DataFrame) -> None:
        begin = windows["own_begin"].to_numpy()[:, None]
        lengths = windows.select(phases_in(windows)).fill_null(0).to_numpy()
        borders = np.empty((len(begin), EACH))
        borders[:, :1], borders[:, 1:] = begin, begin + np.cumsum(lengths, axis=1)
        self._work = borders.reshape(-1)
        first = np.append(windows["rank"].search_sorted(ranks).to_numpy(), len(begin))
        self._windows = [slice(low, high) for low, high in pairwise(first.tolist())]
        for each in self._windows:
            own = self._work[each.start * EACH : each.stop * EACH]
            np.maximum.accumulate(own, out=own)
        lasts = np.diff(self._work, append=0.0)
        lasts[first[1:] * EACH - 1] = 0.0  # nothing follows
        self._followed = np.flatnonzero(lasts > 0)
        self._lasts = lasts[self._followed]

    def before(self, rank: int, work: Floats) -> Small:
        """The last border that a rank has reached when it has done some work, or its first.

        Args:
            rank: its place.
            work: ns.
        """
        low, high = (self._windows[rank].start * EACH, self._windows[rank].stop * EACH)
        place = np.searchsorted(self._work[low:high], work, side="right") - 1
        return np.asarray(np.maximum(place, 0) + low, dtype=np.int32)

    def less(self, saved: Floats) -> Less | None:
        """The work that `saved` (ns by window and phase) takes out; None if that is nothing."""
        if not saved.any():
            return None
        cuts = np.zeros((len(saved), EACH))
        np.cumsum(saved, axis=1, out=cuts[:, 1:])
        for each in self._windows:
            own = cuts[each]
            own[1:] += np.cumsum(own[:, -1])[:-1, None]
        change = (self._work - cuts.reshape(-1)) - self._work
        slope = np.zeros_like(change)
        at = self._followed
        slope[at] = (change[at + 1] - change[at]) / self._lasts
        return Less(change, slope)

    def moved(self, work: Floats, border: Small, less: Less | None) -> Floats:
        """Own work as it would be, interpolated between borders.

        Args:
            work: as it was, ns.
            border: `before` of it.
            less: what is taken out of it.
        """
        if less is None:
            return work
        beyond = np.maximum(work - self._work.take(border), 0.0)
        return np.asarray(work + (less.slope.take(border) * beyond + less.change.take(border)))
