"""Dumps of NCCL Inspector, made by its description: who comes last, and nothing that is unknown."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rankscope
from rankscope.errors import UnreadableReport
from rankscope.sources.discover import discover
from rankscope.sources.inspector import reader
from tests.forge import scene, simulate
from tests.forge.inspector_export import export_inspector
from tests.forge.job import Clock

SLOW = 3
"""The rank that is planted in the scene `planted`: 8 ms of work more in each iteration."""

Result = Any


def dumps(folder: Path, name: str = "planted", **parameters: Any) -> list[Path]:
    """The dumps of a simulated job whose hosts' clocks are seconds apart."""
    job = scene(name, ranks=4, iterations=12)
    clocks = tuple(Clock(rank * 3_000_000_000, 0.0) for rank in range(4))
    job = replace(job, clocks=clocks, ranks_per_host=1)
    return [export_inspector(job, each, folder, **parameters) for each in simulate(job).records]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rankscope.Run:
    folder = tmp_path_factory.mktemp("inspector")
    dumps(folder / "dumps")
    return rankscope.ingest([folder / "dumps"], folder / "run.duckdb", jobs=1)


@pytest.mark.slow
def test_who_comes_last_is_known_and_work_is_not(run: rankscope.Run) -> None:
    comparison = run.compare()
    assert len(comparison.selection.numbers) >= 9, "steps are found"
    assert comparison.verdict.kind == "inconclusive"
    assert comparison.verdict.ranks == ()
    last = comparison.waits().filter(pl.col("last_arriver_share") > 0.9)
    assert last["rank"].to_list() == [SLOW]
    assert run.plot("arrivals").title.startswith(f"Rank {SLOW} arrives")
    picks = run.pick_reports()
    assert (picks.metric, picks.picks[0].rank) == ("collective_wait", SLOW), "it waits least"
    rows = run.iterations().filter("selected")
    unknown = ("work", "wait", "compute", "communication", "idle", "exposed_communication")
    for name in unknown:
        assert rows[f"{name}_ns"].null_count() == rows.height, name
    others = rows.filter(pl.col("rank") != SLOW)["collective_wait_ns"]
    assert others.min() > 5_000_000
    assert rows.filter(rank=SLOW)["collective_wait_ns"].max() < others.min() / 5


@pytest.mark.slow
def test_the_waits_are_those_of_the_shortest_duration(run: rankscope.Run) -> None:
    """No common clock is needed: of one sequence number, the last rank's takes shortest."""
    shown = run.timeline(range(4), run.compare().selection.numbers).collectives
    length = pl.col("end_ns") - pl.col("start_ns")
    output = shown.with_columns(shortest=length == length.min().over("instance"))
    assert output["instance"].null_count() == 0
    late = output.drop_nulls("last_rank").filter(pl.col("rank") == pl.col("last_rank"))
    assert late.height > 40
    assert late["shortest"].mean() > 0.95


@pytest.mark.parametrize("version", ["v4.2", "v4.3"])
def test_operations_are_those_of_the_file(tmp_path: Path, version: str) -> None:
    path = dumps(tmp_path, "tensor_parallel", version=version)[1]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    calls = [line["coll_perf"] for line in lines if "coll_perf" in line]
    work = reader.read(path).device_work.whole.sort("end", "start")
    assert work.height == len(calls) > 100
    assert work["communicator"].n_unique() == work["stream"].n_unique() == 2
    assert {*work["operation"]} == {"all_reduce"}
    ends = sorted(call["event_trace_ts"]["kernel_events"][0]["kernel_stop_ts"] for call in calls)
    zero = ends[0] - work["end"][0] // 1000
    assert work["end"].to_list() == [(end - zero) * 1000 for end in ends]
    lengths = (work["end"] - work["start"]).sum()
    assert lengths == sum(call["coll_exec_time_us"] for call in calls) * 1000
    assert work["sequence"].null_count() == 0
    assert work["launch"].null_count() == work.height, "when it could have begun is not known"


def test_numbers_of_several_operations_are_no_sequence(tmp_path: Path) -> None:
    """NCCL counts each operation of a communicator by itself."""
    path = dumps(tmp_path)[0]
    text = path.read_text()
    path.write_text(text.replace('"AllReduce", "coll_sn": 1,', '"ReduceScatter", "coll_sn": 0,'))
    work = reader.read(path).device_work.whole
    assert {*work["operation"]} == {"all_reduce", "reduce_scatter"}
    assert work["sequence"].null_count() == work.height


def test_rank_host_and_losses(tmp_path: Path) -> None:
    path = dumps(tmp_path, "tensor_parallel")[1]
    text = path.read_text().replace('"coll_dropped_total": 0', '"coll_dropped_total": 7')
    path.write_text(text)
    facts = reader.facts(path)
    assert facts.environment == (), "rank 1 of one communicator, rank 0 of one as large"
    assert facts.host == "node1"
    [loss] = facts.losses
    assert "14 operations" in loss.text, "of two communicators"
    path = dumps(tmp_path / "data_parallel")[3]
    [claim] = reader.facts(path).environment
    assert (claim.rank, claim.world_size) == (3, 4)


def test_a_dump_without_times_is_refused(cli: Callable[..., Result], tmp_path: Path) -> None:
    dumps(tmp_path / "short", verbose=False)
    cli("ingest", tmp_path / "short").refused(
        3, "says when it ran", "NCCL_INSPECTOR_DUMP_VERBOSE=1"
    )


def test_check_foresees_the_verdict(cli: Callable[..., Result], tmp_path: Path) -> None:
    dumps(tmp_path / "dumps")
    checked = cli("check", tmp_path / "dumps").out
    assert checked.splitlines()[0].endswith("because the work of the ranks is unknown.")
    foreign = ("nsys", "--trace", "NVTX", "CUPTI", "cudaProfilerApi")
    assert not [word for word in foreign if word in checked]


def test_who_comes_last_is_shown(cli: Callable[..., Result], tmp_path: Path) -> None:
    dumps(tmp_path / "dumps")
    cli("ingest", tmp_path / "dumps", "--db", tmp_path / "run.duckdb")
    answer = cli("imbalance", "--db", tmp_path / "run.duckdb").out
    assert "collectives alone are recorded" in answer
    rows = [line.split() for line in answer.partition("By rank")[2].splitlines()]
    assert [row[-2:] for row in rows if row[:1] == [str(SLOW)]] == [["100", "%"]]
    assert {"collective_wait", "last"} <= {*rows[1]}
    assert "cost" not in rows[1]


def test_a_length_since_the_call_was_queued_tells_no_wait(tmp_path: Path) -> None:
    path = dumps(tmp_path)[0]
    path.write_text(path.read_text().replace('"kernel_gpu"', '"collective_cpu"', 1))
    assert reader.read(path).device_work.broken == 1


def test_other_logs_are_passed_over(tmp_path: Path) -> None:
    path = dumps(tmp_path)[0]
    (tmp_path / "train.log").write_text('{"loss": 1.5}\nepoch 1\n')
    assert path in [each.path for each in discover([tmp_path])]
    assert len(discover([tmp_path])) == 4


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("\n", "\n\0\xff{\n", 3),
        lambda text: text.replace('"coll_sn": 5', '"coll_sn": -5'),
        lambda text: text.replace('"coll_sn": 5', '"coll_sn": 1e999'),
    ],
    ids=range(4),
)
def test_damaged_lines_are_left_out(tmp_path: Path, spoil: Callable[[str], str]) -> None:
    path = dumps(tmp_path)[0]
    whole = reader.read(path).device_work
    path.write_text(spoil(path.read_text()), "latin-1")
    trace = reader.read(path)
    assert 0 < trace.device_work.rows <= whole.rows
    assert trace.broken_rows > 0


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda text: text.replace('size_bytes": ', 'size_bytes": 9999999999999'), "when it ran"),
        (lambda text: text.replace('stop_ts": ', 'stop_ts": 99999999999999999'), "when it ran"),
        (lambda text: text.replace('time_us": ', 'time_us": 1e300, "was": '), "no operation"),
        (lambda text: text.replace('"pid": ', '"pid": 999999999999'), "no dump"),
        (lambda text: text.replace('"id": "', f'"id": "{"x" * 99}'), "no dump"),
        (lambda text: text.replace("\n", ""), "no dump"),
        (lambda text: text.replace("\n", " " * 2**20), "no dump"),
        (lambda _: "[" * 100_000, "no dump"),
        (lambda _: "", "no dump"),
    ],
    ids=range(9),
)
def test_what_is_no_dump_is_one_clear_error(
    tmp_path: Path, spoil: Callable[[str], str], words: str
) -> None:
    path = dumps(tmp_path)[0]
    path.write_text(spoil(path.read_text()))
    with pytest.raises(UnreadableReport, match=words) as refused:
        reader.read(path)
    assert str(path) in refused.value.message
    assert refused.value.hint
