"""`python -m tests.bench.fleet_scale`: what `rankscope fleet` costs with many databases.

A job of 64 ranks with a slow one is ingested once. Its database is copied: each copy has another
start, and its ranks run on other hosts and GPUs of the fleet. One rank is slow in all of them, so
that no hardware is suspect. 1,000 of them take about 6 GB of
disk; the target is 20 s and 1 GB of memory.
"""

import argparse
import json
import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import duckdb

import rankscope
from rankscope.compare.cache import fingerprint
from rankscope.model.options import Options
from rankscope.store.tables import TableRequest, read_table
from tests.bench.answers import measured
from tests.forge import forge, scene
from tests.forge.job import Plant

HOUR_NS = 3_600 * 10**9
GPUS = 8
"""GPUs of a host."""

SLOW = 5
"""The rank that is slow in all runs."""


def database(folder: Path, ranks: int) -> Path:
    """The database of one job."""
    slow = Plant("persistent", "device", (SLOW,), factor=1.3)
    job = replace(scene("plain", ranks=ranks, iterations=10, seed=1), plants=(slow,))
    forge(job, folder / "reports")
    path = folder / "run.duckdb"
    rankscope.ingest([folder / "reports"], path)
    shutil.rmtree(folder / "reports")
    return path


def another(path: Path, number: int, ranks: int, hosts: int) -> None:
    """Make a copy the run of another hour on other hosts, whose answers are cached."""
    chosen = random.Random(number).sample(range(hosts), ranks // GPUS)
    with duckdb.connect(str(path)) as connection:
        connection.execute("update reports set utc_start_ns = utc_start_ns + ?", [number * HOUR_NS])
        for place, host in enumerate(chosen):
            connection.execute(
                "update ranks set host = ?, gpu_uuid = 'GPU-' || (? + rank % ?), "
                "gpu_bus = (rank % ?) || ':00' where rank // ? = ?",
                [f"n{host}", host * GPUS, GPUS, GPUS, GPUS, place],
            )
        reports = read_table(connection, TableRequest("reports"))
        connection.execute(
            "update answers set value = ? where name = 'fingerprint'",
            [json.dumps(fingerprint(Options(), reports))],
        )


def main() -> None:
    """Print what the command costs, and what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--databases", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="default: a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        one = database(folder, given.ranks)
        runs = folder / "runs"
        runs.mkdir()
        for number in range(given.databases):
            path = Path(shutil.copyfile(one, runs / f"run{number:04}.duckdb"))
            another(path, number, given.ranks, given.hosts)
        command = ["-m", "rankscope", "fleet", str(runs), "--format", "json"]
        ledger = ["--store", str(folder / "fleet.duckdb")]
        for title, arguments in (
            ("fleet", command),
            ("fleet, again", command),
            ("fleet --html", [*command, "--html", str(folder / "fleet.html")]),
            ("fleet --store add", [*command[:3], *ledger, "add", str(runs), "--format", "json"]),
            ("fleet --store", [*command[:3], *ledger, "--format", "json"]),
        ):
            cost, output = measured(title, arguments)
            document = json.loads(output)
            found = document["verdict"]["suspects"]
            print(cost.line(), f"  {len(document['runs'])} runs, suspects {found}", flush=True)


if __name__ == "__main__":
    main()
