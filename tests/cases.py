"""What tests of small faulty jobs share: the job is ingested, and the slow rank must be found."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rankscope
from rankscope.errors import ReportError
from tests.pytorch_job import Job

EXTRA_MS = 4.0
PLAIN = Job(between=None)


def read(folder: Path, **options: Any) -> rankscope.Run:
    return rankscope.ingest([folder], folder.with_suffix(".duckdb"), jobs=1, **options)


def hint_of(folder: Path) -> str:
    """What is proposed where reports cannot be ingested."""
    with pytest.raises(ReportError) as refused:
        read(folder)
    return refused.value.hint or ""


def codes(run: rankscope.Run) -> dict[str, str]:
    return {each.code: each.message for each in run.compare().warnings}


def mean_ms(run: rankscope.Run, metric: str) -> dict[int, float]:
    """rank → mean of a metric in the selected iterations, ms."""
    rows = run.compare().rows([metric])
    means = rows.group_by("rank").agg(pl.col(f"{metric}_ns").mean() / 1e6).sort("rank")
    return dict(means.iter_rows())


def assert_slow(run: rankscope.Run, rank: int = 2) -> None:
    """The slow rank is found, with what it costs, or an upper bound of that."""
    verdict = run.compare().verdict
    steps = len(run.compare().facts.iterations)
    assert (verdict.kind, verdict.ranks) == ("persistent", (rank,)), verdict.sentence
    assert verdict.gain_ns is not None
    gain = verdict.gain_ns / 1e6 / steps
    assert gain == pytest.approx(EXTRA_MS, rel=0.06) or (verdict.gain_is_bound and gain >= 3.9)
