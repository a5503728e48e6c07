"""A run played again, made by hand."""

from collections.abc import Collection
from threading import Barrier, Lock
from time import sleep

import numpy as np
import polars as pl
import pytest

from rankscope.judge.replay import AT_ONCE, Healing, Lasted, Replay
from rankscope.judge.replay_inputs import RankChunk
from rankscope.match.clocks import Aligner
from rankscope.match.records import ClockFit, Clocks

Call = tuple[int, int, int, int, int]
"""rank, communicator, instance, and when it arrives and is through, us."""

US = 1_000


def replay(
    calls: list[Call],
    ends: dict[int, int],
    blocked: dict[int, tuple[int, int]] | None = None,
    rooted: Collection[int] = (),
    eager: Collection[tuple[int, int]] = (),
    roles: dict[int, str] | None = None,
) -> Replay:
    """One iteration from 0 to `ends` (us) by rank, all forward.

    `blocked`: the ranks that collectives block, from one time to another. `rooted`: the instances
    that are. `eager`: rank and instance of sends that go alone. Without `roles`, each rank has its
    own, so that what is taken out is taken from all its work alike.
    """
    names = ("rank", "group", "instance", "arrival_ns", "end_ns")
    frame = pl.DataFrame(dict(zip(names, zip(*calls, strict=True), strict=True)))
    frame = frame.with_columns(
        pl.col("arrival_ns", "end_ns") * US,
        rooted=pl.col("instance").is_in(rooted),
        eager=pl.Series([(rank, instance) in eager for rank, _, instance, *_ in calls]),
    )
    frame = frame.with_columns(
        unsure=pl.col("rooted") & (pl.col("eager") | ~pl.col("eager").any().over("instance"))
    )
    schema = dict.fromkeys(("rank", "start_ns", "end_ns"), pl.Int64)
    exposed = pl.DataFrame(
        [[rank, *(US * at for at in times)] for rank, times in (blocked or {}).items()],
        schema=schema,
        orient="row",
    )
    windows = pl.DataFrame(
        {"rank": [*ends], "iteration": 0, "begin": 0, "end": [US * end for end in ends.values()]}
    )
    clocks = Clocks({rank: ClockFit(0, 0.0, 0) for rank in ends}, 0, "collectives")
    return Replay(
        [RankChunk([*ends], frame, exposed)],
        windows,
        Aligner(clocks, {}),
        roles or {r: str(r) for r in ends},
    )


def less_work(played: Replay, rank: int, us: int) -> Healing:
    return Healing(np.where(played.rows["rank"].to_numpy() == rank, us * US, 0.0))


def test_a_rank_that_is_late_at_the_end_costs_all_of_it() -> None:
    """The others wait for it in the next iteration, which has no report."""
    calls = [(rank, 0, 0, 100, 110) for rank in range(4)]
    played = replay(calls, {0: 900, 1: 900, 2: 900, 3: 1_000})
    assert played.gains_ns([less_work(played, 3, 100)], (0,)) == [pytest.approx(100 * US)]


def test_what_was_played_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [(rank, 0, 0, 100, 110) for rank in range(4)]
    played = replay(calls, {0: 900, 1: 900, 2: 900, 3: 1_000})
    gains = played.gains_ns([less_work(played, 3, 100), less_work(played, 3, 50)], (0,))
    monkeypatch.setattr(Replay, "_played", None)
    assert played.gains_ns([less_work(played, 3, 50)] * 2, (0,)) == [gains[1]] * 2


def test_on_many_cores_only_a_few_batches_of_healings_need_memory_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = [(rank, 0, 0, 100, 110) for rank in range(4)]
    played = replay(calls, {0: 900, 1: 900, 2: 900, 3: 1_000})
    playing, most, started, once = 0, 0, Barrier(AT_ONCE), Lock()

    def slowly(*_: object) -> list[Lasted]:
        nonlocal playing, most
        with once:
            playing += 1
            most = max(most, playing)
        started.wait(60)
        sleep(0.01)
        with once:
            playing -= 1
        return [Lasted(0.0, 0.0)]

    for module in ("judge.replay", "util.threads"):
        monkeypatch.setattr(f"rankscope.{module}.cores_to_use", lambda: 8)
    monkeypatch.setattr(Replay, "_played", slowly)
    played.times_ns([Healing()] * 6, (0,), most=1)
    assert most == AT_ONCE


def test_a_collective_stands_in_the_queue_of_the_one_before_it() -> None:
    """Of two communicators, the second one's transfer starts when the first one's is through."""
    calls = [
        *((rank, 0, 0, 100, 500) for rank in (0, 1)),  # slow: 400 us
        *((rank, 1, 1, 100, 520) for rank in (0, 1, 2)),  # 20 us, once ranks 0 and 1 are free
    ]
    played = replay(calls, {0: 600, 1: 600, 2: 600}, dict.fromkeys(range(3), (100, 520)))
    healed = Healing(transfer=np.array([300.0, 0]) * US)
    assert played.gains_ns([healed], (0,)) == [300 * US]
    assert played.service(3)[:2].tolist() == [400 * US, 420 * US], "each by its own members"
    assert np.isnan(played.service(3)[2])


def test_a_collective_stands_in_the_queue_of_the_last_one_before_it() -> None:
    """Ranks 0 and 1 reduce among themselves, 2 and 3 too, later; then all together."""
    calls = [
        *((rank, 0, 0, 300, 500) for rank in (0, 1)),
        *((rank, 1, 1, 100, 320) for rank in (2, 3)),
        *((rank, 2, 2, 300 if rank < 2 else 100, 510) for rank in range(4)),
    ]
    played = replay(calls, dict.fromkeys(range(4), 600), dict.fromkeys(range(4), (300, 510)))
    healed = Healing(transfer=np.array([150.0, 0, 0]) * US)
    assert played.gains_ns([healed], (0,)) == [150 * US]


def test_a_collective_that_a_member_has_first_stands_in_no_queue() -> None:
    """Rank 1 is through another one shortly before it; rank 0, which comes last, is not."""
    calls = [
        *((0, 0, 0, 400, 420), (1, 0, 0, 300, 420)),
        *((rank, 1, 1, 300, 410) for rank in (1, 2)),
        *((0, 2, 2, 400, 450), (3, 2, 2, 300, 450)),
    ]
    played = replay(calls, dict.fromkeys(range(4), 600), {1: (300, 420)})
    sooner = 80 * 400 / 600  # of all that rank 0 does
    assert played.gains_ns([less_work(played, 0, 80)], (0,)) == [
        pytest.approx((80 + sooner) / 4 * US, rel=1e-3)
    ]


def test_who_leaves_a_broadcast_early_waits_for_nobody() -> None:
    """Rank 0 sends, rank 1 comes late: rank 2 waits for it, and rank 0 does not."""
    ends = {0: 110, 1: 310, 2: 320}
    calls = [(rank, 0, 0, 100 + 200 * (rank == 1), end) for rank, end in ends.items()]
    played = replay(calls, {**ends, 0: 300}, {rank: (100, ends[rank]) for rank in (0, 2)}, (0,))
    was, now = played.times_ns([Healing(), less_work(played, 1, 200)], (0,))
    assert (was.mean, was.last) == (pytest.approx(310 * US), pytest.approx(320 * US)), "as measured"
    sooner = 200 * 300 / 310  # of what rank 1 does before it comes
    assert was.mean - now.mean == pytest.approx((200 + sooner) / 3 * US, rel=1e-3)
    assert np.isnan(played.service(1)[0]), "its transfer is nobody's"


def test_a_broadcast_begins_after_the_call_before_it() -> None:
    """The second of two is short on rank 1, which comes late: it queues behind the first."""
    calls = [
        *((0, 0, 0, 100, 110), (1, 0, 0, 100, 300)),
        *((0, 0, 1, 100, 120), (1, 0, 1, 100, 310)),
        *((0, 0, 2, 400, 420), (1, 0, 2, 310, 420)),
    ]
    blocked = {1: (100, 310)}
    played = replay(calls, {0: 500, 1: 500}, blocked, (0, 1))
    first, second = (step.rooted[0].service / US for step in played._steps[:2])
    assert played.unsure_ns == 230 / 2 * US
    assert first.tolist() == [[10, 200]]
    assert second.tolist() == [[10, 10]]


@pytest.mark.parametrize(
    ("roles", "saves"),
    [({0: "all", 1: "all"}, 40), (None, 40 * (100 + 100) / 300)],
    ids=["as the others", "alone in its role"],
)
def test_work_is_taken_out_where_others_of_the_role_do_less(
    roles: dict[int, str] | None, saves: float
) -> None:
    """Rank 1 works 40 us longer before the second collective; rank 0 does after it."""
    calls = [(0, 0, 0, 100, 100), (1, 0, 0, 100, 100), (0, 0, 1, 160, 200), (1, 0, 1, 200, 200)]
    played = replay(calls, {0: 340, 1: 300}, {0: (160, 200)}, roles=roles)
    healing = less_work(played, 1, 40)
    was, now = played.times_ns([Healing(), healing], (0,))
    assert was.last - now.last == pytest.approx(saves * US, abs=2 * US)
    assert played.compared.all() == (roles is not None)
