"""Own work that becomes less, against numpy's interpolation."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankscope.judge.replay import EACH, Borders
from rankscope.model.kinds import PHASES
from rankscope.model.metrics import columns_of

WINDOWS = {3: 4, 7: 1, 9: 6}
"""rank → how many windows it has."""


@pytest.mark.parametrize("overlap", [0, 40])
def test_work_is_interpolated_from_border_to_border(overlap: int) -> None:
    """`overlap`: ns by which a window may begin before the one before it has ended."""
    rng = np.random.default_rng(overlap)
    count = sum(WINDOWS.values())
    lengths = rng.integers(0, 3, (count, len(PHASES))) * 50  # phases may be empty
    gaps = rng.integers(-overlap, 60, count)
    begins = np.cumsum(lengths.sum(axis=1) + gaps) - lengths.sum(axis=1)
    windows = pl.DataFrame(
        {
            "rank": [rank for rank, often in WINDOWS.items() for _ in range(often)],
            "own_begin": begins,
            **dict(zip(columns_of(PHASES), lengths.T, strict=True)),
        }
    )
    borders = Borders(np.array([*WINDOWS]), windows)
    saved = lengths * rng.uniform(0, 1, lengths.shape)
    saved[windows["rank"].to_numpy() == 7] = 0.0  # of this rank nothing is taken out
    less = borders.less(saved)
    assert less is not None
    for place, rank in enumerate(WINDOWS):
        mine = windows["rank"].to_numpy() == rank
        ends = begins[mine, None] + np.cumsum(lengths[mine], axis=1)
        was = np.maximum.accumulate(np.hstack((begins[mine, None], ends)).ravel())
        cuts = np.zeros((int(mine.sum()), EACH))
        cuts[:, 1:] = np.cumsum(saved[mine], axis=1)
        cuts[1:] += np.cumsum(cuts[:, -1])[:-1, None]
        work = np.sort(np.concatenate((was, rng.uniform(was[0] - 99, was[-1] + 99, 500))))
        moved = borders.moved(work, borders.before(place, work), less)
        np.testing.assert_allclose(moved, work - np.interp(work, was, cuts.ravel()), atol=1e-6)
        assert (moved == work).all() == (rank == 7)


def test_nothing_taken_out_changes_nothing() -> None:
    windows = pl.DataFrame(
        {"rank": [0], "own_begin": [5]} | {name: [10] for name in columns_of(PHASES)}
    )
    borders = Borders(np.array([0]), windows)
    assert borders.less(np.zeros((1, len(PHASES)))) is None
    work = np.array([1.0, 7.0, 99.0])
    assert borders.moved(work, borders.before(0, work), None) is work
