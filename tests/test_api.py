"""The Python API: runs, options, missing ranks, environments, whole captures."""

import re
from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.errors import NoIterations, UnknownRank, UsageError
from rankscope.model.metrics import METRICS
from rankscope.model.tables import metric_dtype
from tests.support import MakeForged, Stored, copied, edit, without_rank

DOCS = Path(rankscope.__file__).parent / "docs"


@pytest.fixture
def pair(forged: MakeForged, tmp_path: Path) -> list[Path]:
    """Reports of two ranks to change."""
    return copied(forged("plain", ranks=2, iterations=12).reports, tmp_path / "reports")


def evidence(run: rankscope.Run) -> list[tuple[int, str]]:
    return run.sql("select rank, evidence from ranks order by rank").rows()


def test_the_frame_of_iterations(sample: Stored) -> None:
    frame = rankscope.open_run(sample.db).iterations()
    assert isinstance(frame, pl.DataFrame)
    assert frame.select("rank", "iteration").is_unique().all()
    for metric in METRICS.values():
        assert frame.schema[metric.column] == metric_dtype(metric)
    assert (frame.schema["flagged"], frame.schema["cause"]) == (pl.Boolean, pl.String)
    assert frame.filter(iteration=0)["flagged"].is_null().all(), "warm-up is not judged"
    assert frame.filter(pl.col("cause").is_not_null())["flagged"].all()


def test_the_query_of_the_document_gives_the_means_of_the_table(sample: Stored) -> None:
    page = (DOCS / "PYTHON.md").read_text("utf-8")
    [query] = re.findall(r'"(select [^"]*avg\(work_ns\)[^"]*)"', page)
    means = {rank: round(mean) for rank, mean in sample.run.sql(query).rows()}
    table = sample.run.imbalance().ranks
    assert means == dict(table.select("rank", "work_ns").iter_rows())
    rows = sample.run.iterations()
    chosen = sample.run.compare().selection.numbers
    assert {*rows.filter("selected")["iteration"]} == {*chosen}
    assert not rows.filter(iteration=0)["selected"].any(), "warm-up"
    some = sample.run.iterations(iter_range=(3, 6)).filter("selected")
    assert {*some["iteration"]} == {3, 4, 5}


def test_a_range_of_iterations_in_every_spelling(sample: Stored) -> None:
    spellings = (slice(10, 20), "10:20", (10, 20), slice(10, 20, 1))
    found = [sample.run.imbalance(iter_range=each).iterations for each in spellings]
    assert all(each.equals(found[0]) for each in found)
    assert found[0]["iteration"].to_list() == [*range(10, 20)]
    assert sample.run.imbalance(iter_range=(-3, None)).iterations.height == 3
    for wrong in ("10", "a:b", (1, 2, 3), slice(0, 10, 2), ("1", "2"), [1, 2, 3, 4]):
        with pytest.raises(UsageError) as caught:
            sample.run.imbalance(iter_range=wrong)
        assert "10:50" in caught.value.hint


def test_options_that_do_not_exist(sample: Stored) -> None:
    with pytest.raises(TypeError, match="clok"):
        sample.run.imbalance(clok="gpu")  # type: ignore[call-arg]
    for options in ({"clock": "sun"}, {"statistic": "mode"}):
        with pytest.raises(UsageError):
            sample.run.imbalance(**options)
    with pytest.raises(UsageError, match="--clock gpu"):
        sample.run.imbalance(clock="gpu")
    with pytest.raises(UsageError):
        rankscope.ingest([sample.folder], sample.db, on_error="ignore")


def test_missing_ranks_are_named_and_leave_waits_unknown(
    reports: list[Path], tmp_path: Path
) -> None:
    run = rankscope.ingest([reports[0], reports[1], reports[3]], tmp_path / "run.duckdb")
    facts = run.compare().facts
    assert (facts.missing_ranks, facts.world_size) == ((2,), 4)
    [problem] = [each for each in run.compare().warnings if each.code == "missing-ranks"]
    assert problem.ranks == (2,)
    frame = run.iterations()
    for name in ("wait_ns", "collective_wait_ns", "collective_transfer_ns"):
        assert frame[name].is_null().all()
    assert frame["work_ns"].is_not_null().all()
    ranks = run.imbalance().ranks
    for name in ("last_arriver_share", "cost_ns", "gain_ns"):
        assert ranks[name].is_null().all()
    verdict = run.imbalance().verdict
    assert (verdict.kind, verdict.ranks) == ("inconclusive", ())
    assert "missing" in verdict.sentence + verdict.next


@pytest.mark.slow
def test_a_hole_in_the_ranks_is_missing_even_if_nobody_tells_the_world(
    reports: list[Path], tmp_path: Path
) -> None:
    for report in reports:
        without_rank(report)
    run = rankscope.ingest(reports[1:], tmp_path / "run.duckdb")
    assert run.compare().facts.world_size is None
    assert run.compare().facts.missing_ranks == (0,)


def test_the_users_pattern(pair: list[Path], tmp_path: Path) -> None:
    moved = copied(pair, tmp_path, ["n1.sqlite", "n0.sqlite"])
    run = rankscope.ingest(moved, tmp_path / "run.duckdb", rank_pattern=r"n(?P<rank>\d)\.sqlite$")
    assert evidence(run) == [(rank, "--rank-pattern") for rank in range(2)]
    paths = run.sql("select path from ranks order by rank")["path"]
    assert [Path(path).name for path in paths] == ["n0.sqlite", "n1.sqlite"]


@pytest.mark.slow
def test_a_name_that_disagrees_is_reported(reports: list[Path], tmp_path: Path) -> None:
    names = [f"report_rank_{rank}.sqlite" for rank in (3, 2, 1, 0)]
    moved = copied(reports, tmp_path / "moved", names)
    run = rankscope.ingest(moved, tmp_path / "run.duckdb")
    assert evidence(run) == [(rank, "environment RANK") for rank in range(4)]
    problems = [each for each in run.compare().warnings if each.code == "file-name-disagrees"]
    assert len(problems) == 4


def test_no_evidence_at_all(reports: list[Path], tmp_path: Path) -> None:
    names = ["profile.sqlite", "other.sqlite"]
    nameless = [*map(without_rank, copied(reports[:2], tmp_path, names))]
    with pytest.raises(UnknownRank, match=r"(profile|other)\.sqlite") as refused:
        rankscope.ingest(nameless, tmp_path / "run.duckdb")
    assert "--rank-pattern" in refused.value.hint
    assert "--rank N" in refused.value.hint


@pytest.mark.slow
def test_the_only_report_is_rank_0(reports: list[Path], tmp_path: Path) -> None:
    first, second = map(without_rank, copied(reports[:2], tmp_path, ["a.sqlite", "b.sqlite"]))
    run = rankscope.ingest([first], tmp_path / "run.duckdb")
    assert run.iterations()["rank"].unique().to_list() == [0]
    [assumed] = [each for each in run.compare().warnings if each.code == "rank-assumed"]
    assert "a.sqlite" in assumed.message
    assert "--rank N" in assumed.message
    assert run.timeline([0], [3]).windows["rank"].unique().to_list() == [0], "read again"
    with pytest.raises(UnknownRank, match=r"b\.sqlite"):  # beside another, nothing is assumed
        rankscope.ingest([second], tmp_path / "run.duckdb")
    both = rankscope.ingest([second], tmp_path / "run.duckdb", rank=5)
    assert both.iterations()["rank"].unique().sort().to_list() == [0, 5]
    assert "options-differ" not in {each.code for each in both.compare().warnings}
    assert both.timeline([5], [3]).windows["rank"].unique().to_list() == [5]
    with pytest.raises(UsageError, match="--rank 5 is for one report, but there are 2"):
        rankscope.ingest([first, second], tmp_path / "run.duckdb", rank=5)


@pytest.mark.slow
def test_names_that_fit_nothing_are_listed_most_frequent_first(
    pair: list[Path], tmp_path: Path
) -> None:
    for report in pair:
        edit(report, "update NVTX_EVENTS set text = 'do ' || text where text like 'step %'")
    with pytest.raises(NoIterations) as refused:
        rankscope.ingest(pair, tmp_path / "run.duckdb", iteration="lap")
    assert "'do step N' (12)" in refused.value.message
    assert "forward" in refused.value.message
    assert "--iteration" in refused.value.hint
    run = rankscope.ingest(pair, tmp_path / "run.duckdb", iteration=r"do step (\d+)")
    assert run.iterations()["iteration"].unique().sort().to_list() == [*range(12)]


@pytest.mark.slow
def test_a_whole_capture_as_one_iteration(pair: list[Path], tmp_path: Path) -> None:
    run = rankscope.ingest(pair, tmp_path / "run.duckdb", iteration="whole")
    frame = run.iterations(include_warmup=True)
    assert frame["iteration"].to_list() == [0] * 2
    assert frame["iteration_ns"].min() > 12 * 30_000_000
    verdict = run.imbalance(include_warmup=True).verdict
    assert (verdict.kind, verdict.ranks) == ("balanced", ()), "both ranks are healthy"


@pytest.mark.slow
def test_progress_is_reported(pair: list[Path], tmp_path: Path) -> None:
    started: list[list[Path]] = []
    done: list[tuple[Path, int]] = []
    rankscope.ingest(
        pair,
        tmp_path / "run.duckdb",
        started=lambda files: started.append([file.path for file in files]),
        progress=lambda file, events: done.append((file.path, events)),
    )
    assert started == [pair]
    assert sorted(path for path, _ in done) == pair
    assert all(events > 100 for _, events in done)


def test_a_query_may_give_columns_of_one_name(sample: Stored) -> None:
    joined = sample.run.sql("select * from reports join ranks on reports.path = ranks.path")
    assert {"path", "path_1"} <= {*joined.columns}
