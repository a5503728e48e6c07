"""What a report says of its hardware is kept per rank, and nothing is guessed."""

import json
from pathlib import Path

import polars as pl
import pytest

import rankscope
from tests.forge import scene, simulate
from tests.forge.kineto_export import export_kineto
from tests.history.fleet.machines import Machine, furnish
from tests.support import Forged, MakeForged, copied, mostly_slow

UUIDS = tuple(f"GPU-{number:08x}-aaaa-bbbb-cccc-ddddeeeeffff" for number in range(4))


def ranks_of(machines: dict[int, Machine], job: Forged, folder: Path) -> pl.DataFrame:
    """The table `ranks` of a job whose ranks ran on some machines."""
    reports = copied(job.reports, folder / "reports")
    for rank, machine in machines.items():
        furnish(reports[rank], machine)
    run = rankscope.ingest([folder / "reports"], folder / "run.duckdb")
    return run.tables.ranks.sort("rank")


@pytest.mark.slow
@pytest.mark.parametrize("schema", mostly_slow(["2023.4", "2022.4"]))
def test_the_device_of_a_process_is_found_among_the_gpus(
    forged: MakeForged, tmp_path: Path, schema: str
) -> None:
    job = forged("plain", iterations=6, schema=schema)
    machines = {
        rank: Machine(UUIDS, used=3 - rank, adapters=(2**63 + 5 - 2**64, 7), cpu="EPYC 9654")
        for rank in range(4)
    }
    ranks = ranks_of(machines, job, tmp_path)
    assert ranks["gpu_uuid"].to_list() == [*reversed(UUIDS)]
    assert ranks["gpu_bus"][0] == "0000:4b:00.0"
    assert ranks["gpu_name"].unique().to_list() == ["NVIDIA H100 80GB HBM3"]
    assert ranks["cpu"].unique().to_list() == ["EPYC 9654"]
    guids = {*ranks["adapters"][0].split()}
    assert guids == {"0x0000000000000007", "0x8000000000000005"}


@pytest.mark.slow
def test_without_a_table_of_devices_numbers_count_unless_gpus_are_hidden(
    forged: MakeForged, tmp_path: Path
) -> None:
    machines = {
        0: Machine(UUIDS, cpu="unknown", driver="580.95.05"),
        1: Machine(UUIDS[:1]),
        2: Machine(UUIDS, variables="CUDA_VISIBLE_DEVICES=2;"),
    }
    job = forged("plain", iterations=6, schema="2023.4")
    ranks = ranks_of(machines, job, tmp_path)
    used = {rank: _device(job, rank) for rank in range(4)}
    expected = [UUIDS[used[0]], UUIDS[0], None, None]
    assert ranks["gpu_uuid"].to_list() == expected
    assert ranks["cpu"].null_count() == 4
    with rankscope.store.Database.open(tmp_path / "run.duckdb") as database:
        software = database.table("reports").sort("path")["software"].to_list()
    assert software == ["driver 580.95.05, CUDA 13.0", "CUDA 13.0", "CUDA 13.0", None]


def _device(job: Forged, rank: int) -> int:
    from rankscope.sources.nsys import exports

    return int(exports.read(job.reports[rank]).device_work.whole["device"][0])


def test_no_variable_is_kept(forged: MakeForged, tmp_path: Path) -> None:
    machine = Machine(UUIDS, variables="CUDA_VISIBLE_DEVICES=2;TOKEN=hunter2;")
    job = forged("plain", iterations=6, schema="2023.4")
    ranks_of({0: machine, 1: machine}, job, tmp_path)
    content = (tmp_path / "run.duckdb").read_bytes()
    assert b"hunter2" not in content
    assert b"VISIBLE" not in content


@pytest.mark.slow
def test_a_trace_of_pytorch_names_the_model_and_the_versions(tmp_path: Path) -> None:
    job = scene("plain", ranks=2, iterations=6)
    for record in simulate(job).records:
        export_kineto(job, record, tmp_path / "reports")
    for path in sorted((tmp_path / "reports").glob("*.json")):
        document = json.loads(path.read_text())
        rank = document.get("distributedInfo", {}).get("rank", 0)
        document["distributedInfo"] = {"rank": rank, "nccl_version": "2.21.5"}
        document["cuda_runtime_version"] = 12040
        document["deviceProperties"] = [
            {"id": each, "name": "NVIDIA A100", "totalGlobalMem": 1} for each in range(4)
        ]
        path.write_text(json.dumps(document))
    run = rankscope.ingest([tmp_path / "reports"], tmp_path / "run.duckdb")
    assert run.tables.ranks["gpu_name"].unique().to_list() == ["NVIDIA A100"]
    assert run.tables.ranks["gpu_uuid"].null_count() == 2
    assert run.tables.reports["software"].unique().to_list() == ["CUDA 12.4, NCCL 2.21.5"]
