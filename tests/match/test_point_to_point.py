"""Sends and receives of pipeline neighbours: each paired with its other side, or left alone."""

import polars as pl
import pytest

from rankscope.match.point_to_point import pair_peers
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.model.schema import COLLECTIVES
from tests.frames import filled
from tests.match.worlds import instances_of, plain
from tests.support import MakeStored, mostly_nightly, replay_of

STAGES = 4


@pytest.mark.slow
@pytest.mark.parametrize("roles", mostly_nightly(["pp=4,dp=4", "PP=4, dp=4"]))
def test_transfers_are_paired_with_the_right_neighbour(stored: MakeStored, roles: str) -> None:
    job = stored("pipeline", ranks=16, iterations=12)
    assert job.truth is not None
    matched = job.matched(roles=roles)
    output = plain(instances_of(matched)).filter(operation=POINT_TO_POINT)
    truth = pl.DataFrame(job.truth.collectives, infer_schema_length=None)
    truth = truth.filter(pl.col("communicator").str.starts_with("pp"))
    true = truth.select("rank", "end_ns", "wait_ns", true="communicator", at="ordinal")
    both = output.join(true, on=["rank", "end_ns"])
    assert both.height == output.height > 0
    per = both.group_by("instance").agg(
        pl.col("rank").sort(),
        pl.col("true").n_unique(),
        pl.col("at").n_unique(),
        size=pl.len(),
    )
    assert {*per["true"]} == {*per["at"]} == {1}, "an instance is one transfer"
    assert {*per["size"]} == {2}
    neighbours = {tuple(each) for each in per["rank"].to_list()}
    assert neighbours == {(low, low + 1) for low in range(16) if low % STAGES < STAGES - 1}
    first, last = both["iteration"].min(), both["iteration"].max()
    assert output.height == truth.filter(pl.col("iteration").is_between(first, last)).height


@pytest.mark.slow
def test_nothing_is_paired_unless_roles_tell_who_neighbours_are(
    stored: MakeStored,
) -> None:
    job = stored("pipeline", ranks=8)
    analysis = job.analysis()
    assert instances_of(job.matched()).filter(operation=POINT_TO_POINT).is_empty()
    assert replay_of(analysis) is None, "transfers that are not understood are not played again"


def transfers(rank: int, stream: str, ends: list[int]) -> pl.DataFrame:
    frame = pl.DataFrame({"end_ns": ends, "iteration": [place // 4 for place in range(len(ends))]})
    frame = frame.with_columns(
        rank=rank, place=pl.lit("device"), communicator=pl.lit(stream),
        operation=pl.lit(POINT_TO_POINT), start_ns=pl.col("end_ns") - 500_000,
        arrival_ns=pl.col("end_ns") - 500_000,
    )  # fmt: skip
    return filled(frame, COLLECTIVES)


def moments(count: int, step: int, wobble: int) -> list[int]:
    return [place * step + wobble * ((place * 7) % 5) for place in range(count)]


def test_of_several_streams_those_that_end_together_are_one() -> None:
    up, down = moments(12, 9_000_000, 400_000), moments(12, 9_000_000, -700_000)
    frame = pl.concat(
        [
            transfers(0, "stream 20", up),
            transfers(0, "stream 24", down),
            transfers(1, "stream 31", [end - 4_000_000_000 for end in down]),
            transfers(1, "stream 37", [end - 4_000_000_000 + 3_000 for end in up]),
        ]
    )
    output = pair_peers(frame, [(0, 1)])
    assert {*output["communicator"]} in ({"stream 20", "stream 37"}, {"stream 24", "stream 31"})
    assert {*output["group"]} == {0}
    assert {*output["members"]} == {2}


def test_streams_that_do_not_end_together_are_left_alone() -> None:
    one = transfers(0, "stream 20", moments(12, 9_000_000, 400_000))
    other = transfers(1, "stream 31", moments(12, 9_000_000, -700_000))
    assert pair_peers(pl.concat([one, other]), [(0, 1)]).is_empty()
    fewer = transfers(1, "stream 31", moments(11, 9_000_000, 400_000))
    assert pair_peers(pl.concat([one, fewer]), [(0, 1)]).is_empty(), "uneven numbers"
    same = transfers(2, "stream 31", moments(12, 9_000_000, 400_000))
    assert pair_peers(pl.concat([one, same]), [(0, 1)]).is_empty(), "another rank is no neighbour"
