"""Real captures whose truth is known: the slow ranks, in the right iterations and phases."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.errors import UnknownRank
from tests.support import MS, Stored, assert_adds_up, captured, slowest_by_iteration, unpacked

SLOW_LOADS = [3, 10, 17, 24, 31, 38]
COMPUTE = {"backward": "Compute"}
JOBS = {
    "2022.4/ddp_a": {},
    "2023.4/ddp_a": {},
    "2022.4/ddp_b": {},
    "2022.4/mpi": {"phases": COMPUTE},
    "2022.4/one_report/mpirun_all_ranks.sqlite": {"phases": COMPUTE},
}


@pytest.fixture(scope="module", params=JOBS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Each of the captures of four ranks, ingested."""
    name = str(request.param)
    folder = tmp_path_factory.mktemp(Path(name).name.replace(".", "_"))
    if name.endswith(".sqlite"):
        paths = [captured(str(Path(name).parent)) / Path(name).name]
    else:
        paths = [unpacked(captured(name), folder / "reports")]
    db = folder / "run.duckdb"
    return Stored(paths[0], db, rankscope.ingest(paths, db, **JOBS[name]))


def test_rank_1_is_slowest_in_loading_where_planted(job: Stored) -> None:
    slowest = slowest_by_iteration(job.run, "load")
    assert {i: slowest[i] for i in SLOW_LOADS} == dict.fromkeys(SLOW_LOADS, 1)
    load = job.run.iterations().filter(pl.col("iteration").is_in(SLOW_LOADS), rank=1)["load_ns"]
    assert load.min() > 20 * MS
    others = job.run.iterations().filter(pl.col("iteration").is_in(SLOW_LOADS), pl.col("rank") != 1)
    assert others["load_ns"].median() < 10 * MS


def test_rank_2_is_flagged_at_20_for_its_backward(job: Stored) -> None:
    rows = job.run.iterations().filter(iteration=20)
    assert rows.filter("flagged").select("rank", "cause").rows() == [(2, "backward")]
    iteration = job.run.imbalance().iterations.filter(iteration=20).row(0, named=True)
    assert (iteration["slowest_rank"], iteration["cause"]) == (2, "backward")


def test_loadings_score_is_highest_for_rank_1(job: Stored) -> None:
    for statistic in ("mean", "p95"):
        [load] = job.run.imbalance(["load"], statistic=statistic).metrics
        assert load.max.rank == 1, statistic
        assert load.imbalance is not None
        assert load.imbalance > 0.2


def test_the_verdict_names_rank_1(job: Stored) -> None:
    verdict = job.run.imbalance().verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("periodic", (1,), "load")
    assert verdict.period == 7
    assert verdict.iterations == tuple(SLOW_LOADS)
    assert verdict.excess_ns is not None
    assert 15 * MS < verdict.excess_ns < 35 * MS
    assert "ank 1" in verdict.sentence
    assert "Also rank 2 in iteration 20" in verdict.sentence


def test_every_row_adds_up(job: Stored) -> None:
    iterations = job.run.iterations()
    cut = 1 if "ddp_b" in str(job.db) else 0
    assert iterations.height == 4 * 40 - cut  # there, rank 1's last all_reduce never returned
    assert_adds_up(iterations)


def test_the_trap_waiting_is_not_backward(job: Stored) -> None:
    """Sums per range name show everybody's backward long at 20; only rank 2 worked."""
    own = dict(job.run.iterations().filter(iteration=20).select("rank", "backward_ns").iter_rows())
    assert own[2] > 50 * MS
    assert max(own[rank] for rank in (0, 1, 3)) < 20 * MS
    waits = dict(job.run.iterations().filter(iteration=20).select("rank", "wait_ns").iter_rows())
    assert waits[2] < 5 * MS
    assert min(waits[rank] for rank in (0, 1, 3)) > 30 * MS


def test_the_culprit_is_among_the_picks(job: Stored) -> None:
    picks = job.run.pick_reports()
    assert picks.metric == "time_to_all_reduce"
    labels = {pick.rank: pick.label for pick in picks.picks}
    assert labels[1] in ("max", "culprit")


@pytest.mark.parametrize("seed", [1, 2])
def test_file_names_and_their_order_mean_nothing(tmp_path: Path, seed: int) -> None:
    """The environment says whose report it is; names without a rank say nothing."""
    reports = sorted(captured("2022.4/ddp_a").glob("*.sqlite"))
    plain = rankscope.ingest(reports, tmp_path / "plain.duckdb").iterations()
    draw = random.Random(seed)
    names = [f"{draw.choice('abcxyz')}{draw.getrandbits(32):08x}q.sqlite" for _ in reports]
    shuffled = list(names)
    for report, name in zip(reports, names, strict=True):
        shutil.copyfile(report, tmp_path / name)
    draw.shuffle(shuffled)
    run = rankscope.ingest([tmp_path / name for name in shuffled], tmp_path / "mixed.duckdb")
    assert run.iterations().equals(plain)
    assert {*run.sql("select evidence from ranks")["evidence"]} == {"environment RANK"}


def test_nothing_links_the_processes_of_torchrun_to_ranks(tmp_path: Path) -> None:
    report = captured("2022.4/one_report") / "torchrun_all_ranks.sqlite"
    with pytest.raises(UnknownRank, match="pids 38, 39, 40, 41") as refused:
        rankscope.ingest([report], tmp_path / "run.duckdb")
    assert "torchrun_all_ranks.sqlite" in refused.value.message
    assert not (tmp_path / "run.duckdb").exists()
    assert "(?P<pid>" in refused.value.hint
    run = rankscope.ingest([report], tmp_path / "run.duckdb", rank_pattern=r"(?P<pid>\d+)")
    assert run.sql("select rank, pid from ranks order by rank").rows() == [
        (rank, 38 + rank) for rank in range(4)
    ]
    assert (run.imbalance().verdict.ranks, run.imbalance().verdict.period) == ((1,), 7)
    assert "ranks-by-order" in {each.code for each in run.analysis().problems}


def test_a_killed_rank_has_no_made_up_iteration(tmp_path: Path) -> None:
    folder = captured("2022.4/killed")
    run = rankscope.ingest([folder], tmp_path / "run.duckdb")
    assert run.iterations()["iteration"].to_list() == [0, 1, 2, 3, 4]
    assert run.sql("select iteration from iterations where not complete").rows() == [(5,)]
    [cut] = [each for each in run.analysis().problems if each.code == "iteration-cut"]
    assert cut.ranks == (3,)
    assert "iteration 5" in cut.message
    assert run.imbalance().verdict.kind == "inconclusive"
    assert run.imbalance().verdict.ranks == ()
    assert run.analysis().missing_ranks == (0, 1, 2)
    assert run.iterations()["wait_ns"].is_null().all()


def test_one_report_gives_several_ranks(tmp_path: Path) -> None:
    report = captured("2022.4/one_report") / "mpirun_all_ranks.sqlite"
    run = rankscope.ingest([report], tmp_path / "run.duckdb", phases=COMPUTE)
    ranks = run.sql("select rank, evidence, pid from ranks order by rank")
    assert ranks["rank"].to_list() == [0, 1, 2, 3]
    assert {*ranks["evidence"]} == {"MPI trace"}
    assert ranks["pid"].n_unique() == 4
    assert run.ingested is not None
    assert [outcome.ranks for outcome in run.ingested.outcomes] == [(0, 1, 2, 3)]
