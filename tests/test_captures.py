"""Real captures whose truth is known: the slow ranks, in the right iterations and phases."""

import gzip
import random
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.errors import UnknownRank
from rankscope.model.kinds import PARTS
from tests.captures.reduce import VARIABLES
from tests.support import (
    CAPTURES,
    MS,
    SHARED,
    MakeStored,
    Stored,
    asked,
    assert_adds_up,
    capture,
    captured,
    edit,
    mostly_nightly,
    mostly_slow,
    public,
    slowest_by_iteration,
    sqlite_tables,
    unpacked,
)

SLOW_LOADS = [3, 10, 17, 24, 31, 38]
COMPUTE = {"backward": "Compute"}
JOBS = {
    "2023.4/ddp_a": {},
    "2022.4/mpi": {"phases": COMPUTE},
    "2022.4/ddp_b": {},
    "2022.4/one_report/mpirun_all_ranks.sqlite": {"phases": COMPUTE},
    "2022.4/ddp_a": {},
}
WHOLE = [f"whole/{name}" for name in JOBS]
"""The captures before they were reduced, on a machine that has them."""


@pytest.fixture(
    scope="module", params=mostly_slow([*JOBS, *(WHOLE if SHARED.is_dir() else [])], 2, 2)
)
def job(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    ingested: MakeStored,
) -> Stored:
    """Each of the captures of four ranks, ingested."""
    name = str(request.param).removeprefix("whole/")
    if name == request.param:
        return ingested(captured(name), **JOBS[name])
    source = SHARED / "captured" / name
    if source.is_dir():
        source = unpacked(source, tmp_path_factory.mktemp("whole") / source.name)
    return ingested(source, **JOBS[name])


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the whole captures are not here")
@pytest.mark.parametrize("name", mostly_nightly(JOBS))
def test_reduced_captures_answer_as_whole_ones(tmp_path: Path, name: str) -> None:
    whole = SHARED / "captured" / name
    whole = unpacked(whole, tmp_path / "reports") if whole.is_dir() else whole
    one = rankscope.ingest([captured(name)], tmp_path / "reduced.duckdb", **JOBS[name])
    other = rankscope.ingest([whole], tmp_path / "whole.duckdb", **JOBS[name])
    assert one.iterations().equals(other.iterations())
    assert one.imbalance().verdict == other.imbalance().verdict


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
    assert ((2,), (20,)) in [(each.ranks, each.iterations) for each in verdict.also]


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
    assert labels[1] in ("max", "slow")


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_nightly([1, 2]))
def test_file_names_and_their_order_mean_nothing(
    tmp_path: Path, ingested: MakeStored, seed: int
) -> None:
    """The environment says whose report it is; names without a rank say nothing."""
    reports = sorted(captured("2023.4/ddp_a").glob("*.sqlite"))
    plain = ingested(captured("2023.4/ddp_a")).run.iterations()
    draw = random.Random(seed)
    names = [f"{draw.choice('abcxyz')}{draw.getrandbits(32):08x}q.sqlite" for _ in reports]
    shuffled = list(names)
    for report, name in zip(reports, names, strict=True):
        shutil.copyfile(report, tmp_path / name)
    draw.shuffle(shuffled)
    run = rankscope.ingest([tmp_path / name for name in shuffled], tmp_path / "mixed.duckdb")
    assert run.iterations().equals(plain)
    assert {*run.sql("select evidence from ranks")["evidence"]} == {"environment RANK"}


@pytest.mark.slow
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
    assert "ranks-by-order" in {each.code for each in run.compare().warnings}


def test_a_killed_rank_has_no_made_up_iteration(tmp_path: Path) -> None:
    run = rankscope.ingest([captured("2022.4/killed")], tmp_path / "run.duckdb")
    assert run.iterations()["iteration"].to_list() == [0, 1, 2, 3, 4]
    assert run.sql("select iteration from iterations where not complete").rows() == [(5,)]
    [cut] = [each for each in run.compare().warnings if each.code == "iteration-cut"]
    assert cut.ranks == (3,)
    assert "iteration 5" in cut.message
    assert run.imbalance().verdict.kind == "inconclusive"
    assert run.imbalance().verdict.ranks == ()
    assert run.compare().missing_ranks == (0, 1, 2)
    assert run.iterations()["wait_ns"].is_null().all()


@pytest.mark.slow
def test_one_report_gives_several_ranks(tmp_path: Path) -> None:
    report = captured("2022.4/one_report") / "mpirun_all_ranks.sqlite"
    run = rankscope.ingest([report], tmp_path / "run.duckdb", phases=COMPUTE)
    ranks = run.sql("select rank, evidence, pid from ranks order by rank")
    assert ranks["rank"].to_list() == [0, 1, 2, 3]
    assert {*ranks["evidence"]} == {"MPI trace"}
    assert ranks["pid"].n_unique() == 4
    assert run.ingested is not None
    assert [outcome.ranks for outcome in run.ingested.outcomes] == [(0, 1, 2, 3)]


def test_two_real_ranks_with_nccl_on_gpus(tmp_path: Path) -> None:
    """Two H100s in one report: kernels, launches and collectives by NCCL's own names."""
    report = public("nsys/mfu_2gpu_before.sqlite")
    run = rankscope.ingest([report], tmp_path / "run.duckdb", iteration="auto")
    assert run.sql("select rank from ranks order by rank")["rank"].to_list() == [0, 1]
    collectives = run.sql("select rank, iteration from collectives")
    assert collectives["rank"].value_counts(sort=True)["count"].to_list() == [2 * 16, 2 * 16]


def test_an_exchange_of_two_ranks_has_the_same_waits_by_its_name_and_by_its_ends(
    tmp_path: Path,
) -> None:
    """Real kernels of NCCL: ranges of operators say all-to-all; without them they are sends."""
    path = Path(shutil.copy(public("nsys/mfu_2gpu_before.sqlite"), tmp_path))
    waits = []
    for known in ("all_to_all", "point_to_point"):
        run = rankscope.ingest([path], tmp_path / f"{known}.duckdb", iteration="auto")
        operations = run.sql("select distinct operation from collectives")["operation"]
        assert operations.to_list() == [known]
        waits.append(run.imbalance().ranks.sort("rank")["wait_ns"].to_list())
        edit(path, "delete from NVTX_EVENTS where domainId = 0")
    assert waits[0][0] > 3 * waits[0][1] > 0, "rank 1 comes later"
    assert waits[1] == pytest.approx(waits[0], rel=0.01)


def paused(path: Path, pause: int, every: int) -> int:
    """Rank 1 of a real report stops for `pause` ns before its first exchange in some steps.

    Where it comes last already, rank 0 waits as much longer, and both go on later. Returns how
    often it stops.
    """
    first, last = (
        asked(
            path,
            "select k.start, k.end, r.start from CUPTI_ACTIVITY_KIND_KERNEL k join StringIds s "
            "on s.id = k.shortName join CUPTI_ACTIVITY_KIND_RUNTIME r on r.correlationId = "
            "k.correlationId and r.globalTid / 16777216 = k.globalPid / 16777216 "
            f"where s.value like 'nccl%' and k.deviceId = {rank} order by k.start",
        )[::2]
        for rank in (0, 1)
    )
    late = [
        (end, launch)
        for (start, end, _), (own, _, launch) in zip(first, last, strict=True)
        if own > start
    ]
    pids = dict(asked(path, "select distinct deviceId, globalPid from CUPTI_ACTIVITY_KIND_KERNEL"))
    owners = dict.fromkeys(("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION"), "globalPid")
    owners = {f"CUPTI_ACTIVITY_KIND_{name}": column for name, column in owners.items()}
    owners |= {"CUPTI_ACTIVITY_KIND_RUNTIME": "globalTid", "NVTX_EVENTS": "globalTid"}
    stops = late[1::every]
    for end, launch in reversed(stops):
        for table in owners.keys() & {*sqlite_tables(path)}:
            for rank, since in ((0, end), (1, launch)):
                edit(
                    path,
                    f"update {table} set start = start + {pause} * (start >= {since}), "
                    f"end = end + {pause} * (end >= {since}) "
                    f"where {owners[table]} / 16777216 = {pids[rank] // 16777216}",
                )
    return len(stops)


@pytest.mark.parametrize(("pause", "every"), mostly_slow([(8 * MS, 3), (3 * MS, 1)]))
def test_pauses_in_a_real_job_with_nccl_are_found_and_cost_what_they_last(
    tmp_path: Path, pause: int, every: int
) -> None:
    path = Path(shutil.copy(public("nsys/mfu_2gpu_before.sqlite"), tmp_path))
    lost = pause * paused(path, pause, every)
    assert lost > 35 * MS
    run = rankscope.ingest([path], tmp_path / "run.duckdb", iteration="auto")
    verdict = run.imbalance().verdict
    assert verdict.ranks == (1,)
    assert verdict.gain_ns is not None
    assert lost < verdict.gain_ns < 1.25 * lost


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    mostly_slow(
        [
            ("why_fsync", "blocked", "blocked in fsync"),
            ("why_gc", "garbage_collection", "garbage collection"),
            ("why_hot", "on_cpu", "computing"),
            ("why_preempted", "preempted", "off the CPU"),
        ],
    ),
)
def test_the_planted_reason_is_the_first_cause(
    ingested: MakeStored, name: str, cause: str, words: str
) -> None:
    run = ingested(captured(f"2023.4/{name}")).run
    verdict = run.imbalance().verdict
    assert (verdict.ranks, verdict.cause) == ((1,), "load")
    assert verdict.findings[0].kind == cause
    assert verdict.findings[0].share > 0.5
    assert f"({words}" in verdict.sentence or f"of {words}" in verdict.sentence
    # The states of a phase add up to its time on the host clock.
    sums = run.sql(
        "select rank, iteration, phase, sum(total_ns)::bigint as total_ns from host_states "
        "group by all"
    )
    phases = run.iterations().unpivot(
        [f"{part}_ns" for part in PARTS], index=["rank", "iteration"], variable_name="phase"
    )
    both = phases.with_columns(pl.col("phase").str.strip_suffix("_ns")).join(
        sums, on=["rank", "iteration", "phase"], how="left"
    )
    # What is loading in the first iteration, nobody knows; it counts as other.
    known = both.filter(pl.col("iteration") > 0)
    assert known.height > 4 * 15
    assert (known["total_ns"].fill_null(0) == known["value"]).all()


@pytest.mark.slow
def test_a_hot_python_function_is_named(ingested: MakeStored) -> None:
    """Of the samples in the interpreter at least 90 % are of the planted function."""
    run = ingested(captured("2023.4/why_hot")).run
    first = run.imbalance().verdict.findings[0]
    assert first.name == "tokenize_documents (rank.py)"
    assert int(first.detail.partition(" %")[0]) >= 90


def test_a_collective_that_backward_hides_holds_nobody_up(ingested: MakeStored) -> None:
    """The first bucket is reduced during backward; the other rank waits for the second alone."""
    verdict = ingested(captured("torch/ddp_overlapped")).run.imbalance().verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("persistent", (0,), "forward")
    assert verdict.gain == pytest.approx(0.152, rel=0.1)


def test_reports_that_lost_records_of_the_device(ingested: MakeStored) -> None:
    """Ranks 0 and 2 lost all, 1 and 3 those of the main thread; the ranges show the slow load."""
    folder = captured("2024.2/ddp_cuda")
    for run in (ingested(folder).run, ingested(folder, ranks=(1, 3)).run):
        verdict = run.imbalance().verdict
        assert (verdict.kind, verdict.ranks, verdict.cause) == ("persistent", (1,), "load")
        assert verdict.excess_ns == pytest.approx(50 * MS, rel=0.02)
        assert verdict.gain_is_bound


TABLES = "select name from sqlite_master where type = 'table'"


def texts(path: Path) -> str:
    """Every text in a capture, a line each."""
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode()
    export = capture(str(path.relative_to(CAPTURES).with_suffix("")))
    with closing(sqlite3.connect(export)) as file:
        tables = [name for (name,) in file.execute(TABLES)]
        rows = [row for table in tables for row in file.execute(f'select * from "{table}"')]
    return "\n".join(value for row in rows for value in row if isinstance(value, str))


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    sorted(path for path in CAPTURES.rglob("*") if path.suffix in (".xz", ".gz")),
    ids=lambda path: str(path.relative_to(CAPTURES)),
)
def test_reduced_captures_say_nothing_about_people_and_machines(path: Path) -> None:
    said = texts(path)
    folder = r"/(?:home|root|usr|opt|tmp|work|mnt|data|private|etc|var|users?)/"
    address = r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|\w@\w+\.\w"
    secret = r"(?i)secret|passw|token=|api_?key"
    for pattern in (folder, address, secret):
        assert not re.search(pattern, said), pattern
    assert {*re.findall(r"\b([A-Z][A-Z0-9_]{2,})=\S", said)} <= VARIABLES
