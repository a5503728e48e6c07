"""Ranks by iterations: ordered, aggregated, on a scale that shows what matters."""

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.output.excess_scale import ExcessScale, scale_of
from rankscope.output.plots.grid import MOST_COLUMNS, MOST_ROWS, arrange, excesses, worst_cells
from tests.support import MS, MakeStored


def cells(values: np.ndarray, roles: list[str] | None = None) -> pl.DataFrame:
    """What `excesses` returns, from a matrix of ms."""
    ranks, iterations = values.shape
    return pl.DataFrame(
        {
            "rank": np.repeat(np.arange(ranks), iterations),
            "iteration": np.tile(np.arange(iterations), ranks),
            "role": np.repeat(roles or ["all"] * ranks, iterations),
            "host": [f"node{rank // 4}" for rank in range(ranks) for _ in range(iterations)],
            "compared": True,
            "excess": (values * MS).astype(np.int64).ravel(),
            "scale": np.full(ranks * iterations, 20 * MS),
            "flagged": (values > 5).ravel(),
            "cause": [None] * (ranks * iterations),
        },
        schema_overrides={"cause": pl.String},
    )


def test_a_thousand_ranks_keep_their_outliers() -> None:
    values = np.random.default_rng(0).normal(0, 0.2, (1024, 1000))
    values[700, 501] = 500.0
    values[30] = 8.0
    grid = arrange(cells(values))
    rows, columns = grid.values.shape
    assert rows <= MOST_ROWS
    assert columns <= MOST_COLUMNS
    assert grid.per_row * rows >= 1024
    assert grid.values[700 // grid.per_row, 501 // grid.per_column] == 500 * MS
    assert grid.flagged[700 // grid.per_row, 501 // grid.per_column]
    assert (grid.values[30 // grid.per_row] == 8 * MS).all()
    place = grid.scale.position(np.array([8.0, 240.0]) * MS)
    assert place[0] > 0.2, "a spike must not wash out a straggler"
    assert place[1] == pytest.approx(1), "and is clipped"


def test_blocks_hold_what_is_furthest_from_the_median_of_either_sign() -> None:
    values = np.zeros((MOST_ROWS + 1, 2))
    values[0], values[1] = (3.0, 1.0), (-7.0, -0.5)
    grid = arrange(cells(values))
    assert grid.per_row == 2
    assert grid.values[0].tolist() == [-7 * MS, 1 * MS]
    assert grid.ranks[:: grid.per_row][:3] == (0, 2, 4)


def test_noise_stays_pale_beside_stragglers_of_3_and_30_ms_but_shows_alone() -> None:
    noise = np.random.default_rng(1).normal(0, 0.5, (64, 40))
    assert arrange(cells(noise)).scale.limit < 4 * MS
    values = noise.copy()
    values[17] += 3.0
    values[42, [9, 20, 33]] += 30.0
    frame = cells(values)
    scale = scale_of(
        frame.with_columns(flagged=pl.col("rank").is_in([17, 42]) & (pl.col("excess") > MS))
    )
    small, large, quiet = scale.position(np.array([3.0, 30.0, 0.5]) * MS)
    assert small > 0.25
    assert large > 0.9
    assert quiet < 0.1


def test_ticks_are_round_and_apart() -> None:
    for linear, limit in ((7.09, 72), (3, 31), (8, 8.2), (0.4, 0.5), (2, 60)):
        scale = ExcessScale(linear * MS, limit * MS)
        ticks = scale.ticks(MS)
        assert ticks == sorted(ticks) == [-each for each in reversed(ticks)]
        assert 5 <= len(ticks) <= 7
        assert max(ticks) <= limit
        assert all(f"{abs(each):.0e}"[0] in "0125" for each in ticks)
        assert np.diff(scale.position(np.array(ticks) * MS)).min() > 0.08


def test_ranks_of_a_role_stand_together() -> None:
    grid = arrange(cells(np.zeros((8, 3)), roles=["first", "last"] * 4))
    assert grid.ranks == (0, 2, 4, 6, 1, 3, 5, 7)
    assert grid.roles == ("first",) * 4 + ("last",) * 4
    assert grid.hosts[:4] == ("node0", "node0", "node1", "node1")


def test_missing_ranks_have_empty_rows_unless_they_are_the_majority() -> None:
    frame = cells(np.ones((8, 3))).filter(~pl.col("rank").is_in([2, 5]))
    grid = arrange(frame, missing=(2, 5))
    assert grid.ranks == tuple(range(8))
    assert np.isnan(grid.values).all(axis=1).nonzero()[0].tolist() == [2, 5]
    few = frame.filter(pl.col("rank") < 2)
    assert arrange(few, missing=(2, 3, 4, 5, 6, 7)).ranks == (0, 1)


def test_iterations_that_nobody_has_are_gaps_where_they_are_few() -> None:
    frame = cells(np.ones((4, 9)))
    grid = arrange(frame.filter(pl.col("iteration") != 4))
    assert grid.iterations == tuple(range(9))
    assert np.isnan(grid.values[:, 4]).all()
    sparse = arrange(frame.with_columns(pl.col("iteration") * 100))
    assert sparse.iterations == tuple(range(0, 900, 100))
    assert not np.isnan(sparse.values).any()


def test_worst_cells_are_not_all_of_one_rank() -> None:
    values = np.zeros((4, 10))
    values[1], values[2, 6], values[3, 0] = 20.0, 9.0, 0.5
    worst = worst_cells(cells(values))
    assert worst["rank"].to_list() == [1, 1, 2], "0.5 ms of 20 ms does not matter"


@pytest.mark.slow
def test_excess_is_over_the_median_of_the_role(stored: MakeStored) -> None:
    analysis = stored("planted", 8, kind="periodic", where="load").analysis()
    role = pl.when(pl.col("rank") < 4).then(pl.lit("first")).otherwise(pl.lit("last"))
    table = analysis.rows(all_iterations=True).with_columns(role=role)
    analysis = replace(analysis, table=table)
    frame = excesses(analysis, "load")
    for (_, _), part in frame.group_by("role", "iteration"):
        middle = part["value"].sort()[(part.height - 1) // 2]
        assert (part["excess"] == part["value"] - middle).all()
    assert frame["iteration"].unique().sort().to_list() == [*analysis.selection.numbers]
