"""The verdict on a part of the iterations has the leading rank of the whole run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import rankscope
from tests.invariants import contradictions
from tests.support import Stored, capture, mostly_slow


@pytest.mark.parametrize(
    ("name", "more"),
    mostly_slow(
        [
            ("buckets", {}),
            ("planted", {"kind": "persistent", "where": "backward"}),
            ("planted", {"kind": "periodic", "where": "load"}),
            ("mpi_like", {}),
        ],
        1,
        1,
    ),
)
def test_half_of_the_run_has_the_same_leading_rank(
    stored: Callable[..., Stored], name: str, more: dict[str, str]
) -> None:
    job = stored(name, **more)
    whole = job.analysis()
    numbers = whole.selection.numbers
    middle = numbers[len(numbers) // 2]
    for part in (slice(None, middle), slice(middle, None)):
        assert job.analysis(iter_range=part).verdict.ranks == whole.verdict.ranks, part


@pytest.mark.slow
def test_a_narrower_range_of_a_capture_leads_with_the_same_rank(
    tmp_path: Path,
) -> None:
    """The line of the README: rank 1 is slow in every seventh iteration, rank 2 once."""
    run = rankscope.ingest([capture("captured/2022.4/ddp_a")], tmp_path / "run.duckdb")
    for part in (None, slice(10, 50)):
        verdict = run.imbalance(iter_range=part).verdict
        assert (verdict.kind, verdict.ranks, verdict.period) == ("periodic", (1,), 7)
        (also,) = verdict.also
        assert (also.ranks, also.iterations, also.cause) == ((2,), (20,), "backward")


def test_contradictions_are_found(stored: Callable[..., Stored]) -> None:
    """The check itself can fail."""
    found = stored("planted", kind="persistent", where="backward").analysis()
    for wrong in (
        {"ranks": (0,)},
        {"gain": 0.005},
        {"gain_all": 0.01},
        {"gain_all_ns": 5},
        {"gain_ns": 5},
    ):
        verdict = replace(found.verdict, **wrong)
        assert list(contradictions(replace(found, _verdict=verdict))), wrong
