"""The reports that ship with the project give the answers their READMEs promise."""

import json
from pathlib import Path

import polars as pl
import pytest

import rankscope
from tests.support import (
    MS,
    SAMPLE,
    MakeStored,
    Stored,
    assert_adds_up,
    mostly_slow,
    slowest_by_iteration,
)

SIMULATED = SAMPLE.parent / "gpu_simulated_4ranks"
SLOW_LOADS = [2, 7, 12, 17, 22, 27]


def test_rank_2_loads_slowly_every_fifth_iteration(sample: Stored) -> None:
    verdict = sample.run.imbalance().verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("periodic", (2,), "load")
    assert (verdict.period, verdict.iterations) == (5, tuple(SLOW_LOADS))
    slowest = slowest_by_iteration(sample.run, "load")
    assert {slowest[i] for i in SLOW_LOADS} == {2}
    [load] = sample.run.imbalance(["load"]).metrics
    assert load.max.rank == 2


def test_rank_1_has_one_slow_backward(sample: Stored) -> None:
    rows = sample.run.iterations().filter(iteration=18)
    assert rows.filter("flagged").select("rank", "cause").rows() == [(1, "backward")]
    (also,) = sample.run.imbalance().verdict.also
    assert (also.ranks, also.iterations) == ((1,), (18,))
    assert rows.filter(rank=1)["backward_ns"].item() > 60 * MS


@pytest.mark.parametrize("absent", mostly_slow([3, 0]))
def test_a_missing_report_denies_neither_rank_its_events(tmp_path: Path, absent: int) -> None:
    """Both slow ranks are most of those with a report, and one lies beyond all but the other."""
    reports = [each for each in SAMPLE.glob("*.sqlite") if f"rank_{absent}" not in each.name]
    run = rankscope.ingest(reports, tmp_path / "run.duckdb")
    for limits in (None, slice(10, 50), slice(10, 20)):
        assert {*run.imbalance(iter_range=limits).verdict.named} == {1, 2}, limits


def test_the_readme_tells_the_planted_iterations() -> None:
    text = (SAMPLE / "README.md").read_text(encoding="utf-8")
    assert ", ".join(map(str, SLOW_LOADS)) in text
    assert "i == 18" in text


@pytest.mark.slow
def test_of_a_whole_capture_the_reductions_of_all_steps_count(tmp_path: Path) -> None:
    """The time to the last one is nearly all work, not that of the first step."""
    result = rankscope.ingest([SAMPLE], tmp_path / "run.duckdb", iteration="whole").imbalance()
    means = {each.metric: each.mean for each in result.metrics}
    assert 0.8 * means["work"] < means["time_to_all_reduce"] < means["work"]


def test_picks_open_with_the_reports_beside_the_exports(sample: Stored) -> None:
    picks = sample.run.pick_reports()
    assert [pick.label for pick in picks.picks] == ["min", "median", "max", "slow"]
    assert picks.picks[2].rank == 2
    assert len(picks.files) == 4
    assert all(file.suffix == ".nsys-rep" and file.is_file() for file in picks.files)
    assert picks.total_bytes == sum(file.stat().st_size for file in picks.files)
    assert picks.unopenable == ()


def test_the_simulated_gpu_job(ingested: MakeStored) -> None:
    truth = json.loads((SIMULATED / "truth.json").read_text(encoding="utf-8"))
    [plant] = truth["plants"]
    run = ingested(SIMULATED).run
    verdict = run.imbalance().verdict
    assert run.compare().clock == "gpu"
    assert list(verdict.ranks) == plant["ranks"]
    assert (verdict.cause, verdict.period) == (plant["where"], plant["every"])
    hits = {(rank, i) for rank, i in plant["hits"]}
    flagged = run.iterations().filter(pl.col("flagged").fill_null(False))
    assert {*flagged.select("rank", "iteration").iter_rows()} == hits


def test_the_traces_of_the_pytorch_profiler(ingested: MakeStored) -> None:
    run = ingested(SAMPLE.parent / "torch_profiler_2ranks").run
    verdict = run.imbalance().verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("periodic", (1,), "load")
    assert (verdict.period, verdict.iterations) == (5, (3, 8, 13, 18, 23))
    assert verdict.excess_ns == pytest.approx(150 * MS, rel=0.05)
    assert_adds_up(run.iterations())
    slow = run.iterations().filter(pl.col("iteration").is_in(verdict.iterations), rank=0)
    assert (slow["wait_ns"] > 130 * MS).all()


@pytest.mark.parametrize(
    "folder", sorted(path.name for path in SAMPLE.parent.iterdir() if path.is_dir())
)
def test_each_sample_says_what_it_is(folder: str) -> None:
    readme = SAMPLE.parent / folder / "README.md"
    assert readme.is_file()
    if "simulated" in folder:
        assert "simulated" in readme.read_text(encoding="utf-8").lower()


def test_samples_are_small() -> None:
    assert sum(file.stat().st_size for file in SAMPLE.iterdir()) < 4_000_000
