"""Scenes: the same seed gives the same job, a plant changes nothing else, reports are readable."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.jobs import SCENES, lengths, play, write
from tests.jobs.job import MS, Plant, Report
from tests.jobs.report import clock
from tests.jobs.scene import ddp, plant
from tests.jobs.script import Script
from tests.support import mostly_nightly

pytestmark = pytest.mark.slow  # nothing of it changes with rankscope


FEW = ("slow_gpu", "slow_host", "fsdp", "slow_in_a_stage", "imbalanced_experts", "storage_spell")


@pytest.mark.parametrize("name", mostly_nightly(FEW, 2))
def test_the_same_seed_gives_the_same_job_and_another_seed_another(name: str) -> None:
    def ends(seed: int) -> list[int]:
        return play(SCENES[name].make(4, seed).job, record=False).ends

    assert ends(0) == ends(0) != ends(1)


def test_reports_are_not_needed_for_the_truth() -> None:
    job = SCENES["fsdp"].make(4, 0).job
    assert play(job, record=False).ends == play(job).ends


def test_healing_whoever_is_not_planted_changes_nothing() -> None:
    scene = SCENES["slow_gpu"].make(4, 0)
    (slow,) = scene.answer.culprits[0].ranks
    other = next(rank for rank in range(4) if rank != slow)
    assert scene.job.healed(frozenset({other})) == scene.job
    assert scene.job.healed(frozenset({slow})) == scene.job.healed()


def test_a_plant_changes_nothing_but_what_it_slows() -> None:
    job = ddp("plain", 4, 0)
    slow = plant(job, Plant("device", (2,), factor=1.2))
    for rank in range(4):
        for before, after in zip(
            Script(job, rank).program(), Script(slow, rank).program(), strict=True
        ):
            if rank != 2:
                assert before == after
            for left, right in zip(before, after, strict=True):
                if left[0] == 0:  # a kernel: its duration stands third
                    assert left[:2] + left[3:] == right[:2] + right[3:]
                    assert right[2] == pytest.approx(left[2] * (1.2 if rank == 2 else 1.0))
                else:
                    assert left == right


def test_a_slow_device_costs_what_its_kernels_take_longer() -> None:
    job = replace(ddp("cost", 4, 0, sync_every=1), contention=1.0)
    slow = plant(job, Plant("device", (1,), factor=1.2))
    model = job.model
    computing = model.forward_ns * 1.0 + model.backward_ns * 1.0
    gained = sum(lengths(play(slow).ends)[1:]) - sum(lengths(play(job).ends)[1:])
    assert gained / 39 == pytest.approx(0.2 * (computing + model.optimizer_ns), rel=0.1)


def test_a_rank_with_slack_costs_nothing() -> None:
    job = SCENES["slack"].make(4, 0).job
    before, after = (sum(lengths(play(each).ends)[1:]) for each in (job, job.healed()))
    assert abs(before - after) / before < 0.01


def test_healing_one_of_two_that_are_slow_alike_saves_little() -> None:
    scene = SCENES["two_slow_gpus"].make(8, 0)
    first = scene.answer.culprits[0].ranks[0]
    jobs = (scene.job, scene.job.healed(frozenset({first})), scene.job.healed())
    both, one, none = (sum(lengths(play(each, record=False).ends)[1:]) for each in jobs)
    assert (both - none) / both > 0.08
    assert (both - one) / both < 0.02


def test_an_answer_names_ranks_that_are_there() -> None:
    for entry in SCENES.values():
        for size in entry.sizes[:2]:
            scene = entry.make(size, 0)
            assert scene.job.ranks == size
            assert {rank for c in scene.answer.culprits for rank in c.ranks} <= {*range(size)}
            assert scene.answer.classes or scene.answer.culprits


def test_reports_hold_every_row_on_the_ranks_own_clock(tmp_path: Path) -> None:
    job = SCENES["fsdp"].make(4, 1).job  # an odd seed: with NCCL's own ranges
    done = play(job)
    paths = write(job, done, tmp_path)
    assert len(paths) == 4
    rank = done.ranks[2]
    connection = sqlite3.connect(paths[2])
    rows = connection.execute(
        "select start, end, streamId from CUPTI_ACTIVITY_KIND_KERNEL order by start"
    ).fetchall()
    told = connection.execute(
        "select count(*), count(jsonText) from NVTX_EVENTS where domainId = 3 and eventType = 59"
    ).fetchone()
    connection.close()
    when = clock(job, 2)
    assert rows == [
        (when.local(row[0]), when.local(row[1]), row[3]) for row in sorted(rank.kernels)
    ]
    collectives = sum(row[2].startswith("nccl:") for row in rank.kernels)
    assert told == (collectives, collectives)


def test_ranks_of_one_host_share_a_clock_and_hosts_differ() -> None:
    job = SCENES["slow_gpu"].make(32, 0).job
    moment = 700 * MS
    told = [clock(job, rank).utc(moment) for rank in range(32)]
    hosts = [told[first : first + 8] for first in range(0, 32, 8)]
    assert all(max(host) - min(host) <= 1 for host in hosts)
    assert max(told) - min(told) > MS


def test_ranks_without_a_report_write_none(tmp_path: Path) -> None:
    job = replace(ddp("few", 4, 0, 3), report=Report(ranks=(0, 3)))
    names = [path.name for path in write(job, play(job), tmp_path)]
    assert names == ["report_rank_0.sqlite", "report_rank_3.sqlite"]


def test_a_fingerprint_is_that_of_one_job() -> None:
    first, again, other = (SCENES["fsdp"].make(4, seed).job for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.fingerprint != first.healed().fingerprint
