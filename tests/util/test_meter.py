"""How far a report is read is known while it is read, for every format."""

import io
import shutil
import time
from pathlib import Path

import pytest
from rankscope_cli.progress import progress_bar

from rankscope.ingestion.workers.local import guarded
from rankscope.measure.report import extract
from rankscope.model.options import ShapingOptions
from rankscope.sources.columns.sqlite_pages import loader
from rankscope.sources.discover import discover
from rankscope.util import meter
from tests.support import SAMPLE, MakeForged


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the files; every change is written at once."""
    folder = tmp_path / "meter"
    folder.mkdir()
    monkeypatch.setenv(meter.FOLDER, str(folder))
    monkeypatch.setattr(meter.of_process, "written_s", 0)
    return folder


def test_bytes_are_counted_for_one_report_at_a_time(folder: Path) -> None:
    meter.begin(Path("a b.sqlite"))
    meter.add(3)
    meter.reach(2)
    meter.add(4)
    assert meter.read_so_far(folder) == {"a b.sqlite": 7}
    meter.begin(Path("c.json"))
    assert meter.read_so_far(folder) == {"c.json": 0}


def test_nobody_looks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(meter.FOLDER)
    meter.begin(Path("a.sqlite"))
    assert meter.read_so_far(folder) == {}
    monkeypatch.setenv(meter.FOLDER, str(folder / "gone"))
    meter.add(1)  # a folder that is gone stops nothing


@pytest.mark.parametrize("kind", ["sqlite", "json", "json.gz"])
def test_every_reader_counts(
    folder: Path,
    kind: str,
    forged: MakeForged,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = SAMPLE.parent / "torch_profiler_2ranks"
    found = {
        "sqlite": lambda: forged("plain", iterations=12).reports[0],
        "json.gz": lambda: min(torch.glob("*.json.gz")),
        "json": lambda: unpacked(min(torch.glob("*.json.gz")), tmp_path),
    }[kind]()
    [file] = discover([found])
    monkeypatch.setenv(loader.SWITCH, "1")  # pages are read as of a large report
    seen: list[int] = []
    monkeypatch.setattr(meter.of_process, "listener", lambda each: seen.append(each.count))
    guarded(extract, file, ShapingOptions())
    assert seen == sorted(seen)
    assert len({*seen}) > 1
    assert file.bytes / 4 < seen[-1] < file.bytes * 2


def unpacked(packed: Path, folder: Path) -> Path:
    import gzip

    target = folder / packed.name.removesuffix(".gz")
    with gzip.open(packed) as source, target.open("wb") as made:
        shutil.copyfileobj(source, made)
    return target


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_advances_inside_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    [file, *_] = discover([SAMPLE / "report_rank_0.sqlite"])
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(meter.of_process, "written_s", 0)
    with progress_bar(quiet=False) as (started, advance):
        started([file])
        meter.begin(file.path)
        meter.add(file.bytes // 2)
        until = time.monotonic() + 20
        half = f"{file.bytes / 2000:.1f}/{file.bytes / 1000:.1f} kB"
        while half not in screen.getvalue() and time.monotonic() < until:
            time.sleep(0.05)
        assert "0/1" in screen.getvalue()
        advance(file, 1)
    assert half in screen.getvalue()
