"""Pipelines, batch lengths, contention and pauses are simulated as they say; without rankscope."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.forge import Job, Truth, forge, scene, simulate, without_plants
from tests.forge.naive import rows_of
from tests.forge.plants import hit_list, tokens
from tests.support import mostly_nightly, scenes

pytestmark = pytest.mark.slow  # nothing of it changes with rankscope

MS = 1_000_000


def _gpu_rows(job: Job) -> dict[tuple[int, int], dict[str, Any]]:
    """(rank, iteration) → row of the device's account, the first iteration left out."""
    rows = simulate(job).truth.iterations
    return {
        (row["rank"], row["iteration"]): row
        for row in rows
        if row["clock"] == "gpu" and row["iteration"]
    }


def _extra(job: Job, key: str) -> dict[tuple[int, int], int]:
    """What the plants of a job add to a number of each rank and iteration, ns."""
    clean = _gpu_rows(without_plants(job))
    return {at: row[key] - clean[at][key] for at, row in _gpu_rows(job).items()}


def _kernels(folder: Path, rank: int) -> list[tuple[str, int, int]]:
    """Name, grid and duration of a rank's kernels, in order of launch, communication left out."""
    sql = (
        'SELECT value, gridX, "end" - start FROM CUPTI_ACTIVITY_KIND_KERNEL '
        "JOIN StringIds ON id = shortName WHERE value NOT LIKE 'nccl%' ORDER BY correlationId"
    )
    return rows_of(folder / f"report_rank_{rank}.sqlite", sql)


@pytest.mark.parametrize("name", mostly_nightly(scenes({"contention"}), 10))
def test_taking_plants_out_moves_no_random_number(name: str) -> None:
    job = scene(name, ranks=8, iterations=6)
    hit = {rank for plant in job.plants for rank, _ in hit_list(job, plant)}
    with_plants, without = simulate(job).truth, simulate(without_plants(job)).truth
    assert without.job.plants == ()
    rows = zip(with_plants.iterations, without.iterations, strict=True)
    for planted, clean in rows:
        if planted["rank"] not in hit and planted["work_ns"] is not None and planted["iteration"]:
            assert planted["work_ns"] == pytest.approx(clean["work_ns"], abs=0.1 * MS)
    transfers = [
        sorted(row["transfer_ns"] for row in truth.collectives if row["op"] != "send_recv")
        for truth in (with_plants, without)
    ]
    assert transfers[0] == pytest.approx(transfers[1], abs=2 * job.network.skew_ns)


@pytest.mark.parametrize("where", ["forward", "backward", "optimizer", "load"])
def test_a_slow_worker_of_a_pipeline_works_longer_and_nobody_else(where: str) -> None:
    job = scene("pipeline", ranks=8, iterations=6, where=where)
    [culprit] = job.plants[0].ranks
    for (rank, _), extra in _extra(job, "work_ns").items():
        assert extra == pytest.approx(8 * MS if rank == culprit else 0, abs=0.1 * MS)
    longer = _extra(job, "iteration_ns").values()
    if where in ("forward", "backward"):  # all wait for it in chains: they are its victims
        assert all(extra > 2 * MS for extra in longer)
    else:  # a middle stage has time for it while the pipeline drains and fills
        assert all(abs(extra) < 1 * MS for extra in longer)


def test_a_long_last_stage_is_one_of_design() -> None:
    job = scene("pipeline", iterations=6, slow="stage", noise=0.0)
    work = defaultdict(list)
    for (rank, _), row in _gpu_rows(job).items():
        work[rank % job.stages].append(row["forward_ns"] + row["backward_ns"])
    middles = [median(values) for _, values in sorted(work.items())]
    assert middles[3] / middles[2] == pytest.approx(1.25, abs=0.02)
    assert middles[0] == pytest.approx(middles[1], rel=0.02)
    assert all(max(values) / min(values) < 1.02 for values in work.values())


def test_stages_send_to_their_neighbours_and_reduce_among_themselves() -> None:
    truth = simulate(scene("pipeline", ranks=8, iterations=2)).truth
    groups = {tuple(members) for members in truth.job.groups().values()}
    pairs = {(first + s, first + s + 1) for first in (0, 4) for s in range(3)}
    assert groups == pairs | {(s, s + 4) for s in range(4)}
    count: dict[Any, int] = defaultdict(int)
    for row in truth.collectives:
        count[row["op"], row["iteration"], row["rank"]] += 1
    for rank in range(8):
        neighbours = 1 if rank % 4 in (0, 3) else 2
        assert count["send_recv", 1, rank] == 2 * 4 * neighbours
        assert count["all_reduce", 1, rank] == 2


def test_a_pipeline_fills_and_drains() -> None:
    job = scene("pipeline", iterations=3, slow="nobody", noise=0.0)
    for (rank, _), row in _gpu_rows(job).items():
        # GPipe's bubble is (stages - 1) / micro-batches of the time of its work, on every stage.
        busy = row["forward_ns"] + row["backward_ns"]
        assert row["exposed_communication_ns"] == pytest.approx(busy * 3 / 4, rel=0.15), rank


def test_grids_belong_to_the_model(tmp_path: Path) -> None:
    for where in ("device", "kernel", "data"):
        forge(scene("planted", ranks=3, iterations=4, where=where, noise=0.0), tmp_path / where)
    grids = [
        [(name, grid) for name, grid, _ in _kernels(tmp_path / where, rank)]
        for where in ("device", "kernel")
        for rank in range(3)
    ]
    assert all(other == grids[0] for other in grids)
    each = len(grids[0]) // 4
    assert grids[0][:each] * 4 == grids[0]
    longer = [grid for _, grid, _ in _kernels(tmp_path / "data", 2)]
    for i, (mine, (_, usual)) in enumerate(zip(longer, grids[0], strict=True)):
        optimizer = i % each >= 25
        assert mine / usual == pytest.approx(1.0 if optimizer else 1.25, rel=0.01)


def test_one_slow_kernel(tmp_path: Path) -> None:
    job = scene("planted", ranks=2, iterations=3, where="kernel", kernel="elementwise", noise=0.0)
    forge(job, tmp_path)
    pairs = zip(_kernels(tmp_path, 1), _kernels(tmp_path, 0), strict=True)
    for (name, _, mine), (_, _, usual) in pairs:
        slow = name == "vectorized_elementwise_kernel"
        assert mine / usual == pytest.approx(1.25 if slow else 1.0, abs=0.001)


def test_batches_of_random_length_have_grids_to_match(tmp_path: Path) -> None:
    job = scene("sequence_lengths", ranks=4, iterations=5, noise=0.0)
    forge(job, tmp_path)
    output = json.loads((tmp_path / "truth.json").read_text())["sequence_lengths"]["tokens"]
    assert job.lengths is not None
    assert len({length for row in output for length in row}) == 4 * 5
    for rank in range(4):
        kernels = _kernels(tmp_path, rank)
        for i, length in enumerate(output[rank]):
            assert length == tokens(job.lengths, rank, i, job.seed)
            forward = kernels[30 * i : 30 * i + 10]
            assert sum(ns for *_, ns in forward) / (10 * MS) == pytest.approx(length / 2048, 0.001)
            first = kernels[0][1] / output[rank][0]
            assert forward[0][1] / length == pytest.approx(first, rel=0.01)


@pytest.mark.parametrize("only", [-1, 2])
def test_contention_slows_what_runs_beside_a_collective(only: int) -> None:
    job = scene("contention", ranks=4, iterations=8, only=only, noise=0.0)
    slowed, free = _gpu_rows(job), _gpu_rows(replace(job, contention=None))
    for (rank, i), row in slowed.items():
        suffers = only in (-1, rank)
        assert (row["contention_ns"] > 0) == suffers
        assert row["work_ns"] - free[rank, i]["work_ns"] == pytest.approx(
            row["contention_ns"], abs=0.05 * MS
        )
    if only == -1:  # the victims of the slow rank suffer most, for they wait longest
        most = max((row["contention_ns"], rank) for (rank, i), row in slowed.items() if i % 5 == 2)
        assert most[1] != 1
        assert slowed[1, 2]["contention_ns"] == min(
            slowed[rank, 2]["contention_ns"] for rank in range(4)
        )


def test_a_kernel_takes_the_factor_longer_only_while_they_overlap(tmp_path: Path) -> None:
    job = scene("contention", ranks=2, iterations=3, noise=0.0)
    forge(job, tmp_path / "with")
    forge(replace(job, contention=None), tmp_path / "without")
    path = tmp_path / "with" / "report_rank_0.sqlite"
    sql = (
        'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName '
        "WHERE value {} LIKE 'nccl%' ORDER BY correlationId"
    )
    collectives = rows_of(path, sql.format(""))
    plain = _kernels(tmp_path / "without", 0)
    for (start, end), (*_, alone) in zip(rows_of(path, sql.format("NOT")), plain, strict=True):
        shared = sum(max(0, min(end, e) - max(start, s)) for s, e in collectives)
        assert end - start - shared + shared / 1.3 == pytest.approx(alone, abs=3)


def test_a_garbage_collection_starves_the_device_inside_its_phase(tmp_path: Path) -> None:
    job = scene("garbage", ranks=4, iterations=20)
    forge(job, tmp_path)
    hit = {(2, i) for i in job.plants[0].iterations}
    for at, extra in _extra(job, "forward_ns").items():
        # All but what the copy of the batch hides.
        assert extra == pytest.approx(11.7 * MS if at in hit else 0, abs=0.1 * MS)
    for rank in range(4):
        ranges = rows_of(
            tmp_path / f"report_rank_{rank}.sqlite", 'SELECT start, "end", text FROM NVTX_EVENTS'
        )
        pauses = [(s, e) for s, e, name in ranges if name == "gc.collect"]
        assert len(pauses) == (len(hit) if rank == 2 else 0)
        forwards = [(s, e) for s, e, name in ranges if name == "forward"]
        for start, end in pauses:
            assert any(s <= start < end < e for s, e in forwards)
            assert end - start == pytest.approx(12 * MS, abs=0.01 * MS)


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Truth, Path]:
    """Sixteen ranks on four hosts of different time, in groups of which none holds all."""
    folder = tmp_path_factory.mktemp("scattered")
    return forge(scene("offsets", ranks=16, iterations=10, tp=2), folder), folder


def test_corrections_bring_every_clock_to_the_lowest_rank(scattered: tuple[Truth, Path]) -> None:
    truth, folder = scattered
    assert all(len(members) < 16 for members in truth.job.groups().values())
    output = json.loads((folder / "truth.json").read_text())
    middle = output["middle_utc_ns"]
    epochs = [clock["believed_session_start_utc_ns"] for clock in output["clocks"]]
    instances: dict[Any, dict[Any, Any]] = defaultdict(dict)
    for row in truth.collectives:
        key = (row["communicator"], row["op"], row["iteration"], row["ordinal"])
        at = row["end_utc_ns"]
        clock = output["clocks"][row["rank"]]
        corrected = epochs[row["rank"]] + row["end_ns"] + clock["correction_ns"]
        corrected += round(clock["correction_ppm"] * (at - middle) / 1e6)
        instances[key][row["rank"]] = corrected
    assert max(abs(clock["correction_ns"]) for clock in output["clocks"]) > 1_000 * MS
    for ends in instances.values():
        assert max(ends.values()) - min(ends.values()) <= truth.job.network.skew_ns + 10


def test_unknown_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match="no pipelines of 4"):
        scene("pipeline", ranks=10, pp=4)
