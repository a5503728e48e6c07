"""A run played again, made by hand."""

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
    calls: list[Call], ends: dict[int, int], blocked: dict[int, tuple[int, int]] | None = None
) -> Replay:
    """One iteration from 0 to `ends` (us) by rank, all forward.

    `blocked`: the ranks that collectives block, from one time to another.
    """
    names = ("rank", "group", "instance", "arrival_ns", "end_ns")
    frame = pl.DataFrame(dict(zip(names, zip(*calls, strict=True), strict=True)))
    frame = frame.with_columns(pl.col("arrival_ns", "end_ns") * US)
    schema = dict.fromkeys(("rank", "start_ns", "end_ns"), pl.Int64)
    exposed = pl.DataFrame(
        [[rank, *(US * at for at in times)] for rank, times in (blocked or {}).items()],
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


def test_what_was_played_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [(rank, 0, 0, 100, 110) for rank in range(4)]
    played = replay(calls, {0: 900, 1: 900, 2: 900, 3: 1_000})
    gains = played.gains_ns([less_work(played, 3, 100), less_work(played, 3, 50)], (0,))
    monkeypatch.setattr(Replay, "_played", None)
    assert played.gains_ns([less_work(played, 3, 50)] * 2, (0,)) == [gains[1]] * 2
