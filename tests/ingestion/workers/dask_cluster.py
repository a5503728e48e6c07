"""A real Dask cluster on this machine: a scheduler and worker processes."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ingestion.workers.waiting import SOON_S, until

distributed = pytest.importorskip("distributed")


class Cluster:
    """A scheduler and its workers, each a process of its own, away from the reports' folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        """Start the scheduler."""
        self.folder, self.options = folder, options
        self.file = folder / "scheduler.json"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start(
            "scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file)
        )
        until(self.file.is_file)
        self.client = distributed.Client(scheduler_file=str(self.file), set_as_default=False)
        self.address: str = self.client.scheduler.address

    def ensure(self, count: int) -> None:
        """That many workers are up; those that died are replaced."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < count:
            self.workers.append(self.worker())
        self.client.wait_for_workers(count, timeout=SOON_S)

    def worker(self, path: Path | None = None) -> subprocess.Popen[bytes]:
        """One more, which finds its packages in `path` first."""
        options = ["--no-nanny", "--no-dashboard", "--nthreads", "1", "--memory-limit", "0"]
        return self._start("worker", "--scheduler-file", str(self.file), *options, path=path)

    def stop(self, worker: subprocess.Popen[bytes]) -> None:
        """Killed, as by the kernel when memory is short."""
        worker.kill()
        worker.wait()

    def tasks(self) -> int:
        """How many the scheduler knows of."""
        return self.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.client.close(timeout=5)
        for process in (*self.workers, self.scheduler):
            self.stop(process)

    def _start(self, what: str, *options: str, path: Path | None = None) -> subprocess.Popen[bytes]:
        paths = [str(path)] if path else []
        paths += [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
        environment = {"PYTHONPATH": os.pathsep.join(paths), "POLARS_MAX_THREADS": "1"}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "dask",
                    what,
                    "--host",
                    "127.0.0.1",
                    *self.options,
                    *options,
                ],
                cwd=self.folder,
                env=os.environ | environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
