"""The simulator is right by itself: physics, plants, files. What it says of each iteration is
compared with what rankscope measures, to the nanosecond, in `measure/test_truth.py`."""

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.forge import (
    SCENES,
    Clock,
    Job,
    Noise,
    Plant,
    Truth,
    forge,
    scene,
    simulate,
    without_plants,
)
from tests.forge.__main__ import main
from tests.forge.plants import hit_list
from tests.support import asked, mostly_nightly, scenes

pytestmark = pytest.mark.slow  # nothing of it changes with rankscope

MS = 1_000_000
SMALL = {"ranks": 4, "iterations": 8}
EVERY_SCENE = sorted(SCENES)

Scenes = dict[str, tuple[Truth, Path]]
"""Scene → its truth and its folder."""


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    """Every scene, small."""
    made = {}
    for i, name in enumerate(EVERY_SCENE):
        folder = tmp_path_factory.mktemp(name)
        schema = ("2022.4", "2023.4")[i % 2]
        made[name] = forge(scene(name, **SMALL, schema=schema), folder), folder
    return made


def reports_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("report_rank_*.sqlite"))


@pytest.mark.parametrize("name", EVERY_SCENE)
def test_members_leave_a_collective_together(forged: Scenes, name: str) -> None:
    truth, _ = forged[name]
    instances = defaultdict(list)
    for row in truth.collectives:
        key = (row["communicator"], row["op"], row["iteration"], row["ordinal"])
        instances[key].append(row)
    for (communicator, operation, *_), rows in instances.items():
        assert {row["rank"] for row in rows} == set(truth.job.groups()[communicator])
        ends = [row["end_utc_ns"] for row in rows]
        arrivals = [row["arrival_utc_ns"] for row in rows]
        if operation == "rooted":  # each leaves once it has passed on what those before it gave it
            assert all(end < later for end, later in pairwise(ends))
            waits = [max(arrivals[: at + 1]) - arrivals[at] for at in range(len(rows))]
            assert [row["wait_ns"] for row in rows] == waits
            continue
        assert max(ends) - min(ends) <= truth.job.network.skew_ns
        assert min(ends) > max(row["start_utc_ns"] for row in rows) >= max(arrivals)
        assert min(row["wait_ns"] for row in rows) == 0
        for row in rows:
            assert row["wait_ns"] == max(arrivals) - row["arrival_utc_ns"]
            assert row["transfer_ns"] == max(ends) - max(arrivals)


DEVICE_WORK = " UNION ALL ".join(
    f'SELECT k.start, k."end", r.start, k.streamId FROM CUPTI_ACTIVITY_KIND_{kind} k '
    "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId)"
    for kind in ("KERNEL", "MEMCPY")
)


@pytest.mark.parametrize("name", EVERY_SCENE)
def test_device_obeys_launches_and_streams(forged: Scenes, name: str) -> None:
    truth, folder = forged[name]
    for path in reports_in(folder) if truth.job.gpu else ():
        streams = defaultdict(list)
        for start, end, launch, stream in asked(path, DEVICE_WORK):
            assert launch < start < end
            streams[stream].append((start, end))
        for spans in streams.values():
            spans.sort()
            assert all(b[0] >= a[1] for a, b in pairwise(spans))


@pytest.mark.parametrize(("gpu", "on_host"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("where", ["load", "forward", "backward", "optimizer"])
def test_a_plant_adds_what_it_says_where_it_says(where: str, on_host: bool, gpu: bool) -> None:
    job = scene("planted", where=where, on_host=on_host, gpu=gpu, **SMALL)
    clean = simulate(replace(job, plants=())).truth.iterations
    clock = "gpu" if gpu else "host"
    for row, plain in zip(simulate(job).truth.iterations, clean, strict=True):
        if row["clock"] == clock and row["iteration"]:
            expected = 8 * MS if row["rank"] == 3 else 0
            for key in (f"{where}_ns", "work_ns"):
                assert row[key] - plain[key] == pytest.approx(expected, abs=0.02 * MS)


def test_the_device_hides_a_late_launch_while_it_is_busy() -> None:
    delays = {}
    for where in ("forward", "optimizer"):
        job = scene("planted", where=where, on_host=True, noise=0.0, **SMALL)
        clean = simulate(replace(job, plants=())).truth.iterations
        delays[where] = [
            row["work_ns"] - plain["work_ns"]
            for row, plain in zip(simulate(job).truth.iterations, clean, strict=True)
            if row["rank"] == 3 and row["clock"] == "gpu" and row["iteration"]
        ]
    # Only the copy of the batch runs while forward's launches are late; before the optimizer's,
    # all of backward is still queued.
    assert all(delay == pytest.approx(7.7 * MS, abs=0.1 * MS) for delay in delays["forward"])
    assert all(delay == pytest.approx(0, abs=0.02 * MS) for delay in delays["optimizer"])


def test_a_slow_device_slows_every_kernel() -> None:
    job = scene("planted", where="device", **SMALL)
    clean = simulate(replace(job, plants=())).truth.iterations
    for row, plain in zip(simulate(job).truth.iterations, clean, strict=True):
        if row["clock"] == "gpu" and row["rank"] == 3:
            for phase in ("forward", "backward", "optimizer"):
                ratio = row[f"{phase}_ns"] / plain[f"{phase}_ns"]
                assert ratio == pytest.approx(1.25, abs=0.01)


def test_plants_hit_as_their_kind_says(tmp_path: Path) -> None:
    hits = {}
    for kind in ("persistent", "transient", "periodic", "rotating", "structural", "balanced"):
        forge(scene("planted", kind=kind, ranks=4, iterations=30), tmp_path)
        plants = json.loads((tmp_path / "truth.json").read_text())["plants"]
        hits[kind] = [tuple(hit) for plant in plants for hit in plant["hits"]]
    assert hits["balanced"] == []
    assert hits["persistent"] == [(3, i) for i in range(30)]
    assert 1 <= len(hits["transient"]) <= 3
    assert [i for _, i in hits["periodic"]] == list(range(0, 30, 5))
    assert {rank for rank, _ in hits["structural"]} == {2, 3}
    assert [i for _, i in hits["rotating"]] == list(range(30))
    assert {rank for rank, _ in hits["rotating"]} == {0, 1, 2, 3}


def test_clocks_err_as_planted(forged: Scenes, tmp_path: Path) -> None:
    clocks = (Clock(3_000_000_000, 40.0), Clock(-2_000_000_000, -40.0))
    truth = forge(Job(ranks=2, iterations=4, clocks=clocks), tmp_path)
    origin = min(row["end_utc_ns"] for row in truth.collectives)
    for rank, path in enumerate(reports_in(tmp_path)):
        [(epoch,)] = asked(path, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        errors = [
            (row["end_utc_ns"] - origin, epoch + row["end_ns"] - row["end_utc_ns"])
            for row in truth.collectives
            if row["rank"] == rank
        ]
        (t0, e0), (t1, e1) = errors[0], errors[-1]
        assert e0 == pytest.approx(clocks[rank].offset_ns, abs=1 * MS)
        assert (e1 - e0) / (t1 - t0) == pytest.approx(clocks[rank].drift_ppm * 1e-6, rel=1e-3)


def test_two_plants_add_up() -> None:
    plants = (
        Plant("persistent", "forward", (1,), extra_ns=4 * MS),
        Plant("periodic", "forward", (0, 1), extra_ns=2 * MS, every=2, offset=1),
    )
    job = Job(ranks=2, iterations=4, plants=plants, noise=Noise(sigma=0.0))
    rows = [r for r in simulate(job).truth.iterations if r["clock"] == "gpu"]
    forward = [round((r["forward_ns"] / MS) - 10) for r in rows]
    assert forward == [0, 2, 0, 2, 4, 6, 4, 6]


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
    one_by_one = "send_recv", "rooted"  # how long they take depends on who comes last
    transfers = [
        sorted(row["transfer_ns"] for row in truth.collectives if row["op"] not in one_by_one)
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


def test_a_pipeline_fills_and_drains() -> None:
    job = scene("pipeline", iterations=3, slow="nobody", noise=0.0)
    for (rank, _), row in _gpu_rows(job).items():
        # GPipe's bubble is (stages - 1) / micro-batches of the time of its work, on every stage.
        busy = row["forward_ns"] + row["backward_ns"]
        assert row["exposed_communication_ns"] == pytest.approx(busy * 3 / 4, rel=0.15), rank


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


def test_same_seed_same_files_other_seed_other_times(tmp_path: Path) -> None:
    for folder, seed in (("a", 3), ("b", 3), ("c", 4)):
        forge(scene("shuffled", ranks=2, iterations=3, seed=seed), tmp_path / folder)
    for path in sorted((tmp_path / "a").iterdir()):
        same, other = (tmp_path / folder / path.name for folder in ("b", "c"))
        assert path.read_bytes() == same.read_bytes() != other.read_bytes()


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in SCENES)
    sizes = ["--ranks", "2", "--iterations", "3", "--seed", "5"]
    options = ["--set", "where=load", "--schema", "2022.4"]
    assert main(["planted", str(tmp_path), *sizes, *options]) == 0
    assert len(reports_in(tmp_path)) == 2
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert (truth["seed"], truth["plants"][0]["where"]) == (5, "load")
    with (tmp_path / "truth_iterations.csv").open() as file:
        assert len(file.readlines()) == 1 + 2 * 3 * 2
