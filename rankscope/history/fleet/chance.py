"""How often chance alone makes hardware guilty that often. See METHOD.md#fleet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

CLOSE = 1e-9
"""Relative difference below which two probabilities are the same."""

LARGEST_P = 0.05
"""Probabilities above this are not corrected: they are no evidence for anything."""


def tails(piece: Index, probability: Floats, pieces: int, most: int) -> Floats:
    """The probability of each piece to be guilty in at least 0, 1, …, `most` + 1 runs.

    The number of guilty runs is a sum of independent draws with different probabilities. Its
    distribution is summed up run by run; the last count absorbs all larger ones, so that small
    tails are sums of small numbers and lose no digits.

    Args:
        piece: number of the piece, of each piece and run.
        probability: that chance makes the piece guilty in the run.
        pieces: how many there are.
        most: largest count that matters.

    Returns:
        shape (pieces, most + 2).
    """
    order = np.argsort(piece, kind="stable")
    piece, probability = piece[order], probability[order]
    place = np.arange(len(piece)) - np.searchsorted(piece, piece)
    counts = np.zeros((pieces, most + 2))
    counts[:, 0] = 1.0
    for step in range(int(place.max(initial=-1)) + 1):
        now = place == step
        who, hit = piece[now], probability[now][:, None]
        before = counts[who]
        after = before * (1 - hit)
        after[:, 1:] += before[:, :-1] * hit
        after[:, -1] += before[:, -1] * hit[:, 0]
        counts[who] = after
    return np.asarray(np.minimum(counts[:, ::-1].cumsum(axis=1)[:, ::-1], 1.0))


def corrected(tail: Floats, guilty: Index) -> Floats:
    """The probability that any piece of the fleet looks at least as bad as each piece does.

    It is bounded by the sum, over the pieces, of the largest probability that a piece can reach
    and that is not above the one in question. That is sharper than a factor for the number of
    pieces: many of them were in too few runs to look bad at all.

    Args:
        tail: what `tails` gave.
        guilty: number of guilty runs of each piece.
    """
    own = tail[np.arange(len(tail)), guilty]
    result = np.ones(len(tail))
    for limit in np.unique(own[own <= LARGEST_P]):
        reached = np.where(tail <= limit * (1 + CLOSE), tail, 0.0).max(axis=1)
        # A count beyond the last one may come closer to the limit than any that was computed.
        beyond = np.minimum(tail[:, -1], limit)
        result[own == limit] = min(1.0, float(np.maximum(reached, beyond).sum()))
    return result
