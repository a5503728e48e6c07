"""The forge writes reports as the exporter does: tables, ranks, seeds, its command line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.forge import SCENES, Export, Job, forge, scene
from tests.forge.__main__ import main
from tests.forge.naive import rows_of
from tests.test_forge import reports_in

COLUMNS = {
    "NVTX_EVENTS": "start end eventType rangeId category color text globalTid endGlobalTid textId "
    "domainId uint64Value int64Value doubleValue uint32Value int32Value floatValue jsonTextId "
    "jsonText",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId "
    "returnValue callchainId",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId contextId greenContextId streamId "
    "correlationId globalPid demangledName shortName mangledName launchType cacheConfig "
    "registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory "
    "dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted "
    "graphNodeId sharedMemoryLimitConfig",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId contextId greenContextId streamId "
    "correlationId globalPid bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId "
    "srcContextId dstDeviceId dstContextId migrationCause graphNodeId virtualAddress",
    "StringIds": "id value",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
}


@pytest.mark.parametrize("schema", ["2022.4", "2023.4"])
def test_tables_are_those_of_the_exporter(tmp_path: Path, schema: str) -> None:
    forge(scene("plain", ranks=2, iterations=2, schema=schema), tmp_path)
    path = reports_in(tmp_path)[1]
    tables = {name for (name,) in rows_of(path, "SELECT name FROM sqlite_master")}
    older = schema == "2022.4"
    assert ("EXPORT_META_DATA" in tables) == older
    assert ({"META_DATA_CAPTURE", "META_DATA_EXPORT"} <= tables) != older
    assert ("ENUM_CUDA_KRENEL_LAUNCH_TYPE" in tables) == older
    for table, names in COLUMNS.items():
        expected = [n for n in names.split() if not (older and n == "greenContextId")]
        assert [row[1] for row in rows_of(path, f"PRAGMA table_info({table})")] == expected
    for table in tables:
        assert rows_of(path, f"SELECT COUNT(*) FROM {table}") != [(0,)]
    meta = "EXPORT_META_DATA" if older else "META_DATA_EXPORT"
    version = f"SELECT value FROM {meta} WHERE name = 'EXPORT_SCHEMA_VERSION'"
    assert rows_of(path, version) == [("3.0.0" if older else "3.7.2",)]
    env = "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'DeviceEnvironment'"
    [(joined,)] = rows_of(path, env)
    assert joined.split("\0" if older else ";") == ["RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2"]
    if not older:
        captured = rows_of(path, "SELECT value FROM META_DATA_CAPTURE WHERE value LIKE 'RANK=%'")
        assert captured == [('RANK="1"',)]


def test_the_rank_can_be_anywhere_or_nowhere(tmp_path: Path) -> None:
    export = Export(file_name="{host}.{pid}.sqlite", rank_in_environment=False)
    forge(Job(ranks=6, iterations=1, export=export), tmp_path)
    paths = sorted(tmp_path.glob("*.sqlite"))
    assert [path.name.split(".")[0] for path in paths] == ["node0"] * 4 + ["node1"] * 2
    for path in paths:
        assert not rows_of(path, "SELECT 1 FROM META_DATA_CAPTURE WHERE value LIKE '%RANK%'")
        env = "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'DeviceEnvironment'"
        assert rows_of(path, env) == [("",)]


def test_same_seed_same_files_other_seed_other_times(tmp_path: Path) -> None:
    for folder, seed in (("a", 3), ("b", 3), ("c", 4)):
        forge(scene("shuffled", ranks=2, iterations=3, seed=seed), tmp_path / folder)
    for path in sorted((tmp_path / "a").iterdir()):
        same, other = (tmp_path / folder / path.name for folder in ("b", "c"))
        assert path.read_bytes() == same.read_bytes() != other.read_bytes()


def test_shuffling_changes_order_alone(tmp_path: Path) -> None:
    job = scene("shuffled", ranks=1, iterations=3)
    forge(job, tmp_path / "shuffled")
    forge(replace(job, export=replace(job.export, shuffle_rows=False)), tmp_path / "sorted")
    sql = "SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    mixed, ordered = (
        rows_of(tmp_path / folder / "report_rank_0.sqlite", sql)
        for folder in ("shuffled", "sorted")
    )
    assert mixed != ordered == sorted(mixed)


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
