"""Exports that hang, flood, or fill the disk: ended, with one clear line and nothing left over.

The `nsys` here is a script, so that it does what a real one does only on bad days.
"""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rankscope.errors import ToolError, UnreadableReport, UsageError
from rankscope.sources.nsys import export
from tests.sources.exports import scripted_nsys
from tests.support import SAMPLE

HANGS = "sleep 61 & echo $! > {pid}; wait"
FLOODS = "while :; do head -c 20000000 /dev/zero >> $out; done"
TALKS = "yes error: no luck | head -c 30000000; exit 1"


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(export.TIMEOUT, raising=False)
    return Path(shutil.copy(SAMPLE / "report_rank_0.nsys-rep", tmp_path))


def nsys(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """An nsys that exports to SQLite by a line of shell."""
    begin = 'case "$*" in *--help*) echo sqlite; exit;; esac; while [ "$1" != -o ]; do shift; done'
    body = body.format(pid=folder / "pid")
    scripted_nsys(folder, monkeypatch, f"{begin}; out=$2\n{body}")


def left(folder: Path) -> list[Path]:
    """What lies in the cache."""
    return [*(folder / "cache" / "rankscope" / "exports").iterdir()]


def ended(pid: int) -> bool:
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_an_export_that_hangs(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys(tmp_path, monkeypatch, HANGS)
    monkeypatch.setenv(export.TIMEOUT, "1.5")
    with pytest.raises(ToolError, match=r"rank_0.*more than 2 s") as stopped:
        export.exported(report)
    assert export.TIMEOUT in stopped.value.hint
    assert ended(int((tmp_path / "pid").read_text())), "its child is killed, too"
    assert not left(tmp_path)


def test_an_export_without_end(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys(tmp_path, monkeypatch, FLOODS)
    with pytest.raises(ToolError, match="wrote more than"):
        export.exported(report, most_bytes=2**20)
    assert not left(tmp_path)


def test_an_export_that_says_much(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys(tmp_path, monkeypatch, TALKS)
    with pytest.raises(UnreadableReport, match="no luck"):
        export.exported(report)


@pytest.mark.parametrize("given", ["soon", "0", "-1", "nan", "inf"])
def test_a_limit_that_is_none(report: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(export.TIMEOUT, given)
    with pytest.raises(UsageError, match=export.TIMEOUT):
        export.time_limit(report)


def test_the_limit_grows_with_the_report(report: Path) -> None:
    small = export.time_limit(report)
    with report.open("ab") as file:
        file.truncate(10**9)
    assert export.time_limit(report) > small + 3600


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
@pytest.mark.skipif(sys.platform != "linux", reason="a tmpfs is a small disk")
def test_a_disk_that_fills_up(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nsys(tmp_path, monkeypatch, "head -c 50000000 /dev/zero > $out; sleep 61")
    disk = tmp_path / "cache"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        begin = time.monotonic()
        with pytest.raises(ToolError, match="no space left"):
            export.exported(report)
        assert time.monotonic() - begin < 30
        assert not left(tmp_path)
        nsys(tmp_path, monkeypatch, f"cp {SAMPLE}/report_rank_0.sqlite $out")
        assert export.exported(report).exists(), "there is room again"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_what_another_process_exports_right_now_stays(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--rebuild` clears the cache while another ingest writes into it."""
    folder = tmp_path / "cache" / "rankscope" / "exports"
    sqlite = SAMPLE / "report_rank_0.sqlite"
    wait = f"until [ -e {tmp_path}/cleared ]; do sleep 0.02; done; cp {sqlite} $out"
    nsys(tmp_path, monkeypatch, wait)
    with ThreadPoolExecutor() as pool:
        exporting = pool.submit(export.exported, report)
        while not folder.is_dir() or not left(tmp_path):
            time.sleep(0.01)
        old = folder / "0123.abandoned"
        old.mkdir()
        os.utime(old, (1, 1))
        export.clear([report])
        assert not old.exists()
        (tmp_path / "cleared").touch()
        assert exporting.result(timeout=30).is_file()
