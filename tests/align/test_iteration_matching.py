"""Iterations without numbers: paired by what their collectives tell, else refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.errors import ReportError
from tests.forge import Markers, forge, scene
from tests.support import Stored


@pytest.mark.parametrize("late", [1, 2, 5])
def test_captures_that_start_late_are_shifted(stored: Callable[..., Stored], late: int) -> None:
    job = stored("late_capture", late=late)
    analysis = job.analysis()
    codes = {problem.code: problem for problem in analysis.warnings}
    assert codes["windows-shifted"].ranks == (3,)
    assert f"rank 3 by {late}" in codes["windows-shifted"].message
    assert analysis.facts.matched_by == "ordinal"
    verdict = analysis.verdict
    assert (verdict.kind, verdict.ranks, verdict.period) == ("periodic", (0,), 7)
    assert verdict.iterations == tuple(i for i in range(0, 30, 7) if i >= late and i)


def test_numbers_need_no_pairing(stored: Callable[..., Stored]) -> None:
    analysis = stored("late_capture", numbered=True).analysis()
    assert analysis.facts.matched_by == "number"
    assert {problem.code for problem in analysis.warnings} == {"iterations-uneven"}
    assert analysis.selection.numbers + analysis.selection.warmup == tuple(range(2, 30))


def test_counting_alone_is_told(stored: Callable[..., Stored]) -> None:
    job = stored("planted", kind="balanced")
    assert "matched-by-ordinal" not in {problem.code for problem in job.analysis().warnings}
    analysis = stored("late_capture", late=0).analysis()
    assert analysis.facts.matched_by == "ordinal"
    assert "matched-by-ordinal" in {problem.code for problem in analysis.warnings}
    assert "windows-shifted" not in {problem.code for problem in analysis.warnings}


def test_sequences_that_fit_nowhere_are_refused(tmp_path: Path) -> None:
    job = scene("no_sync", ranks=4, iterations=24, every=4)
    job = replace(job, markers=Markers(iteration="train_step"))
    forge(job, tmp_path / "a")
    forge(replace(job, reduce_every=3), tmp_path / "b")
    reports = [tmp_path / folder / f"report_rank_{rank}.sqlite" for folder, rank in
               (("a", 0), ("a", 1), ("b", 2), ("a", 3))]  # fmt: skip
    with pytest.raises(ReportError, match="rank 2") as refused:
        rankscope.ingest(reports, tmp_path / "run.duckdb").imbalance()
    assert "number the ranges" in refused.value.hint


def test_a_late_capture_where_only_the_sequence_tells(tmp_path: Path) -> None:
    """Every fourth iteration reduces; with the clocks unknown the pattern alone fits."""
    job = scene("no_sync", ranks=4, iterations=24, every=4)
    export = replace(job.export, capture_from=(0, 0, 0, 3))
    forge(replace(job, markers=Markers(iteration="train_step"), export=export), tmp_path)
    run = rankscope.ingest([tmp_path], tmp_path / "run.duckdb")
    starts = run.iterations().group_by("rank").agg(pl.col("iteration").min()).sort("rank")
    assert starts["iteration"].to_list() == [0, 0, 0, 3]
