"""What a rank costs that is late for a reason which lies between two steps."""

from __future__ import annotations

from pathlib import Path

import pytest

import rankscope
from tests.jobs import Plant, lengths, play, write
from tests.jobs.scene import ddp, plant
from tests.support import MS


@pytest.mark.slow
def test_a_rank_that_logs_after_its_optimizer_costs_what_its_log_takes(tmp_path: Path) -> None:
    """Its device idles at the begin of the next window, before all collectives of the step."""
    healthy = ddp("logging", 4, 2, 16, checkpoint_every=1)
    job = plant(healthy, Plant("stall", (0,), extra_ns=9 * MS, phase="checkpoint"))
    played = play(job)
    write(job, played, tmp_path)
    lost = sum(lengths(played.ends)[1:]) - sum(lengths(play(healthy, record=False).ends)[1:])
    rankscope.ingest([tmp_path], tmp_path / "run.duckdb", jobs=1)
    comparison = rankscope.open_run(tmp_path / "run.duckdb").compare()
    assert comparison.clock == "gpu"
    assert comparison.verdict.ranks == (0,), comparison.verdict.sentence
    assert comparison.verdict.gain_ns == pytest.approx(lost, rel=0.07)
