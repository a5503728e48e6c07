"""Ranks in detail on one clock: windows filled, ends that agree, reports that are not there."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rankscope
from rankscope.compare.stages import compare
from rankscope.compare.timeline import ORDERS, timeline, timelines
from rankscope.errors import ReportError, UsageError
from rankscope.measure.report import ReportDetail, details
from rankscope.model.kinds import PARTS
from rankscope.model.options import Options, ShapingOptions
from rankscope.model.reports import ReportFile
from rankscope.model.results import Timeline
from rankscope.model.timeline import (
    TIMELINE_COLLECTIVES,
    TIMELINE_OPERATIONS,
    TIMELINE_PHASES,
    TIMELINE_RANKS,
    TIMELINE_WINDOWS,
)
from tests import pytorch_job
from tests.forge import Clock, forge, scene
from tests.support import SAMPLE, MakeStored, Stored, copied, edit, mostly_slow

WINDOW = ["rank", "iteration", "clock"]


def filled(timeline: Timeline) -> None:
    """Every window is filled by its phases, which touch and never overlap."""
    spans = (
        timeline.phases.sort("start_ns")
        .group_by(WINDOW)
        .agg(
            start_ns=pl.col("start_ns").first(),
            end_ns=pl.col("end_ns").last(),
            touching=(pl.col("start_ns").shift(-1) == pl.col("end_ns")).all(),
            forward=(pl.col("end_ns") > pl.col("start_ns")).all(),
        )
        .sort(WINDOW)
    )
    assert spans["touching"].all()
    assert spans["forward"].all()
    assert spans.select(timeline.windows.columns).equals(timeline.windows.sort(WINDOW))


def sums(timeline: Timeline) -> pl.DataFrame:
    """The phases added up: a row per window, a column per part."""
    length = pl.col("end_ns") - pl.col("start_ns")
    return timeline.phases.group_by(WINDOW).agg(
        length.filter(pl.col("phase") == part).sum().alias(f"{part}_ns") for part in PARTS
    )


@pytest.mark.slow
def test_it_is_the_same_from_cached_answers(stored: MakeStored) -> None:
    analysis = stored("buckets").analysis()
    numbers = analysis.selection.numbers[3:5]
    cached = timeline(analysis, (0, 2), numbers)
    computed = timeline(compare(analysis.tables, Options()), (0, 2), numbers)
    for name in ("ranks", "windows", "phases", "operations"):
        assert getattr(cached, name).equals(getattr(computed, name)), name
    one, other = cached.collectives, computed.collectives
    assert one.drop("instance").equals(other.drop("instance"))
    assert one["wait_ns"].null_count() < one.height
    assert one["instance"].rank("dense").equals(other["instance"].rank("dense"))


@pytest.mark.parametrize(
    "name", mostly_slow(["autograd", "cuda_graph", "host_only", "dali", "no_launch_record"], slow=2)
)
def test_phases_fill_the_windows_and_add_up_to_the_numbers(stored: MakeStored, name: str) -> None:
    """Of the lowest rank to the nanosecond: its clock is the axis."""
    job = stored(name)
    timeline = job.run.timeline([0, 3], range(30))
    filled(timeline)
    stored_numbers = job.run.compare().tables.table("measures").filter(pl.col("rank") == 0)
    both = sums(timeline).join(stored_numbers, on=WINDOW, suffix="_stored")
    assert both.height == stored_numbers["iteration_ns"].count()
    for part in PARTS:
        known = both.drop_nulls(f"{part}_ns_stored")
        assert (known[f"{part}_ns"] == known[f"{part}_ns_stored"]).all(), part


def test_its_frames_are_as_promised(stored: MakeStored) -> None:
    job = stored("autograd")
    timeline = job.run.timeline([3, 0], [4, 6])
    for frame, schema in (
        (timeline.ranks, TIMELINE_RANKS),
        (timeline.windows, TIMELINE_WINDOWS),
        (timeline.phases, TIMELINE_PHASES),
        (timeline.operations, TIMELINE_OPERATIONS),
        (timeline.collectives, TIMELINE_COLLECTIVES),
    ):
        assert frame.schema == schema
        assert not frame.is_empty()
    assert timeline.ranks["rank"].to_list() == [3, 0], "in the order asked for"
    assert timeline.windows["start_ns"].min() == 0
    for frame in (timeline.phases, timeline.operations, timeline.collectives):
        assert {*frame["rank"]} == {0, 3}
        assert {*frame["iteration"]} == {4, 6}
        assert frame["start_ns"].min() >= 0
        assert (frame["end_ns"] >= frame["start_ns"]).all()
    assert {*timeline.operations["kind"]} >= {"kernel", "collective"}
    launched = timeline.operations.drop_nulls("launch_ns")
    assert (launched["launch_ns"] <= launched["start_ns"]).all()


@pytest.mark.slow
def test_operations_and_collectives_are_those_of_the_database(
    stored: MakeStored,
) -> None:
    job = stored("buckets")
    timeline = job.run.timeline([0, 1, 2, 3], range(30))
    counted = ["rank", "iteration"]
    output = timeline.collectives.group_by(counted).len().sort(counted)
    kept = job.run.compare().tables.collectives.group_by(counted).len().sort(counted)
    assert output.equals(kept)
    kernels = timeline.operations.filter(pl.col("kind") == "collective")
    assert kernels.group_by(counted).len().sort(counted).equals(kept)


@pytest.mark.slow
def test_its_parts_are_read_one_after_the_other(
    stored: MakeStored, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stored("buckets")
    read: list[str] = []

    def noted(file: ReportFile, options: ShapingOptions) -> ReportDetail:
        read.append(file.path.name)
        return details(file, options)

    whole = job.timeline([3, 0, 1], [6, 7])
    monkeypatch.setattr("rankscope.compare.timeline.details", noted)
    for count, part in enumerate(timelines(job.analysis(), [3, 0, 1], [6, 7], states=True), 1):
        assert len(read) == count
        [rank] = part.ranks["rank"]
        assert part.ranks.equals(whole.ranks.filter(rank=rank))
        for name in ORDERS:
            assert getattr(part, name).equals(getattr(whole, name).filter(rank=rank)), name
        assert (part.origin_utc_ns, part.problems) == (whole.origin_utc_ns, whole.problems)
    assert len({*read}) == 3


@pytest.mark.slow
def test_clocks_that_are_seconds_apart_and_drift_become_one(tmp_path: Path) -> None:
    """Every moment lies where the simulator knows that it lay, up to a common shift."""
    clocks = (Clock(0, 0.0), Clock(3_000_000_000, 60.0), Clock(-2_000_000_000, -45.0))
    job = replace(scene("planted", ranks=3, kind="transient"), clocks=clocks, ranks_per_host=1)
    truth = forge(job, tmp_path / "reports")
    run = rankscope.ingest([tmp_path / "reports"], tmp_path / "run.duckdb")
    timeline = run.timeline([2, 0, 1], range(30))
    filled(timeline)
    assert timeline.ranks["axis"].to_list() == ["aligned"] * 3
    assert timeline.problems == ()
    order = ["rank", "iteration", "end_ns"]
    really = pl.DataFrame(truth.collectives).sort(order)
    output = timeline.collectives.sort(order)
    for moment in ("arrival", "start", "end"):
        off = output[f"{moment}_ns"] - really[f"{moment}_utc_ns"]
        assert off.max() - off.min() < 20_000, moment
    apart = output.group_by("iteration", "ordinal").agg(
        spread=pl.col("end_ns").max() - pl.col("end_ns").min()
    )
    assert apart["spread"].max() < 20_000
    assert output["wait_ns"].max() > 5_000_000
    assert {*output.filter(pl.col("wait_ns") > 5_000_000)["last_rank"]} == {2}, "who was planted"


@pytest.mark.slow
def test_ranks_that_nothing_ties_together_say_so(tmp_path: Path) -> None:
    job = replace(scene("plain", ranks=3, iterations=6), buckets=0, ranks_per_host=1)
    forge(job, tmp_path / "reports")
    edit(
        tmp_path / "reports" / "report_rank_2.sqlite",
        "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = null",
    )
    run = rankscope.ingest([tmp_path / "reports"], tmp_path / "run.duckdb")
    timeline = run.timeline([0, 1, 2], [3])
    filled(timeline)
    assert timeline.ranks["axis"].to_list() == ["utc", "utc", "own"]
    assert timeline.ranks["residual_ns"].to_list() == [None, None, None]
    codes = [problem.code for problem in timeline.problems]
    assert codes == ["not-aligned", "not-aligned", "collectives-missing"]
    assert [problem.ranks for problem in timeline.problems] == [(0, 1), (2,), (0, 1, 2)]
    begins = timeline.windows.group_by("rank").agg(pl.col("start_ns").min()).sort("rank")
    assert begins["start_ns"].to_list()[2] == 0, "for want of anything better"
    assert begins["start_ns"].max() < 1_000_000_000


@pytest.mark.slow
def test_captures_that_start_at_different_steps_show_the_same_step(
    stored: MakeStored,
) -> None:
    """Iterations without numbers are shifted as the analysis shifts them."""
    job = stored("late_capture")
    timeline = job.run.timeline([0, 3], [10])
    ends = timeline.collectives.group_by("ordinal").agg(
        ranks=pl.len(), spread=pl.col("end_ns").max() - pl.col("end_ns").min()
    )
    assert (ends["ranks"] == 2).all()
    assert ends["spread"].max() < 100_000
    filled(timeline)


@pytest.mark.slow
def test_reports_that_are_gone_or_changed(tmp_path: Path) -> None:
    reports = copied(sorted(SAMPLE.glob("*.sqlite")), tmp_path / "reports")
    run = rankscope.ingest([tmp_path / "reports"], tmp_path / "run.duckdb")
    os.utime(reports[1], ns=(1, 1))
    assert run.timeline([0, 2], [4]).ranks.height == 2, "only the ranks asked for are read"
    with pytest.raises(ReportError, match=r"report_rank_1\.sqlite: has changed"):
        run.timeline([0, 1], [4])
    reports[1].unlink()
    with pytest.raises(ReportError, match=r"report_rank_1\.sqlite: is gone"):
        run.timeline([0, 1], [4])


def test_what_the_run_has_not(sample: Stored) -> None:
    with pytest.raises(UsageError, match="rank 7 is not"):
        sample.run.timeline([0, 7], [4])
    with pytest.raises(UsageError, match="iteration 400 is on none"):
        sample.run.timeline([0], [4, 400])
    with pytest.raises(UsageError, match="no ranks"):
        sample.run.timeline([], [4])
    with pytest.raises(UsageError, match="no iterations"):
        sample.run.timeline([0], [])


@pytest.mark.slow
def test_reports_that_only_their_names_together_tell_apart(tmp_path: Path) -> None:
    """The number in which a name differs from the others is the rank, also at a second reading."""

    def nameless(_rank: int, trace: dict[str, Any]) -> None:
        del trace["distributedInfo"]

    folder = pytorch_job.write(
        tmp_path / "traces", pytorch_job.Job(steps=5), nameless, "1718.32-TP-{}-DP-0.trace.json"
    )
    run = rankscope.ingest([folder], tmp_path / "run.duckdb")
    assert run.timeline(ranks=[1, 3], iterations=[2]).ranks["rank"].to_list() == [1, 3]
