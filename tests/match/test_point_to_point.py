"""Sends and receives that name no peers: each paired with its other side, or left alone."""

import polars as pl
import pytest

from rankscope.match.point_to_point import pair_peers, paired_by_ends
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.model.schema import COLLECTIVES
from tests.frames import filled
from tests.match.worlds import instances_of, plain
from tests.support import MakeStored, mostly_nightly

STAGES = 4


@pytest.mark.slow
@pytest.mark.parametrize("roles", mostly_nightly([None, "pp=4,dp=4", "PP=4, dp=4"]))
def test_transfers_are_paired_with_the_right_neighbour(
    stored: MakeStored, roles: str | None
) -> None:
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


UP, DOWN = moments(12, 9_000_000, 400_000), moments(12, 9_000_000, -700_000)


def of_one_clock(*, ahead: int = 0) -> list[pl.DataFrame]:
    """Two ranks send to each other on two streams each; the clock of rank 1 is ahead."""
    return [
        transfers(0, "stream 20", UP),
        transfers(0, "stream 24", DOWN),
        transfers(1, "stream 31", [end + ahead for end in DOWN]),
        transfers(1, "stream 37", [end + ahead + 900 for end in UP]),
    ]


@pytest.mark.parametrize("ahead", [0, -4_000_000_000])
def test_streams_that_end_together_are_the_two_sides_of_transfers(ahead: int) -> None:
    output = paired_by_ends(pl.concat(of_one_clock(ahead=ahead)))
    sides = output.group_by("group").agg(pl.col("communicator").unique().sort())
    assert sorted(sides["communicator"].to_list()) == [
        ["stream 20", "stream 37"], ["stream 24", "stream 31"],
    ]  # fmt: skip
    assert {*output["label"]} == {"ranks 0 and 1"}
    assert output["sender"].null_count() == output.height, "each waits for the other"


def test_who_leaves_before_the_other_comes_sends() -> None:
    """In every fourth transfer of 12 the receiver comes late."""
    late = [3_000_000 * (place % 4 == 3) for place in range(12)]
    one = transfers(0, "stream 20", UP)
    other = transfers(1, "stream 31", [end + more for end, more in zip(UP, late, strict=True)])
    output = paired_by_ends(pl.concat([one, other]))
    assert {*output["label"]} == {"rank 0 to 1"}
    assert {*output["sender"]} == {0}
    assert {*output["receiver"]} == {1}


def test_transfers_are_not_paired_by_ends_that_others_share() -> None:
    two = of_one_clock()
    third = transfers(2, "stream 20", [end + 7_000 for end in UP])
    assert paired_by_ends(pl.concat([*two, third])).is_empty(), "rank 2 may be the other side"
    alone = transfers(2, "stream 20", moments(12, 9_000_000, 150_000))
    assert paired_by_ends(pl.concat([*two, alone])).is_empty(), "its partner has no report"
    fewer = [part.head(4) for part in two]
    assert paired_by_ends(pl.concat(fewer)).is_empty(), "four ends may agree by chance"


def test_ranks_that_start_and_end_together_are_not_two_sides() -> None:
    """Two first stages in lockstep, or ranks of a tensor parallel group; no next stage has any."""
    sends = [end + 20_000 * (place % 3) for place, end in enumerate(UP)]
    first = [transfers(0, "stream 20", UP), transfers(1, "stream 20", sends)]
    assert paired_by_ends(pl.concat(first)).is_empty()
    starts = [end - 2_000_000 - 1_000_000 * (place % 3) for place, end in enumerate(UP)]
    waits = first[1].with_columns(start_ns=pl.Series(starts))
    assert paired_by_ends(pl.concat([first[0], waits])).height == 2 * len(UP)


@pytest.mark.parametrize("drift", [-1e-4, 1e-4])
def test_who_sends_is_known_from_clocks_that_drift(drift: float) -> None:
    """By 6 ms in a minute; the receiver waits for 20 to 22 ms, and comes late once or never."""
    ends = moments(240, 250_000_000, 400_000)
    for late, label in ((3_000_000, "rank 0 to 1"), (0, "ranks 0 and 1")):
        own = [end + late * (place == 4) for place, end in enumerate(ends)]
        waits = [0 if end not in ends else 20 + place % 3 for place, end in enumerate(own)]
        starts = [end - wait * 1_000_000 for end, wait in zip(own, waits, strict=True)]
        drifted = transfers(1, "stream 31", [round(end * (1 + drift)) for end in own])
        got = drifted.with_columns(start_ns=pl.Series([round(at * (1 + drift)) for at in starts]))
        output = paired_by_ends(pl.concat([transfers(0, "stream 20", ends), got]))
        assert {*output["label"]} == {label}
