"""Numbers as small graphics made of characters: bars and sparklines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BAR = 8
"""Length of the longest bar in characters."""

MOST_POINTS = 20
"""Most characters of a sparkline; of more points, each character shows the highest of a chunk."""

EIGHTHS = " ▏▎▍▌▋▊▉█"
"""Characters that are filled by 0 to 8 eighths of their width."""

LEVELS = "▁▂▃▄▅▆▇█"
"""Characters that are filled by 1 to 8 eighths of their height."""


def bars(values: npt.NDArray[np.float64]) -> list[str]:
    """A bar per value; the highest is `BAR` characters long.

    Args:
        values: of any unit; NaN (unknown) and negative values have an empty bar.
    """
    known = np.clip(np.nan_to_num(values), 0, None)
    most = known.max(initial=0)
    eighths = np.round(known / most * BAR * 8).astype(int) if most else np.zeros(len(known), int)
    return ["█" * (each // 8) + EIGHTHS[each % 8].strip() for each in eighths.tolist()]


def sparklines(values: npt.NDArray[np.float64]) -> list[str]:
    """A sparkline per row, on one scale from the lowest to the highest value of all rows.

    Args:
        values: (rows, points), of any unit; NaN (unknown) is blank.
    """
    rows, points = values.shape
    if not np.isfinite(values).any():
        return [""] * rows
    if points > MOST_POINTS:
        edges = np.linspace(0, points, MOST_POINTS + 1)[:-1].astype(int)
        known = np.where(np.isfinite(values), values, -np.inf)
        highest = np.maximum.reduceat(known, edges, axis=1)
        values = np.where(np.isinf(highest), np.nan, highest)
    low, high = np.nanmin(values), np.nanmax(values)
    steps = (values - low) / ((high - low) or 1) * (len(LEVELS) - 1)
    return [
        "".join(" " if np.isnan(step) else LEVELS[round(step)] for step in row)
        for row in steps.tolist()
    ]
