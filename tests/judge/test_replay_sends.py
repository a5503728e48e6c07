"""Sends and receives in a replay, made by hand and from a pipeline whose time is known."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import rankscope
from rankscope.judge.replay import Healing
from rankscope.judge.replay_sends import with_sends
from rankscope.match.clocks import Aligner
from rankscope.match.records import ClockFit, Clocks
from rankscope.model.results import Verdict
from tests.judge.test_replay import US, less_work, replay
from tests.pipeline_job import Pipeline, step_ends, write
from tests.support import mostly_slow

Side = tuple[int, int, int, int]
"""rank, instance, and when its kernel begins and ends."""


def sides(*rows: Side, ahead: int = 0) -> list[tuple[int, bool]]:
    """End and `eager` of each side; instance 0 goes from rank 0 to 1, 1 back, 2 from rank 2 to 1.

    `ahead`: of the clock of rank 1, by which its times are given.
    """
    names = ("rank", "instance", "arrival_ns", "end_ns")
    calls = pl.DataFrame(dict(zip(names, zip(*rows, strict=True), strict=True)))
    clocks = Clocks(
        {rank: ClockFit(-ahead * (rank == 1), 0.0, 0) for rank in range(3)}, 0, "collectives"
    )
    senders = {0: 0, 1: 1, 2: 2}
    sent = with_sends(calls, calls["instance"], senders, Aligner(clocks, {}))
    return sent.select("end_ns", "eager").rows()


def test_a_send_waits_only_if_it_ends_after_its_receiver_came() -> None:
    assert sides((0, 0, 10, 20), (1, 0, 30, 35)) == [(20, True), (35, False)]
    assert sides((0, 0, 10, 32), (1, 0, 30, 35)) == [(32, False), (35, False)]
    assert sides((0, 0, 10, 20), (1, 0, 115, 135), ahead=100) == [(20, False), (135, False)]
    assert sides((0, 0, 40, 42), (1, 0, 30, 45)) == [(42, False), (45, False)]
    beside = [(1, 2, 10, 50), (2, 2, 20, 22)]  # a receive of another rank at the same time
    assert sides((0, 0, 10, 50), (1, 0, 30, 55), *beside)[0] == (50, False)


def test_a_send_that_shares_its_kernel_with_a_receive_goes_at_once() -> None:
    assert sides((0, 0, 10, 50), (0, 1, 10, 50), (1, 0, 30, 45), (1, 1, 40, 48)) == [
        (10, True), (50, False), (45, False), (48, False),
    ]  # fmt: skip


def test_of_two_receives_in_a_kernel_one_ends_sooner() -> None:
    """Its sender came 15 before the other's; it ends no sooner than the kernel begins."""
    kernel = [(1, 0, 10, 50), (1, 2, 10, 50)]
    assert sides(*kernel, (0, 0, 25, 26), (2, 2, 40, 41))[:2] == [(35, False), (50, False)]
    assert sides(*kernel, (0, 0, 5, 6), (2, 2, 60, 61))[:2] == [(10, False), (50, False)]


def test_who_receives_waits_and_who_sends_does_not() -> None:
    calls = [(0, 0, 0, 100, 110), (1, 0, 0, 20, 120)]
    played = replay(calls, {0: 200, 1: 200}, {1: (20, 120)}, (0,))
    sooner = 50 * 100 / 200  # of all that rank 0 does
    assert played.gains_ns([less_work(played, 0, 50)], (0,)) == [
        pytest.approx((50 + sooner) / 2 * US, rel=1e-3)
    ]
    calls = [(0, 0, 0, 20, 30), (1, 0, 0, 100, 120)]
    played = replay(calls, {0: 200, 1: 200}, {1: (100, 120)}, (0,), eager=[(0, 0)])
    was, now = played.times_ns([Healing(), less_work(played, 1, 50)], (0,))
    assert was.mean - now.mean == pytest.approx(50 / 2 * US), "rank 0 was not held up"
    assert played.unsure_ns == 10 / 2 * US, "the send may wait for buffers"


def test_ranks_may_send_before_they_receive() -> None:
    """Each sends to the other first: no order of the two holds for both of them."""
    calls = [(0, 0, 0, 50, 55), (0, 1, 1, 56, 110), (1, 1, 1, 100, 105), (1, 0, 0, 106, 115)]
    blocked = {0: (56, 110), 1: (106, 115)}
    played = replay(calls, {0: 200, 1: 200}, blocked, (0, 1), eager=[(0, 0), (1, 1)])
    assert len(played._steps) == 1
    was, now = played.times_ns([Healing(), less_work(played, 1, 191)], (0,))
    assert was.mean == pytest.approx(200 * US)
    ends = (56 + 10 + 200 - 110, 50 + 9)  # rank 1 still waits for rank 0, which no more for it
    assert now.mean == pytest.approx(sum(ends) / 2 * US, rel=1e-3)


def test_what_follows_a_send_may_be_over_before_it() -> None:
    calls = [(0, 0, 0, 50, 112), (0, 1, 1, 56, 110), (1, 1, 1, 100, 120), (1, 0, 0, 106, 115)]
    played = replay(calls, {0: 200, 1: 200}, None, (0, 1), eager=[(0, 0), (1, 1)])
    assert len(played._steps) == 1


def test_a_send_that_goes_alone_ends_no_wait() -> None:
    """Rank 1 waits for rank 0, and what it sends to rank 2 meanwhile ends last."""
    calls = [(0, 0, 0, 40, 50), (1, 0, 0, 10, 50), (1, 1, 1, 45, 52), (2, 1, 1, 100, 110)]
    played = replay(calls, dict.fromkeys(range(3), 200), {1: (10, 52)}, (0, 1), eager=[(1, 1)])
    was, now = played.times_ns([Healing(), less_work(played, 0, 100)], (0,))
    assert was.mean - now.mean == pytest.approx((100 + 20) / 3 * US)


def test_a_rank_has_a_stream_for_each_of_its_own_communicators_only() -> None:
    calls = [(0, 0, 0, 10, 20), (1, 0, 0, 10, 20), (1, 1, 1, 30, 40), (2, 1, 1, 30, 40)]
    played = replay(calls, dict.fromkeys(range(3), 50), None, (0, 1))
    assert played._rooted is not None
    assert played._rooted.count == 4


def test_ranks_that_wait_for_each_other_by_turns_are_played_in_order() -> None:
    """Each answers what it receives; rank 1 begins two calls that rank 0 takes the other way."""
    calls = [
        (rank, way, 2 * turn + way, 20 * turn + 10 * way, 20 * turn + 10 * way + 9 - (rank == way))
        for turn in range(20)
        for way in (0, 1)
        for rank in (0, 1)
    ]
    eager = [(way, 2 * turn + way) for turn in range(20) for way in (0, 1)]
    crossed = [
        (rank, 2, 40 + which, at, at + 5)
        for rank, order in enumerate(((0, 1), (1, 0)))
        for which, at in zip(order, (400, 410), strict=True)
    ]
    played = replay([*calls, *crossed], {0: 500, 1: 500}, None, range(40), eager=eager)
    steps = [step.which.tolist() for step in played._steps]
    assert steps == [[each] for each in range(42)]


def test_a_collective_stands_in_no_queue_of_a_send_that_goes_alone() -> None:
    """Rank 0 sends to rank 1, which comes late, and reduces with rank 2 at the same moment."""
    calls = [(0, 0, 0, 100, 105), (1, 0, 0, 130, 140)]
    calls += [(rank, 1, 1, 100 if rank == 0 else 50, 150) for rank in (0, 2)]
    blocked = {0: (100, 150), 1: (130, 140), 2: (50, 150)}
    played = replay(calls, dict.fromkeys(range(3), 200), blocked, (0,), eager=[(0, 0)])
    was, now = played.times_ns([Healing(), less_work(played, 1, 40)], (0,))
    assert was.mean == pytest.approx(200 * US), "as measured"
    assert was.mean - now.mean == pytest.approx(40 / 3 * US), "rank 1 alone is sooner"


@pytest.mark.parametrize("slow", mostly_slow([3, 4, 5]))
def test_a_pipeline_saves_what_it_would(tmp_path: Path, slow: int) -> None:
    """The first or last stage hides a part of its delay; only where it is slow is it replayed."""
    verdict, saved = judged(tmp_path, Pipeline(slow=(slow,)))
    assert verdict.ranks == (slow,)
    assert verdict.gain_ns == pytest.approx(saved, rel=0.02)
    assert not verdict.gain_is_bound


@pytest.mark.parametrize(
    "links", mostly_slow([[(0, 1), (1, 0)], [(1, 2)], [(4, 3)]], fast=1), ids=str
)
def test_a_slow_link_of_a_pipeline_costs_what_it_does(
    tmp_path: Path, links: list[tuple[int, int]]
) -> None:
    verdict, saved = judged(tmp_path, Pipeline(links=tuple(links)))
    assert (verdict.kind, verdict.members) == ("communication", tuple(sorted(links[0])))
    assert verdict.gain_ns == pytest.approx(saved, rel=0.02)
    assert not verdict.gain_is_bound


@pytest.mark.parametrize(("stages", "replicas"), mostly_slow([(4, 1), (3, 2), (4, 2)], fast=1))
def test_messages_that_were_there_before_their_receivers_make_no_others_slow(
    tmp_path: Path, stages: int, replicas: int
) -> None:
    """Of a transfer that began before its receiver came, a part is seen."""
    write(tmp_path, Pipeline(stages=stages, replicas=replicas, batches=8, eager=True))
    db = tmp_path / "run.duckdb"
    rankscope.ingest(sorted(tmp_path.glob("*.json")), db, jobs=1)
    assert rankscope.open_run(db).compare().verdict.kind == "balanced"


def test_a_slow_link_between_ranks_with_a_report_is_named_though_others_have_none(
    tmp_path: Path,
) -> None:
    write(tmp_path, Pipeline(links=((0, 1), (1, 0))))
    reports = sorted(tmp_path.glob("*.json"))[:-1]
    verdict = rankscope.ingest(reports, tmp_path / "run.duckdb", jobs=1).compare().verdict
    assert (verdict.kind, verdict.members) == ("communication", (0, 1))
    assert verdict.gain_is_bound


def judged(folder: Path, job: Pipeline) -> tuple[Verdict, float]:
    """The verdict of a job, and what the run would truly save without what is slow in it, ns."""
    write(folder, job)
    db = folder / "run.duckdb"
    rankscope.ingest(sorted(folder.glob("*.json")), db, jobs=1)
    comparison = rankscope.open_run(db).compare()
    numbers = comparison.selection.numbers
    was, well = (
        np.mean([ends[numbers[-1]] - ends[numbers[0] - 1] for ends in step_ends(each)])
        for each in (job, Pipeline())
    )
    return comparison.verdict, float(US * (was - well))
