"""Calls laid out by instance: those that all members make, in a matrix with a row per rank."""

import numpy as np
import polars as pl
import pytest

from rankscope.match.calls import INSTANCE, OWN, Calls
from rankscope.match.communicators import STREAM
from rankscope.model.schema import COLLECTIVES
from tests.frames import filled

RANKS = (0, 4, 8191)


@pytest.mark.parametrize("steps", [[0, 1, 2], [-5, 0, 7], [3, 2**31 + 1, 9 * 10**17]])
@pytest.mark.parametrize("missing", [0, 40])
def test_calls_are_laid_out_by_instance(steps: list[int], missing: int) -> None:
    draw = np.random.default_rng(3)
    every = pl.DataFrame(
        {
            "communicator": [["stream 7", "stream 13"]],
            "operation": [["barrier", "all_reduce"]],
            "iteration": [steps],
            "ordinal": [[0, 1, 2]],
            "rank": [RANKS],
        }
    )
    for name in every.columns:
        every = every.explode(name)
    every = filled(every.with_columns(place=pl.lit("device")), COLLECTIVES)
    every = every.with_columns(
        pl.Series(name, draw.integers(0, 10**15, every.height))
        for name in ("arrival_ns", "start_ns", "end_ns")
    ).with_columns(gradient=pl.Series(draw.integers(0, 2, every.height) == 1))
    calls = every.sample(every.height - missing, shuffle=True, seed=1)
    gathered = Calls([])
    for ranks in (RANKS[:2], RANKS[2:]):
        gathered.add(calls.filter(pl.col("rank").is_in(ranks)))
    streams = gathered.streams().with_columns(
        group=(pl.col("communicator") == "stream 7").cast(pl.Int64)
    )
    groups = streams.group_by("group").agg(pl.col("stream").sort_by("rank")).sort("group")
    rows, shared, unmatched, lost, lacking = gathered.laid_out(
        [(group, len(RANKS), each) for group, each in groups.iter_rows()]
    )

    truth = calls.join(
        streams.select(*STREAM, "group").cast({name: COLLECTIVES[name] for name in STREAM}),
        on=STREAM,
    ).with_columns(fits=pl.len().over(INSTANCE) == len(RANKS))
    fitting = truth.filter("fits")
    assert shared.cast({"operation": pl.String}).rows() == (
        fitting.select(INSTANCE).unique().sort(INSTANCE).rows()
    )
    expected = fitting.sort("group", "rank", *INSTANCE[1:])
    own = [name for name in OWN if name != "bytes"]
    assert rows.select(own).rows() == expected.select(own).rows()
    assert shared[rows["instance"]].rows() == expected.select(INSTANCE).rows()
    left = truth.filter(~pl.col("fits")).group_by("rank", "group", "operation").agg(count=pl.len())
    assert left.is_empty() == (missing == 0)
    assert {*unmatched.drop("reason").rows()} == {*left.rows()}
    lasted = truth.filter(~pl.col("fits")).select(pl.col("end_ns") - pl.col("arrival_ns"))
    assert lost["lasted_ns"].sum() == lasted.to_series().sum()
    assert {*unmatched["reason"]} <= {"some members lack it"}
    called = ["communicator", "operation", "iteration"]
    each = every.select(*called, "rank").unique()
    counts = each.join(calls.group_by(*called, "rank").len(), on=[*called, "rank"], how="left")
    counts = counts.with_columns(pl.col("len").fill_null(0))
    fewer = counts.filter(pl.col("len") < pl.col("len").max().over(called))
    assert {*lacking.rows()} == {*fewer.select("rank", "iteration").rows()}
