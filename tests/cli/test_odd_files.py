"""FIFOs, sockets and devices named like reports: nothing waits for them. Odd names of threads."""

import os
import socket
from itertools import product
from pathlib import Path

import pytest

import rankscope
from tests.support import (
    SAMPLE,
    Cli,
    MakeForged,
    asked,
    copied,
    edit,
    mostly_nightly,
    with_table,
    without_rank,
)

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs


def fifo(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        before = Path.cwd()
        os.chdir(path.parent)  # its name may be only so long
        made.bind(path.name)
        os.chdir(before)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD = {"a FIFO": fifo, "a socket": listening, "a device": device}
ENDINGS = (".sqlite", ".nsys-rep", ".json", ".qdstrm", ".json.gz")
FILES = [*zip(ENDINGS[:3], ODD, strict=True)]
"""A file of each kind."""


@pytest.mark.parametrize(
    ("ending", "what"),
    mostly_nightly([*FILES, *(each for each in product(ENDINGS, ODD) if each not in FILES)], 3),
)
def test_only_regular_files_are_opened(cli: Cli, tmp_path: Path, what: str, ending: str) -> None:
    folder = tmp_path / "reports"
    copied(sorted(SAMPLE.glob("*.sqlite"))[:2], folder)
    odd = folder / f"report_rank_7{ending}"
    ODD[what](odd)
    cli("ingest", odd).refused(3, odd.name, what)
    cli("check", odd).refused(3, odd.name, what)
    if ending.startswith(".json"):  # in a folder, that is no report
        assert cli("ingest", folder).code == 0
        assert cli("check", folder).code == 0
        return
    cli("ingest", folder).refused(3, odd.name, what)
    output = cli("ingest", folder, "--on-error", "skip", "--format", "json").document
    assert [each["status"] for each in output["reports"]] == ["read", "read", "skipped"]
    checked = cli("check", folder)
    assert checked.code == 3
    assert what in checked.out


@pytest.mark.parametrize("what", mostly_nightly(ODD))
def test_in_the_folder_of_an_export(cli: Cli, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "report_rank_0_pqtdir"
    folder.mkdir()
    ODD[what](folder / "NVTX_EVENTS.parquet")
    cli("ingest", folder).refused(3, "NVTX_EVENTS.parquet", what)
    cli("check", folder).refused(3, "NVTX_EVENTS.parquet", what)


DIGITS = ["٣", "²", "３", "৩", "1٣"]
"""Digits of other scripts than 0 to 9."""


@pytest.mark.parametrize("digit", mostly_nightly(DIGITS))
@pytest.mark.parametrize("name", ["MPI Rank {}", "XlaLauncher:#global=1,local=0,process={},"])
def test_threads_named_with_digits_of_other_scripts(
    cli: Cli, forged: MakeForged, tmp_path: Path, name: str, digit: str
) -> None:
    reports = copied(forged("plain", iterations=12).reports, tmp_path / "reports")
    edit(reports[1], "insert into StringIds values (987654, ?)", name.format(digit))
    [thread, *_] = asked(reports[1], "select 987654, globalTid from NVTX_EVENTS")
    with_table(reports[1], "ThreadNames", "nameId, globalTid", thread)
    assert cli("ingest", *reports, "--rebuild").code == 0
    assert cli("imbalance", "--format", "json").document["run"]["ranks"] == [0, 1, 2, 3]


@pytest.mark.parametrize("digit", mostly_nightly(DIGITS))
def test_files_named_with_digits_of_other_scripts(cli: Cli, tmp_path: Path, digit: str) -> None:
    """They are no numbers: no rank, neither of several reports nor of one."""
    names = [f"rank_{digit}x.sqlite", "other.sqlite"]
    report, other = copied(sorted(SAMPLE.glob("*.sqlite"))[2:], tmp_path, names)
    for each in (report, other):
        without_rank(each)
    cli("ingest", report, other).refused(3, "no evidence of the rank")
    alone = cli("ingest", report)
    assert alone.code == 0
    assert f"nothing says which rank {report.name} is" in alone.err
    assert rankscope.open_run("rankscope.duckdb").iterations()["rank"].unique().to_list() == [0]
    pattern = r"rank_(?P<rank>\w+)x"
    cli("ingest", report, "--rank-pattern", pattern).refused(2, "--rank-pattern")


@pytest.mark.parametrize("digit", mostly_nightly(DIGITS))
def test_ranges_numbered_with_digits_of_other_scripts(cli: Cli, tmp_path: Path, digit: str) -> None:
    [report] = copied([SAMPLE / "report_rank_0.sqlite"], tmp_path)
    edit(report, "update NVTX_EVENTS set text = replace(text, 'Batch1', 'Batch' || ?)", digit)
    for options in ((), ("--iteration", r"Batch(\d+)"), ("--iteration", r"Batch(.*)")):
        assert cli("ingest", report, "--rebuild", *options).code == 0
