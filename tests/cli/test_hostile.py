"""Reports are made by others: nothing in them reaches a terminal or a query."""

import json
from pathlib import Path

import pytest

from rankscope.model.kinds import By
from tests.support import (
    SAMPLE,
    Cli,
    MakeForged,
    Result,
    copied,
    edit,
    mostly_nightly,
    renamed,
    with_environment,
)

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "[bold]loud[/bold] [/]",
    "nul\0inside",
    "'; drop table ranks; --",
    '"quoted", {braces} %s %(x)s',
    "\u202ereversed",
    "x" * 10_000,
    "line\nbreak\r\n",
]
BROKEN = b"broken \xff\xfe utf-8"
HOSTILES: list[str | bytes] = [*HOSTILE, BROKEN]


def harmless(result: Result) -> None:
    for text in (result.out, result.err):
        assert not {char for char in text if ord(char) < 32 and char != "\n"}
        assert not {*"\x7f\x9b\u202e"} & {*text}
    assert "Traceback" not in result.err


@pytest.mark.parametrize("name", mostly_nightly(HOSTILES), ids=range(len(HOSTILES)))
def test_ranges_of_any_name(cli: Cli, sample_reports: list[Path], name: str | bytes) -> None:
    """As foreign ranges they change nothing; as the only ones they are listed harmlessly."""
    reports = sample_reports
    for report in reports:
        edit(
            report,
            'insert into NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId) '
            "select start + 1, start + 2, 59, ?, globalTid, 0 from NVTX_EVENTS "
            "where text like 'Batch%'",
            name,
        )
    result = cli("ingest", *reports)
    harmless(result)
    assert result.code == 0
    answer = cli("imbalance", "--format", "json").document
    assert answer["verdict"]["ranks"] == [2]
    edit(reports[0], "delete from NVTX_EVENTS where text like 'Batch%'")
    refused = cli("ingest", reports[0], "--db", "other.duckdb", "--iteration", "lap")
    refused.refused(3, reports[0].name)
    harmless(refused)
    assert len(refused.err) < 3000, "no wall of text"


def test_environments_of_any_content(cli: Cli, forged: MakeForged, tmp_path: Path) -> None:
    reports = copied(forged("plain", iterations=12).reports, tmp_path / "reports")
    for rank, report in enumerate(reports):
        odd = {f"ODD{i}": text for i, text in enumerate(HOSTILE)}
        with_environment(report, **odd, RANK=str(rank), WORLD_SIZE="4")
    assert cli("ingest", *reports).code == 0


@pytest.mark.parametrize(
    "name",
    mostly_nightly(
        ["\x1b[31mr_rank_0.sqlite", "r [bold] rank_0.sqlite", "q'\"; rank_0.sqlite"],
    ),
)
def test_files_of_any_name(cli: Cli, tmp_path: Path, name: str) -> None:
    copied([SAMPLE / "report_rank_0.sqlite"], tmp_path / "r", [name])
    for command in (("ingest", tmp_path / "r", "--verbose"), ("imbalance",), ("pick-reports",)):
        result = cli(*command)
        assert result.code == 0
        harmless(result)
    (tmp_path / "r" / name).write_bytes(b"")
    refused = cli("ingest", tmp_path / "r")
    refused.refused(3, "rank_0.sqlite")
    harmless(refused)


FOUR: list[str | bytes] = [
    HOSTILE[1],
    "<script>alert(1)</script>|\u202ereversed",
    "שלום" * 125,
    BROKEN,
]


@pytest.mark.parametrize("names", mostly_nightly([FOUR, HOSTILE[:4], HOSTILE[2:6], HOSTILE[5:]]))
def test_hostile_names_in_every_command(
    cli: Cli, forged: MakeForged, tmp_path: Path, names: list[str | bytes]
) -> None:
    """Of hosts and kernels, in what is printed and what is written."""
    reports = copied(forged("planted", iterations=12).reports, tmp_path / "reports")
    for report, name in zip(reports, names, strict=True):
        renamed(report, name, name if isinstance(name, str) else "\x9b31m")
    assert cli("ingest", *reports).code == 0
    everywhere = [("imbalance", "--by", by) for by in By] + [
        ("check", *reports), ("diff", "rankscope.duckdb", "rankscope.duckdb"),
        ("plot", "heatmap"), ("plot", "timeline"), ("plot", "phases"), ("plot", "arrivals"),
        ("export", "-o", "t.json"), ("export", "-o", "t.csv"), ("report", "-o", "r.html"),
    ]  # fmt: skip
    for command in everywhere:
        tables = command[0] in ("check", "diff") or command[-1] in (By.HOST, By.KERNEL)
        for output in ("table", "json", *(("markdown", "csv") if tables else ())):
            result = cli(*command, "--format", output)
            assert result.code == 0, (command, result.err)
            harmless(result)
            if output in ("table", "markdown"):
                assert max(map(len, result.out.splitlines())) < 1000, (command, output)
    if "[bold]loud[/bold] [/]" in names:
        assert "[bold]loud[/bold] [/]" in cli("imbalance", "--by", "host").out, "no markup"
    assert "<script>alert" not in (tmp_path / "r.html").read_text("utf-8")
    for written in ("t.json", "t.csv"):
        text = (tmp_path / written).read_text("utf-8")
        assert not {char for char in text if ord(char) < 32 and char != "\n"}
    trace = json.loads((tmp_path / "t.json").read_text("utf-8"))["traceEvents"]
    processes = [each["args"]["name"] for each in trace if each["name"] == "process_name"]
    assert processes
    assert all(name.isprintable() for name in processes)
