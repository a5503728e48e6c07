"""Sends and receives that name no peers: each paired with its other side, or left alone."""

from random import Random

import numpy as np
import polars as pl
import pytest

from rankscope.match.transfer_ends import paired_by_ends
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


def test_neighbours_that_are_given_need_not_start_apart() -> None:
    """Two first stages in lockstep, and their next ones; all of them end together."""
    streams = [transfers(rank, "stream 20", [end + 900 * rank for end in UP]) for rank in range(4)]
    assert paired_by_ends(pl.concat(streams)).is_empty()
    output = paired_by_ends(pl.concat(streams), [(0, 2), (1, 3)])
    assert {*output["label"]} == {"ranks 0 and 2", "ranks 1 and 3"}
    assert paired_by_ends(pl.concat(streams), [(0, 2), (1, 2)]).is_empty(), "3 has no neighbour"


def exchanging(groups: list[list[int]], *, in_step: bool = False) -> pl.DataFrame:
    """All ranks of a group leave together; who is ready sooner waits for the others."""
    draw = np.random.default_rng(3)
    parts = []
    for number, ranks in enumerate(groups):
        ready = draw.integers(0, 400_000, (1 if in_step else len(ranks), 12))
        for place, rank in enumerate(ranks):
            ends = [end + 150_000 * number * (n % 3) for n, end in enumerate(UP)]
            part = transfers(rank, "stream 20", [end + 300 * place for end in ends])
            waits = ready[0 if in_step else place]
            parts.append(part.with_columns(start_ns=pl.col("start_ns") - pl.Series(waits)))
    return pl.concat(parts)


def test_three_or_more_that_end_together_send_all_to_all() -> None:
    """NCCL records an all-to-all as sends; so do reports without its ranges."""
    output = paired_by_ends(exchanging([[0, 1, 2], [3, 4, 5]]))
    assert {*output["operation"]} == {"all_to_all"}
    members = output.group_by("group").agg(pl.col("rank").unique().sort())["rank"].to_list()
    assert sorted(members) == [[0, 1, 2], [3, 4, 5]]
    assert output["members"].unique().to_list() == [3]
    assert output["sender"].null_count() == output.height
    assert {*output["label"]} == {"exchange*4"}


def test_who_ends_together_for_another_reason_sends_not_all_to_all() -> None:
    assert paired_by_ends(exchanging([[0, 1, 2], [3, 4]])).is_empty(), "a member may lack"
    assert paired_by_ends(exchanging([[0, 1, 2], [3, 4, 5]], in_step=True)).is_empty()


def of_one_stream(*, late: int = 0, wobble: int = 900_000) -> list[pl.DataFrame]:
    """Two pipelines of four stages, each with one stream for both neighbours; 4 batches a step.

    Rank `stage * 2 + pipeline`; each clock has an offset of its own. `late`: of the first batch's
    way between the first stages, on the side of the second one. `wobble`: of the pace, up to.
    """
    random = Random(1)
    ends: dict[int, list[tuple[int, int, int]]] = {}
    for step in range(6):
        for pipeline in (0, 1):
            for batch in range(8):  # down, then back up
                for hop in range(3):
                    edge = hop if batch < 4 else 2 - hop
                    end = (step * 80 + batch * 8 + hop * 2) * 1_000_000 + random.randrange(wobble)
                    for stage in (edge, edge + 1):
                        more = late * (edge == 0 and batch == 0 and stage == 1)
                        wait = random.randrange(100_000, 900_000)
                        ends.setdefault(stage * 2 + pipeline, []).append((end + more, step, wait))
    streams = []
    for rank, calls in sorted(ends.items()):
        at, steps, waits = (list(each) for each in zip(*sorted(calls), strict=True))
        frame = transfers(rank, "stream 20", [end + rank * 5_000_000_000 for end in at])
        starts = frame["end_ns"] - pl.Series(waits)
        streams.append(frame.with_columns(iteration=pl.Series(steps), start_ns=starts))
    return streams


def test_a_stage_may_send_to_both_neighbours_on_one_stream() -> None:
    output = paired_by_ends(pl.concat(of_one_stream()))
    labels = {f"ranks {rank} and {rank + 2}" for rank in range(6)}
    assert {*output["label"]} == labels
    assert output.height == 6 * 2 * 6 * 8
    clock = output.with_columns(end=pl.col("end_ns") - pl.col("rank") * 5_000_000_000)
    instance = clock.group_by("group", "iteration", "ordinal")
    same = instance.agg(pl.len(), pl.col("rank").n_unique(), apart=pl.max("end") - pl.min("end"))
    assert {*same.select("len", "rank", "apart").rows()} == {(2, 2, 0)}


def test_stages_at_the_same_pace_are_no_partners() -> None:
    """The first and the last stage of the only pipeline send equally often; so do the others."""
    output = paired_by_ends(pl.concat(of_one_stream(wobble=30_000)[::2]))
    assert {*output["label"]} == {"ranks 0 and 2", "ranks 2 and 4", "ranks 4 and 6"}


@pytest.mark.parametrize(
    "streams",
    [
        of_one_stream(late=1_000_000),
        of_one_stream()[:6],
        [part.slice(rank == 2) for rank, part in enumerate(of_one_stream())],
    ],
    ids=["ends of a batch that disagree", "a stage without report", "a call that is missing"],
)
def test_what_does_not_fit_whole_is_not_paired_on_one_stream(streams: list[pl.DataFrame]) -> None:
    assert paired_by_ends(pl.concat(streams)).is_empty()


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
