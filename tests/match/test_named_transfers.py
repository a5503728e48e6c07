"""Sends and receives whose peers the reports name: paired, tied to one clock, with their waits."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import rankscope
from rankscope.match.clocks import ASSUMED_SPREAD_NS, Group, solve_clocks
from rankscope.match.communication import match_again, match_calls
from rankscope.match.point_to_point import meetings, named_transfers
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.model.schema import COLLECTIVES
from tests.frames import filled
from tests.match.worlds import instances_of
from tests.pipeline_job import TRANSFER_US, Pipeline, write

Waits = dict[tuple[int, int], list[float]]


def ingested(folder: Path, job: Pipeline) -> tuple[rankscope.Run, Waits]:
    waits = write(folder, job)
    db = folder / "run.duckdb"
    rankscope.ingest(sorted(folder.glob("*.json")), db, jobs=1)
    return rankscope.open_run(db), waits


def test_a_pipeline_is_matched_without_roles(tmp_path: Path) -> None:
    job = Pipeline(slow=(3, 4))  # neighbours are no stage, as replicas are
    run, true = ingested(tmp_path, job)
    comparison = run.compare()
    assert not comparison.warnings
    assert comparison.verdict.ranks == (3, 4)
    assert "not matched" not in comparison.verdict.sentence
    fits = comparison.matching.clocks.fits
    bound = 1000 * TRANSFER_US * (job.stages - 1)
    for rank, fit in fits.items():
        assert abs(fit.offset_ns + 1000 * job.ahead * rank) <= fit.spread_ns <= bound
    assert fits[1].spread_ns == pytest.approx(1000 * TRANSFER_US, rel=0.01)
    calls = match_calls(comparison.scope, [])
    again = match_again(comparison.scope, comparison.matching, [], (3, 4))
    assert instances_of(again.waited).equals(instances_of(calls.waited))
    assert calls.matched.lost["lasted_ns"].sum() == 0
    assert (calls.matching.wait_error_ns or 0) <= bound
    rows = instances_of(calls.waited).cast({"group": pl.Int64})
    for group, sender in calls.matched.senders.items():
        part = rows.filter(group=group).sort("iteration", "ordinal")
        receiver = part.filter(pl.col("rank") != sender)
        first = job.batches * receiver["iteration"][0]
        waits = [1000 * each for each in true[sender, receiver["rank"][0]]][first:]
        assert receiver["wait"].to_list() == pytest.approx(waits, abs=1000)
        assert set(part.filter(rank=sender)["wait"]) == {0}, "buffers have taken the message"


def kernel(rank: int, peers: str, start: int, end: int, iteration: int = 0) -> dict[str, object]:
    return {
        "rank": rank,
        "communicator": f"named {peers}",
        "start_ns": start,
        "arrival_ns": start - 5,
        "end_ns": end,
        "iteration": iteration,
    }


def sent(*kernels: dict[str, object]) -> pl.DataFrame:
    frame = pl.DataFrame(kernels).with_columns(operation=pl.lit(POINT_TO_POINT))
    wide = {"communicator": pl.String, "rank": pl.Int64, "iteration": pl.Int64}
    return filled(frame, COLLECTIVES).cast(wide)


def test_a_kernel_may_send_and_receive() -> None:
    frame = sent(
        kernel(0, "to 1, from 1", 10, 60),
        kernel(1, "from 0", 20, 30),
        kernel(1, "to 0", 40, 50),
    )
    columns = ("label", "rank", "start_ns", "ordinal", "group")
    assert named_transfers(frame).sort("group", "rank").select(columns).rows() == [
        ("rank 0 to 1", 0, 10, 0, 0),
        ("rank 0 to 1", 1, 20, 0, 0),
        ("rank 1 to 0", 0, 10, 0, 1),
        ("rank 1 to 0", 1, 40, 0, 1),
    ]


def test_peers_may_be_places_in_a_communicator() -> None:
    """NCCL says them: ranks 1 and 3 are the members 0 and 1 of one, 0 and 2 of another."""
    frame = sent(
        kernel(1, "77 to 1", 10, 60),
        kernel(3, "77 from 0", 20, 60),
        kernel(0, "78 from 1, to 1", 20, 30),
        kernel(2, "78 to 0, from 0", 40, 50),
    )
    output = named_transfers(frame).sort("group", "rank").select("label", "rank")
    assert output.rows() == [
        ("rank 0 to 2", 0),
        ("rank 0 to 2", 2),
        ("rank 1 to 3", 1),
        ("rank 1 to 3", 3),
        ("rank 2 to 0", 0),
        ("rank 2 to 0", 2),
    ]


def test_places_of_members_without_a_report_tell_nothing() -> None:
    """Of the members 0 to 3, those at 0, 1 and 3 have one; the last would seem to be at 2."""
    frame = sent(
        kernel(0, "77 to 1", 10, 60),
        kernel(1, "77 from 0", 20, 60),
        kernel(1, "77 to 2", 70, 80),
        kernel(5, "77 to 2", 70, 80),
        kernel(5, "77 from 2", 90, 99),
        kernel(1, "77 to 3", 90, 99),
    )
    assert named_transfers(frame).is_empty()


def test_transfers_that_one_side_lacks_are_left_alone() -> None:
    frame = sent(
        kernel(0, "to 1", 10, 12),
        kernel(0, "to 1", 20, 22),
        kernel(1, "from 0", 20, 30),
        kernel(0, "to 1", 110, 112, 1),
        kernel(1, "from 0", 120, 130, 1),
        kernel(1, "to 2", 140, 142, 1),
        kernel(1, "to 1, from 1", 150, 152, 1),
    )
    assert named_transfers(frame).select("rank", "iteration").rows() == [(0, 1), (1, 1)]


def test_the_soonest_transfers_of_both_directions_tell_the_clocks() -> None:
    """Rank 1's clock is 1,000 ahead; a message takes 20."""
    frame = sent(
        kernel(0, "to 1", 100, 105),
        kernel(1, "from 0", 1050, 1120),
        kernel(0, "to 1", 200, 205),
        kernel(1, "from 0", 1900, 1920),  # came late, and tells less
        kernel(1, "to 0", 1300, 1305),
        kernel(0, "from 1", 250, 320),
        kernel(0, "to 1", 1100, 1105, 1),
        kernel(1, "from 0", 2600, 2620, 1),  # waited for nobody in this iteration
        kernel(1, "to 0", 2300, 2305, 1),
        kernel(0, "from 1", 1250, 1320, 1),
        kernel(0, "to 1", 2100, 2105, 2),
        kernel(1, "from 0", 3050, 3160, 2),  # took 60: the error of both is twice the least
        kernel(1, "to 0", 3300, 3305, 2),
        kernel(0, "from 1", 2250, 2320, 2),
    )
    found = meetings(named_transfers(frame))
    moments = [(210, 1210, 20), (2210, 3230, 40)]
    assert found.select("own_ns", "other_ns", "error_ns").rows() == moments


@pytest.mark.parametrize(("error", "drift"), [(0.0, -100.0), (50_000.0, 0.0)])
def test_a_drift_smaller_than_the_error_is_none(error: float, drift: float) -> None:
    when = np.arange(0, 1_000_000_001, 100_000_000)
    group = Group((0, 1), np.stack([when, when + when // 10_000], axis=1), (0, 0), error)
    fit = solve_clocks([group], 0).fits[1]
    assert fit.drift_ppm == pytest.approx(drift, rel=0.01)
    assert fit.spread_ns >= error


def test_collectives_alone_refine_clocks() -> None:
    """Of messages that take longer one way, the moments differ: they tie, and blur no other tie."""
    when = np.arange(0, 1_000_000_001, 100_000_000)
    world = Group((0, 1, 2), np.stack([when] * 3, axis=1), (0, 0, 0))
    late = np.stack([when, when + 40_000], axis=1)
    meeting = [Group(pair, late, (0, 0), 50_000.0) for pair in ((0, 1), (1, 2), (2, 3))]
    clocks, of_sends = (solve_clocks(groups, 0) for groups in ([world, *meeting], meeting))
    ways = ["ends of shared collectives (1 communicator)", "messages both ways (3 pairs of ranks)"]
    assert [clocks.method, of_sends.method] == ["; ".join(ways), ways[1]]
    fits = clocks.fits
    assert [(fits[rank].offset_ns, fits[rank].spread_ns) for rank in (1, 2)] == [(0, 0)] * 2
    assert (fits[3].offset_ns, fits[3].spread_ns) == (-40_000, 50_000)
    few = solve_clocks([Group((0, 1), late[:1], (0, 0), 50_000.0)], 0).fits[1]
    assert few.spread_ns == ASSUMED_SPREAD_NS + 50_000
