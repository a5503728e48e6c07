"""The registry of formats: one row is all that a new format needs."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.errors import UnreadableReport
from rankscope.model.device_work import InMemoryWork
from rankscope.model.kinds import EvidenceKind
from rankscope.model.ranges import Ranges
from rankscope.model.reports import CaptureFacts, Claim, RankEvidence, ReportFile, Trace
from rankscope.model.schema import DEVICE_WORK, RANGES, conform, empty
from rankscope.sources import formats
from rankscope.sources.discover import discover
from rankscope.sources.report_format import Format, IterationHints, Viewer
from tests.support import MS, ROOT, Cli

RANKS, STEPS, SLOW = 4, 12, 2
STARTED_NS = 1_795_249_000_000_000_000
HEADER = RankEvidence("header line", EvidenceKind.PROFILER, own=True)


def facts(path: Path) -> CaptureFacts:
    with path.open(encoding="utf-8") as file:
        try:
            header = json.loads(file.readline())
        except ValueError as error:
            raise UnreadableReport(f"{path}: has no header", hint="record it again") from error
    claim = Claim(header["rank"], RANKS, HEADER)
    return CaptureFacts(header["host"], STARTED_NS, header["duration"], (claim,), None, "1.0")


def read(path: Path, *_: object) -> Trace:
    known = facts(path)
    lines = path.read_text("utf-8").splitlines()[1:]
    ranges = pl.DataFrame(
        [(*json.loads(line), 77, 77, "") for line in lines],
        schema=["start", "end", "name", "process", "thread", "domain"],
        orient="row",
    ).sort("start", "end", descending=[False, True])
    return Trace(
        facts=known,
        ranges=Ranges.of(conform(ranges.with_columns(payload=None), RANGES)),
        device_work=InMemoryWork(empty(DEVICE_WORK)),
        host_events=ranges.height,
    )


LINES = Format(
    name="range-lines",
    family="range-lines",
    facts=facts,
    read=read,
    hints=IterationHints(ranges="logged", no_ranges="log every step"),
    suffixes=(".lines",),
    inner_suffixes=(".log",),
    sniff=lambda path: path.read_bytes()[:7] == b'{"rank"',
    sniffed_as="logs of ranges",
    viewer=Viewer.BROWSER,
)
"""A line of JSON with the facts, then a line per range: start, end, name."""

COPIES = replace(LINES, name="range-copies", suffixes=(), folders=("_lines",), viewer=None)
"""Another form of the same reports."""


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        formats, "FORMATS", (*formats.FORMATS, replace(COPIES, preference=1), LINES)
    )


def write(
    path: Path, rank: int, names: tuple[str, ...] = ("step", "backward", "all_reduce")
) -> Path:
    """A report: 10 ms of backward a step, 15 ms on the slow rank, for which the others wait."""
    step, backward, reduce = names
    lines: list[object] = []
    now = 0
    for number in range(STEPS):
        own = (15 if rank == SLOW else 10) * MS
        lines += [
            (now, now + 20 * MS, f"{step} {number}"),
            (now, now + own, backward),
            (now + own, now + 16 * MS, reduce),
        ]
        now += 20 * MS
    header = {"rank": rank, "host": f"node{rank // 2}", "duration": now + 5 * MS}
    path.write_text("\n".join(json.dumps(each) for each in [header, *lines]), "utf-8")
    return path


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles"
    folder.mkdir()
    for rank in range(RANKS):
        write(folder / f"job_{rank}.log.lines", rank)
    (folder / "notes.lines").write_text("just lines")
    return folder


def test_reports_of_a_new_format_are_found(reports: Path) -> None:
    found = discover([reports])
    assert [(file.path.name, file.kind) for file in found] == [
        (f"job_{rank}.log.lines", "range-lines") for rank in range(RANKS)
    ]
    assert {".lines", "_lines"} <= {*formats.endings()}
    assert formats.title(reports / "job_3.log.LINES") == "job_3"


def test_of_the_forms_of_one_report_the_preferred_is_read_and_the_other_opened(
    reports: Path,
) -> None:
    (reports / "job_0.log_lines").mkdir()
    assert formats.of_folder("job_0.log_lines") is not None
    first = discover([reports])[0]
    assert (first.path.name, first.kind) == ("job_0.log.lines", "range-lines")
    forms = formats.forms(reports / "job_0.log_lines")
    assert [path for _, path in forms] == [reports / "job_0.log.lines"]


def test_forms_older_than_what_the_profiler_recorded_are_not_read(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = replace(LINES, preference=9, recorded=True)
    monkeypatch.setattr(formats, "FORMATS", (COPIES, recorded))
    copy = reports / "job_0.log_lines"
    copy.mkdir()
    write(copy / "all", 0)
    assert discover([reports])[0].kind == "range-copies"
    os.utime(copy / "all", (1, 1))
    assert discover([reports])[0].kind == "range-lines"


def test_a_new_format_goes_all_the_way(cli: Cli, reports: Path) -> None:
    """From the folder to the slow rank and the report to open."""
    checked = cli("check", reports, "--format", "json").document
    assert [(each["ranks"], each["iterations"]) for each in checked["reports"]] == [
        ([rank], STEPS) for rank in range(RANKS)
    ]
    taken = cli("ingest", reports, "--format", "json").document["reports"]
    assert {(each["kind"], each["rank_evidence"]) for each in taken} == {
        ("range-lines", "header line")
    }
    output = cli("imbalance", "--format", "json").document
    assert output["verdict"]["ranks"] == [SLOW]
    assert "backward" in output["verdict"]["sentence"]
    picks = cli("pick-reports", "--format", "json").document
    slowest = {each["rank"]: each for each in picks["picks"]}[SLOW]
    assert Path(slowest["report"]).name == f"job_{SLOW}.log.lines"
    assert f"job_{SLOW}.log.lines" in cli("pick-reports").out.split("Open each")[1]
    assert slowest["pid"] == 77
    cli("pick-reports", "--open").refused(2, "--open", "does not open")


@pytest.mark.slow
def test_a_format_without_a_viewer_is_said_to_have_none(
    cli: Cli, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "FORMATS", (replace(LINES, viewer=None),))
    assert cli("ingest", reports).code == 0
    picks = cli("pick-reports")
    assert picks.code == 0
    assert "reports of the format range-lines have no viewer" in picks.err
    assert ".nsys-rep" not in picks.err
    cli("pick-reports", "--open").refused(3, "range-lines have no viewer", "where to look")


def test_its_own_hints_are_given(cli: Cli, reports: Path) -> None:
    path = write(reports / "job_0.log.lines", 0, ("turn", "stage", "sync"))
    path.write_text(path.read_text("utf-8").splitlines()[0], "utf-8")
    cli("ingest", path).refused(3, "holds no events", "log every step")
    refused = cli("ingest", path, "--iteration", "turn")
    refused.refused(3, "holds no logged ranges", "log every step")


def test_two_reports_that_claim_one_rank_are_refused_before_they_are_read(
    cli: Cli, reports: Path
) -> None:
    """The evidence of the format is the rank's own."""
    write(reports / "again.lines", SLOW, ("step", "backward", "all_gather"))
    cli("ingest", reports).refused(3, "again.lines", f"claims rank {SLOW}, and so does")


def test_an_unknown_format_is_a_clear_error() -> None:
    with pytest.raises(UnreadableReport, match="punched-cards") as refused:
        formats.facts(ReportFile(Path("a.cards"), "punched-cards", 0, 0))
    assert "range-lines" in refused.value.hint


def test_names_and_endings_are_distinct() -> None:
    endings = [end for each in formats.FORMATS for end in (*each.suffixes, *each.folders)]
    names = [each.name for each in formats.FORMATS]
    assert len({*endings}) == len(endings)
    assert len({*names}) == len(names)
    assert sum(each.any_name for each in formats.FORMATS) == 1


def test_the_import_contract_names_every_format() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [contract] = [each for each in contracts if each["name"].startswith("Report formats")]
    for each in formats.FORMATS:
        module = each.read.__module__
        if module != __name__:
            assert any(f"{module}.".startswith(f"{name}.") for name in contract["modules"]), (
                f"pyproject.toml, import contract {contract['name']!r}: add {module} to `modules`"
            )


def test_the_registry_loads_no_reader() -> None:
    """Workers start, and `--help` answers, before polars is loaded."""
    code = "import sys, rankscope.sources.formats; print('polars' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
