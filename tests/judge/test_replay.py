"""A run played again, made by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankscope.judge.replay import Healing, Replay
from rankscope.judge.replay_inputs import RankChunk
from rankscope.match.clocks import Aligner, ClockFit, Clocks
from rankscope.model.kinds import PHASES
from rankscope.model.metrics import columns_of

Call = tuple[int, int, int, int, int]
"""rank, communicator, instance, and when it arrives and is through, us."""

US = 1_000


def replay(
    calls: list[Call], ends: dict[int, int], blocked: tuple[int, int] | None = None
) -> Replay:
    """One iteration from 0 to `ends` (us) by rank, all forward, `blocked` from one time to another.

    None: no collective blocks.
    """
    names = ("rank", "group", "instance", "arrival_ns", "end_ns")
    frame = pl.DataFrame(dict(zip(names, zip(*calls, strict=True), strict=True)))
    frame = frame.with_columns(pl.col("arrival_ns", "end_ns") * US)
    schema = dict.fromkeys(("rank", "start_ns", "end_ns"), pl.Int64)
    exposed = pl.DataFrame(
        [] if blocked is None else [[rank, *(US * at for at in blocked)] for rank in ends],
        schema=schema,
        orient="row",
    )
    windows = pl.DataFrame(
        {"rank": [*ends], "iteration": 0, "begin": 0, "end": [US * end for end in ends.values()]}
    ).with_columns(
        pl.when(name == "forward_ns").then("end").otherwise(0).alias(name)
        for name in columns_of(PHASES)
    )
    clocks = Clocks({rank: ClockFit(0, 0.0, 0) for rank in ends}, 0, "collectives")
    return Replay([RankChunk([*ends], frame, exposed)], windows, Aligner(clocks, {}))


def less_work(played: Replay, rank: int, us: int) -> Healing:
    work = np.zeros((played.rows.height, len(played.phases)))
    work[played.rows["rank"].to_numpy() == rank, played.phases.index("forward_ns")] = us * US
    return Healing(work)


def test_a_rank_that_is_late_at_the_end_costs_all_of_it() -> None:
    """The others wait for it in the next iteration, which has no report."""
    calls = [(rank, 0, 0, 100, 110) for rank in range(4)]
    played = replay(calls, {0: 900, 1: 900, 2: 900, 3: 1_000})
    assert played.gains_ns([less_work(played, 3, 100)], (0,)) == [pytest.approx(100 * US)]


def test_a_collective_stands_in_the_queue_of_the_one_before_it() -> None:
    """Of two communicators, the second one's transfer starts when the first one's is through."""
    calls = [
        *((rank, 0, 0, 100, 500) for rank in (0, 1)),  # slow: 400 us
        *((rank, 1, 1, 100, 520) for rank in (0, 1, 2)),  # 20 us, once ranks 0 and 1 are free
    ]
    played = replay(calls, {0: 600, 1: 600, 2: 600}, blocked=(100, 520))
    healed = Healing(transfer=np.array([300.0, 0]) * US)
    assert played.gains_ns([healed], (0,)) == [300 * US]
    assert played.service(3)[:2].tolist() == [400 * US, 420 * US], "each by its own members"
    assert np.isnan(played.service(3)[2])
