"""The engine keeps the rules of hosts, streams, queues, collectives and messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.jobs.job import MS, Job, Network, Noise
from tests.jobs.play import play
from tests.jobs.scene import SCENES
from tests.jobs.script import Script
from tests.jobs.state import Costs, Played
from tests.support import mostly_nightly

pytestmark = pytest.mark.slow  # nothing of it changes with rankscope


QUIET = Noise(*[0.0] * 5)
ALL_REDUCE = "nccl:all_reduce"


def played(
    step: Callable[[Script, int], None], ranks: int = 2, iterations: int = 1, **job: object
) -> Played:
    """A small job without noise."""
    groups = {"dp": tuple(range(ranks))}
    usual: dict[str, object] = {"noise": QUIET, "groups": groups}
    return play(Job("small", ranks, iterations, 0, step, None, **(usual | job)))


def kernels(done: Played, rank: int, name: str) -> list[tuple[int, int]]:
    """Begin and end of a rank's kernels of a name."""
    return [(row[0], row[1]) for row in done.ranks[rank].kernels if row[2] == name]


@pytest.mark.parametrize(
    "name", mostly_nightly(["fsdp", "slow_in_a_stage", "two_communicators", "hot_expert"])
)
def test_operations_of_a_stream_never_overlap_and_never_precede_their_launch(name: str) -> None:
    done = play(SCENES[name].make(4, 1).job)
    for rank in done.ranks:
        launches = {call[4]: call[0] for call in rank.calls}
        rows = sorted(rank.kernels + rank.copies)
        for stream in {row[3] for row in rows}:
            for before, after in pairwise(row for row in rows if row[3] == stream):
                assert before[1] <= after[0]
        assert all(row[0] > launches[row[4]] for row in rows)


def test_calls_of_a_host_never_overlap() -> None:
    done = play(SCENES["run_ahead"].make(4, 0).job)
    for rank in done.ranks:
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(rank.calls)))


def test_collectives_start_moving_when_the_last_has_come_and_end_together() -> None:
    def step(script: Script, _: int) -> None:
        script.kernel("gemm_fwd", (1 + script.rank) * MS)
        script.joined("dp", "all_reduce", 40_000_000)

    done = played(step, ranks=4)
    members = [kernels(done, rank, ALL_REDUCE)[0] for rank in range(4)]
    last, ends = max(begin for begin, _ in members), [end for _, end in members]
    assert max(ends) - min(ends) <= 1_500
    assert min(ends) - last >= 40_000_000 * 1.5 / 150  # once around the ring at 150 GB/s
    assert members[3][0] - members[0][0] == pytest.approx(3 * MS, abs=MS)  # starts scatter


def test_a_full_queue_holds_the_host_in_its_launch() -> None:
    def step(script: Script, _: int) -> None:
        for _ in range(40):
            script.kernel("gemm_fwd", MS)

    free = played(step, ranks=1, costs=Costs(depth=1_024)).ranks[0]
    full = played(step, ranks=1, costs=Costs(depth=10)).ranks[0]
    assert max(end - start for start, end, *_ in free.calls) < 10_000
    assert max(end - start for start, end, *_ in full.calls) == pytest.approx(MS, rel=0.02)
    assert free.calls[-1][1] - free.calls[0][0] < MS
    assert full.calls[-1][1] - full.calls[0][0] == pytest.approx(28 * MS, rel=0.1)
    # What the device does is the same.
    assert [row[:2] for row in free.kernels] == [row[:2] for row in full.kernels]


def test_a_host_that_synchronises_waits_for_the_device() -> None:
    def step(script: Script, _: int) -> None:
        script.kernel("gemm_fwd", 5 * MS)
        script.sync()

    rank = played(step, ranks=1).ranks[0]
    start, end, name, *_ = rank.calls[-1]
    assert name.startswith("cudaStreamSynchronize")
    assert end >= rank.kernels[0][1] > start
    assert rank.syncs[0][:2] == (start, end)


def test_kernels_are_slower_exactly_while_a_collective_is_resident() -> None:
    def step(script: Script, _: int) -> None:
        if script.rank:
            script.work(10 * MS)
        script.collective("dp", "all_reduce", 4)
        script.kernel("gemm_fwd", 4 * MS)
        script.kernel("gemm_wgrad", 10 * MS)

    done = played(step, contention=1.5)
    (begin, end), *_ = kernels(done, 0, "gemm_fwd")
    assert end - begin == pytest.approx(6 * MS, rel=0.001)
    (begin, end), *_ = kernels(done, 0, "gemm_wgrad")
    left = kernels(done, 0, ALL_REDUCE)[0][1]
    assert begin < left < end
    assert (left - begin) / 1.5 + (end - left) == pytest.approx(10 * MS, rel=0.001)


def test_messages_need_both_ends_and_do_not_overtake() -> None:
    def step(script: Script, _: int) -> None:
        for size in (1_000_000, 2_000_000):
            if script.rank:
                script.work(3 * MS)
            peer, way = 1 - script.rank, ("recv" if script.rank else "send")
            script.exchange("dp", [(way, peer, size)])

    done = played(step)
    for nth in range(2):
        (_, first), (late, second) = (kernels(done, rank, "nccl:send_recv")[nth] for rank in (0, 1))
        assert first == second > late


def test_two_kernels_that_each_wait_for_the_other_are_noticed() -> None:
    def step(script: Script, _: int) -> None:
        if script.rank == 0:
            script.collective("dp", "all_reduce", 4)
        script.sync(None)

    with pytest.raises(RuntimeError, match="wait for each other"):
        played(step)


def test_every_call_of_a_collective_has_all_its_partners() -> None:
    for name in ("fsdp", "heavy_last_stage", "imbalanced_experts"):
        job = SCENES[name].make(8, 0).job
        done = play(job)
        for comm, members in job.groups.items():
            if comm.startswith("pp"):
                continue
            streams = {rank: Script(job, rank).stream_of(comm) for rank in members}
            counts = {
                sum(row[3] == streams[rank] for row in done.ranks[rank].kernels) for rank in members
            }
            assert len(counts) == 1


def test_a_slow_link_slows_only_the_transfers_of_its_communicators() -> None:
    scene = SCENES["slow_link_of_a_host"].make(8, 0)
    hurt, well = play(scene.job), play(scene.job.healed())
    host = scene.answer.culprits[0].ranks

    def transfer(done: Played, rank: int) -> int:
        rows = [row for row in done.ranks[rank].kernels if row[2] == ALL_REDUCE]
        return min(end - begin for begin, end, *_, size in rows if size > 1_000_000)

    other = next(rank for rank in range(8) if rank not in host)
    assert transfer(hurt, host[0]) > 3 * transfer(well, host[0])
    assert transfer(hurt, other) == pytest.approx(transfer(well, other), rel=0.05)


def test_transfers_within_a_host_are_faster_than_between_hosts() -> None:
    def step(script: Script, _: int) -> None:
        script.joined("dp", "all_reduce", 100_000_000)

    inside = played(step, ranks_per_host=2)
    between = played(step, ranks_per_host=1)
    slow = replace(Network(), between_hosts=10.0)
    slower = played(step, ranks_per_host=1, network=slow)
    lasts = [
        end - begin
        for done in (inside, between, slower)
        for begin, end in kernels(done, 0, ALL_REDUCE)
    ]
    assert lasts == sorted(lasts)
    assert lasts[2] > 3 * lasts[1] > 9 * lasts[0]


def test_ranges_nest_and_cover_their_launches() -> None:
    done = play(SCENES["slow_gpu"].make(4, 0).job)
    for rank in done.ranks:
        steps = [row for row in rank.ranges if row[2].startswith("step")]
        inner = [row for row in rank.ranges if row[2] in ("forward", "backward", "optimizer")]
        assert len(steps) == 40
        assert all(
            sum(outer[0] <= row[0] and row[1] <= outer[1] for outer in steps) == 1 for row in inner
        )
