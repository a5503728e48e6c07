"""The simulator is right by itself: physics, bookkeeping, files; nothing here imports rankscope."""

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import pytest

from tests.forge import SCENES, Clock, Job, Noise, Plant, Truth, forge, scene, simulate
from tests.forge.naive import device_ops, rows_of

pytestmark = pytest.mark.slow  # nothing of it changes with rankscope

MS = 1_000_000
SMALL = {"ranks": 4, "iterations": 8}
EVERY_SCENE = sorted(set(SCENES) - {"large"})

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
    for (communicator, *_), rows in instances.items():
        assert {row["rank"] for row in rows} == set(truth.job.groups()[communicator])
        ends = [row["end_utc_ns"] for row in rows]
        arrivals = [row["arrival_utc_ns"] for row in rows]
        assert max(ends) - min(ends) <= truth.job.network.skew_ns
        assert min(ends) > max(row["start_utc_ns"] for row in rows) >= max(arrivals)
        assert min(row["wait_ns"] for row in rows) == 0
        for row in rows:
            assert row["wait_ns"] == max(arrivals) - row["arrival_utc_ns"]
            assert row["transfer_ns"] == max(ends) - max(arrivals)


@pytest.mark.parametrize("name", EVERY_SCENE)
def test_device_obeys_launches_and_streams(forged: Scenes, name: str) -> None:
    truth, folder = forged[name]
    for path in reports_in(folder) if truth.job.gpu else ():
        streams = defaultdict(list)
        for start, end, launch, stream, *_ in device_ops(path):
            assert launch < start < end
            streams[stream].append((start, end))
        for spans in streams.values():
            spans.sort()
            assert all(b[0] >= a[1] for a, b in pairwise(spans))


def test_queued_buckets_do_not_hide_a_straggler() -> None:
    truth = simulate(scene("buckets", iterations=20)).truth
    work = {(r["iteration"], r["rank"]): r["work_ns"] for r in truth.iterations if r["work_ns"]}
    hit = [i for i in range(1, 20) if i % 5 == 2]
    for i in range(1, 20):
        excess = work[i, 1] - median(work[i, rank] for rank in range(8) if rank != 1)
        assert excess == pytest.approx(5 * MS if i in hit else 0, abs=0.05 * MS)


def test_a_balanced_job_has_equal_work() -> None:
    truth = simulate(scene("planted", kind="balanced", iterations=40)).truth
    work = defaultdict(list)
    for row in truth.iterations:
        if row["clock"] == "gpu" and row["iteration"]:
            work[row["rank"]].append(row["work_ns"])
    means = [fmean(values) for values in work.values()]
    assert max(means) / min(means) < 1.03


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


def test_background_work_belongs_to_no_phase(forged: Scenes) -> None:
    truth, folder = forged["dali"]
    assert truth.iterations == forged["plain"][0].iterations
    path = reports_in(folder)[0]
    ranges = rows_of(path, 'SELECT start, "end", text FROM NVTX_EVENTS')
    borders = [end for _, end, name in ranges if name.startswith("step")]
    loader = [(start, end) for start, end, name in ranges if "DALI" in name]
    assert any(start < border < end for start, end in loader for border in borders[:-1])


def test_only_gradients_count_as_reductions(forged: Scenes) -> None:
    for row in forged["loss_all_reduce"][0].iterations:
        if row["clock"] == "gpu":
            assert row["time_to_all_reduce_ns"] < row["work_ns"] - 2 * MS


def test_backward_is_launched_by_another_thread(forged: Scenes) -> None:
    path = reports_in(forged["autograd"][1])[0]
    [(main_thread,)] = rows_of(path, "SELECT DISTINCT globalTid FROM NVTX_EVENTS")
    names = "CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId"
    count = f"SELECT COUNT(*) FROM {names} WHERE value LIKE 'cudaLaunch%' AND globalTid"
    assert rows_of(path, f"{count} != {main_thread}") == [(8 * 15,)]
    assert rows_of(path, f"{count} = {main_thread}") == [(8 * 15,)]


def test_a_graph_is_one_launch(forged: Scenes) -> None:
    path = reports_in(forged["cuda_graph"][1])[0]
    sql = "SELECT correlationId, COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId > 0"
    groups = rows_of(path, f"{sql} GROUP BY 1")
    assert [count for _, count in groups] == [10 + 15 + 5] * 8


def test_unrecorded_launches_are_reported(forged: Scenes) -> None:
    truth, folder = forged["no_launch_record"]
    path = reports_in(folder)[0]
    [(lost,)] = rows_of(
        path,
        'SELECT SUM("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE correlationId NOT IN '
        "(SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME)",
    )
    output = sum(row["unrecorded_ns"] for row in truth.iterations if row["rank"] == 0)
    assert lost == output > 0


def test_mpi_calls_stand_in_a_domain_of_their_own(forged: Scenes) -> None:
    path = reports_in(forged["mpi_like"][1])[1]
    meta = "SELECT eventType, text, domainId FROM NVTX_EVENTS WHERE eventType IN (39, 75)"
    assert sorted(rows_of(path, meta)) == [(39, "MPI Rank 1", 0), (75, "MPI", 1)]
    assert not rows_of(path, "SELECT 1 FROM sqlite_master WHERE name LIKE 'CUPTI%'")
    sql = 'SELECT start, "end" FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId WHERE'
    calls = rows_of(path, f"{sql} domainId = 1 AND value = 'MPI_Allreduce' ORDER BY 1")
    outer = rows_of(path, f"{sql} text = 'all_reduce' ORDER BY 1")
    assert len(calls) == 8
    assert all(a < b < c <= d for (a, d), (b, c) in zip(outer, calls, strict=True))


def test_a_late_capture_lacks_its_first_iterations(forged: Scenes) -> None:
    counts = [
        rows_of(path, "SELECT COUNT(*) FROM NVTX_EVENTS WHERE text = 'train_step'")[0][0]
        for path in reports_in(forged["late_capture"][1])
    ]
    assert counts == [8, 8, 8, 6]


def test_clocks_err_as_planted(forged: Scenes, tmp_path: Path) -> None:
    clocks = (Clock(3_000_000_000, 40.0), Clock(-2_000_000_000, -40.0))
    truth = forge(Job(ranks=2, iterations=4, clocks=clocks), tmp_path)
    origin = min(row["end_utc_ns"] for row in truth.collectives)
    for rank, path in enumerate(reports_in(tmp_path)):
        [(epoch,)] = rows_of(path, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        errors = [
            (row["end_utc_ns"] - origin, epoch + row["end_ns"] - row["end_utc_ns"])
            for row in truth.collectives
            if row["rank"] == rank
        ]
        (t0, e0), (t1, e1) = errors[0], errors[-1]
        assert e0 == pytest.approx(clocks[rank].offset_ns, abs=1 * MS)
        assert (e1 - e0) / (t1 - t0) == pytest.approx(clocks[rank].drift_ppm * 1e-6, rel=1e-3)


def test_a_slow_walk_and_gaussian_noise_stay_in_bounds() -> None:
    noise = Noise(kind="gaussian", sigma=0.0, walk=0.05)
    truth = simulate(Job(ranks=2, iterations=60, noise=noise)).truth
    forward = [r["forward_ns"] for r in truth.iterations if r["clock"] == "gpu"]
    assert 0.94 < min(forward) / (10 * MS) < 0.995 or max(forward) / (10 * MS) > 1.005
    assert max(forward) < 1.06 * 10 * MS


def test_two_plants_add_up() -> None:
    plants = (
        Plant("persistent", "forward", (1,), extra_ns=4 * MS),
        Plant("periodic", "forward", (0, 1), extra_ns=2 * MS, every=2, offset=1),
    )
    job = Job(ranks=2, iterations=4, plants=plants, noise=Noise(sigma=0.0))
    rows = [r for r in simulate(job).truth.iterations if r["clock"] == "gpu"]
    forward = [round((r["forward_ns"] / MS) - 10) for r in rows]
    assert forward == [0, 2, 0, 2, 4, 6, 4, 6]
