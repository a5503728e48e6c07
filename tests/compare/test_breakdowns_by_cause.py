"""`imbalance --by cause`: what the training threads did, by phase, state and name."""

from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.compare.breakdowns import OF_CAUSES, by_cause
from rankscope.model.schema import HOST_STATES
from rankscope.store.tables import TableRequest, requested
from tests.frames import filled
from tests.support import Cli, MakeStored, captured


def test_a_rank_without_a_row_did_nothing_of_it() -> None:
    rows = [(rank, i, "load", "blocked", "read", 2, 100) for rank in range(3) for i in (1, 2)]
    rows += [(3, 1, "load", "blocked", "fsync", 4, 600), (3, 9, "load", "blocked", "fsync", 1, 1)]
    names = ["rank", "iteration", "phase", "state", "name", "count", "total_ns"]
    states = filled(pl.DataFrame(rows, names, orient="row"), HOST_STATES)
    selected = TableRequest("", OF_CAUSES, iterations=(1, 2), sums=("count", "total_ns"))
    found = by_cause(requested(states, selected), dict.fromkeys(range(4), "all"), 2)
    assert found.select("name", "mean_ns", "slowest_rank", "slowest_ns", "excess_ns").rows() == [
        ("fsync", 75, 3, 300, 300),
        ("read", 75, 0, 100, 0),
    ]


@pytest.mark.slow
def test_the_planted_call_stands_first(ingested: MakeStored, cli: Cli) -> None:
    db = ingested(captured("2023.4/why_fsync")).db
    rows = cli("imbalance", "--db", db, "--by", "cause", "--format", "json").document["rows"]
    first = {key: rows[0][key] for key in ("phase", "state", "name", "slowest_rank")}
    assert first == {"phase": "load", "state": "blocked", "name": "fsync", "slowest_rank": 1}
    assert "fsync" in cli("imbalance", "--db", db, "--by", "cause").out


@pytest.mark.slow
def test_reports_that_record_no_threads_say_so(tmp_path: Path, cli: Cli) -> None:
    db = tmp_path / "run.duckdb"
    rankscope.ingest([captured("2022.4/mpi")], db, phases={"backward": "Compute"})
    output = cli("imbalance", "--db", db, "--by", "cause")
    assert output.code == 0
    assert "No causes on the host to show" in output.out
    assert cli("imbalance", "--db", db, "--by", "cause", "--format", "json").document["rows"] == []
