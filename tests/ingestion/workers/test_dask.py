"""Reports mapped over a real Dask cluster on this machine: a scheduler and worker processes."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.errors import ToolError
from rankscope.ingestion.job import IngestJob
from rankscope.ingestion.workers import map_reports
from rankscope.ingestion.workers.dask import map_on_cluster
from rankscope.ingestion.workers.dask_client import connected
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile
from rankscope.sources.discover import discover
from rankscope.store import Database
from tests.ingestion.workers.dask_cluster import Cluster
from tests.ingestion.workers.waiting import SOON_S, until
from tests.support import Cli, Forged, MakeForged, copied

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.slow

TABLES = ("reports", "ranks", "iterations", "measures", "collectives", "exposed", "activities")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.ensure(2)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What scheduler, workers and clients need for TLS, as settings of Dask's environment."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"]
    command += ["/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    tls = "DASK_DISTRIBUTED__COMM__TLS__"
    return {f"{tls}CA_FILE": str(certificate)} | {
        f"{tls}{who}__{what}": str(path)
        for who in ("SCHEDULER", "WORKER", "CLIENT")
        for what, path in (("CERT", certificate), ("KEY", key))
    }


@pytest.fixture(scope="module")
def job(forged: MakeForged) -> Forged:
    return forged("buckets", ranks=16, iterations=12)


@pytest.fixture(scope="module")
def local(job: Forged, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    db = tmp_path_factory.mktemp("local") / "run.duckdb"
    rankscope.ingest([job.folder], db, jobs=1)
    return content(db)


def test_same_database_as_local(
    two: Cluster,
    job: Forged,
    local: dict[str, pl.DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(job.folder.parent)  # relative paths mean the same to the workers
    db = tmp_path / "run.duckdb"
    run = rankscope.ingest([job.folder.name], db, scheduler=two.address)
    assert_same(content(db), local)
    assert run.ingested is not None
    assert {each.path.parent for each in run.ingested.outcomes} == {Path(job.folder.name)}
    assert two.client.run(seen_reports).keys() == two.client.nthreads().keys()
    assert all(two.client.run(seen_reports).values()), "both workers read"


def test_a_pattern_is_matched_on_the_path_as_given(
    two: Cluster, job: Forged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "user42"  # a number that no rank is
    copied(job.reports[:2], folder, ["a7.sqlite", "a9.sqlite"])
    monkeypatch.chdir(folder)
    run = rankscope.ingest(["."], "run.duckdb", rank_pattern=r"(?P<rank>\d+)", scheduler=two.file)
    assert sorted(run.iterations()["rank"].unique()) == [7, 9]


def test_bad_reports_come_back_as_from_local_workers(
    two: Cluster, job: Forged, cli: Cli, tmp_path: Path
) -> None:
    reports = copied(job.reports, tmp_path / "reports")
    reports[2].write_bytes(reports[2].read_bytes()[:5000])
    cli("ingest", tmp_path / "reports", "--scheduler", two.file).refused(3, reports[2].name)
    until(lambda: two.tasks() == 0)
    done = cli(
        "ingest", "reports", "--scheduler", two.address, "--on-error", "skip", "--format", "json"
    )
    status = {each["path"]: each["status"] for each in done.document["reports"]}
    assert sorted(status.values()).count("skipped") == 1
    assert status["reports/" + reports[2].name] == "skipped"


def test_a_worker_killed_in_the_middle_changes_nothing(
    two: Cluster, job: Forged, local: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    two.ensure(2)
    pids = two.client.run(os.getpid)
    victim = min(pids)
    done: list[ReportFile] = []

    def kill() -> None:
        until(lambda: len(two.client.processing()[victim]) > 0)
        os.kill(pids[victim], signal.SIGKILL)

    killer = threading.Thread(target=kill)

    def watch(file: ReportFile, _events: int) -> None:
        until(lambda: two.tasks() <= 4)  # no more under way than two a thread
        done.append(file)
        if len(done) == 3:
            os.kill(pids[victim], signal.SIGSTOP)  # what it is given stays with it
            killer.start()

    db = tmp_path / "run.duckdb"
    rankscope.ingest([job.folder], db, scheduler=two.address, progress=watch)
    killer.join()
    until(lambda: set(pids) - set(two.client.nthreads()) == {victim})
    assert len(set(done)) == len(done) == 16
    assert_same(content(db), local)


def test_interrupt_leaves_nothing_on_the_cluster(two: Cluster, job: Forged, tmp_path: Path) -> None:
    two.ensure(2)
    db = tmp_path / "run.duckdb"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "rankscope", "ingest", str(job.folder)),
            *("--db", str(db), "--scheduler", two.address),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: two.tasks() > 0)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=SOON_S)[1]
    assert process.returncode == 130, said
    assert said.splitlines() == [
        "rankscope: error: interrupted",
        "hint: run the same command again to resume",
    ]
    until(lambda: two.tasks() == 0)


def test_unequal_versions_are_refused(two: Cluster, job: Forged, cli: Cli, tmp_path: Path) -> None:
    two.ensure(2)
    other = tmp_path / "other" / "rankscope-9.9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: rankscope\nVersion: 9.9.9\n")
    worker = two.worker(other.parent)
    two.client.wait_for_workers(3, timeout=SOON_S)
    try:
        cli("ingest", job.folder, "--scheduler", two.address).refused(
            5, "versions differ", "rankscope 9.9.9 (here", "worker tcp://127.0.0.1"
        )
    finally:
        two.stop(worker)
    until(lambda: len(two.client.nthreads()) == 2)


def test_reports_that_workers_do_not_see(two: Cluster, job: Forged, tmp_path: Path) -> None:
    two.ensure(2)
    unseen = ReportFile(tmp_path / "elsewhere.sqlite", "nsys-sqlite", 1, 1)
    with pytest.raises(ToolError, match="does not exist on worker") as refused:
        list(map_reports(nothing, [unseen], ShapingOptions(), scheduler=two.address))
    assert "under the same path" in refused.value.hint


def test_a_worker_is_no_scheduler(two: Cluster, job: Forged, cli: Cli) -> None:
    two.ensure(2)
    worker = next(iter(two.client.nthreads()))
    cli("ingest", job.folder, "--scheduler", worker).refused(5, worker, "a Dask worker answers")


def test_an_unequal_worker_that_comes_later_reads_nothing(
    two: Cluster, job: Forged, tmp_path: Path
) -> None:
    """A batch system starts workers one by one, while the first already read."""
    two.ensure(2)
    other = tmp_path / "other" / "polars-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: polars\nVersion: 0.0.1\n")
    late: list[subprocess.Popen[bytes]] = []

    def join(_file: ReportFile, _events: int) -> None:
        if not late:
            late.append(two.worker(other.parent))
            two.client.wait_for_workers(3, timeout=SOON_S)
            for worker in two.workers:
                two.stop(worker)

    with pytest.raises(ToolError, match=r"versions differ: .* has polars 0\.0\.1"):
        rankscope.ingest([job.folder], tmp_path / "db", scheduler=two.address, progress=join)
    two.stop(late[0])
    two.workers.clear()


def test_a_cluster_without_workers(two: Cluster) -> None:
    for worker in two.workers:
        two.stop(worker)
    two.workers.clear()
    until(lambda: not two.client.nthreads())
    some = [ReportFile(Path("some.sqlite"), "nsys-sqlite", 1, 1)]
    read = map_on_cluster(nothing, some, ShapingOptions(), two.address, patience_s=0.5)
    with pytest.raises(ToolError, match="has no workers"):
        next(read)


@pytest.mark.parametrize(
    ("banner", "word"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "is not a Dask scheduler"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not a Dask scheduler"),
        (b"", "no answer"),
        (None, "no answer"),
    ],
)
def test_what_is_no_scheduler(banner: bytes | None, word: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        greeter = threading.Thread(target=greet, args=(server, banner or b""))
        if banner is None:
            server.close()
        else:
            greeter.start()
        with pytest.raises(ToolError, match=f"{address}.*{word}"), connected(address, connect_s=1):
            pass
        if banner is not None:
            server.shutdown(socket.SHUT_RDWR)  # wakes who waits for the next client
            greeter.join()


def test_what_is_no_address(job: Forged, cli: Cli, tmp_path: Path) -> None:
    cli("ingest", job.folder, "--scheduler", "login1").refused(2, "--scheduler login1", "port")
    cli("ingest", job.folder, "--scheduler", "foo://login1:1").refused(2, "foo")
    cli("ingest", job.folder, "--scheduler", "none.json").refused(
        5, "none.json", "is the scheduler"
    )
    (tmp_path / "some.json").write_text("[]")
    cli("ingest", job.folder, "--scheduler", "some.json").refused(5, "is not a scheduler file")
    cli("ingest", job.folder, "--scheduler", "a:1", "--jobs", "2").refused(2, "--jobs")


def test_a_scheduler_that_dies(job: Forged, tmp_path: Path) -> None:
    (tmp_path / "dying").mkdir()
    dying = Cluster(tmp_path / "dying")

    def die(_file: ReportFile, _events: int) -> None:
        dying.stop(dying.scheduler)

    try:
        dying.ensure(1)
        ingest = IngestJob(tmp_path / "run.duckdb", ShapingOptions(), skip=False, rebuild=False)
        cluster = partial(map_on_cluster, scheduler=dying.address, connect_s=1)
        with pytest.raises(ToolError, match=r"connection .* was lost"):
            ingest.run(discover([job.folder]), cluster, lambda _: None, die)
    finally:
        dying.close()
    with Database.open(tmp_path / "run.duckdb") as database:
        assert database.is_finished


def nothing(_file: ReportFile, _options: ShapingOptions) -> None:
    """What is asked of reports that nobody sees."""


def seen_reports() -> bool:
    """On a worker: whether it has read reports."""
    return "rankscope.measure.report" in sys.modules


def greet(server: socket.socket, banner: bytes) -> None:
    """A service that speaks first, or says nothing at all."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as clients:
        while True:
            client = clients.enter_context(server.accept()[0])
            client.sendall(banner)


def content(db: Path) -> dict[str, pl.DataFrame]:
    with Database.open(db) as database:
        frames = {name: database.table(name) for name in (*TABLES, "rank_iterations")}
    return {
        name: frame.sort(
            [column for column, kind in frame.schema.items() if not kind.is_nested()],
            nulls_last=True,
        )
        for name, frame in frames.items()
    }


def assert_same(found: dict[str, pl.DataFrame], wanted: dict[str, pl.DataFrame]) -> None:
    for name, frame in wanted.items():
        assert frame.height, name
        assert found[name].equals(frame), name


def test_a_cluster_with_tls(
    certificates: dict[str, str],
    job: Forged,
    local: dict[str, pl.DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Certificates are Dask's own settings; without them the scheduler talks to nobody."""
    db, stranger = tmp_path / "run.duckdb", tmp_path / "stranger.duckdb"
    with monkeypatch.context() as set_up, distributed_config(certificates):
        for name, value in certificates.items():
            set_up.setenv(name, value)
        cluster = Cluster(tmp_path, "--protocol", "tls")
        try:
            cluster.ensure(1)
            assert cluster.address.startswith("tls://")
            rankscope.ingest([job.folder], db, scheduler=cluster.address)
            assert_same(content(db), local)
            with distributed_config(dict.fromkeys(certificates)), pytest.raises(ToolError):
                rankscope.ingest([job.folder], stranger, scheduler=cluster.address)
            assert not stranger.exists()
        finally:
            cluster.close()


@contextlib.contextmanager
def distributed_config(settings: Mapping[str, str | None]) -> Iterator[None]:
    """Settings of Dask's environment in this process, where Dask has read it already."""
    found = {
        name.removeprefix("DASK_").lower().replace("__", ".").replace("ca_file", "ca-file"): value
        for name, value in settings.items()
    }
    with dask.config.set(found):
        yield
