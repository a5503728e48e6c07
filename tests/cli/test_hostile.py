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
    Stored,
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
COMMANDS = [
    ("ingest", "--verbose"), ("imbalance",), ("imbalance", "--by", "host"),
    ("imbalance", "--by", "collective"), ("pick-reports",),
]  # fmt: skip


def harmless(result: Result) -> None:
    for text in (result.out, result.err):
        assert not {char for char in text if ord(char) < 32 and char != "\n"}
        assert not {*"\x7f\x9b\u202e"} & {*text}
    assert "Traceback" not in result.err


@pytest.mark.parametrize("first", mostly_nightly([0, 3, 6], 0))
def test_hosts_of_any_name(cli: Cli, sample_reports: list[Path], first: int) -> None:
    reports = sample_reports
    names = HOSTILES[first : first + 4]
    for report, name in zip(reports, names, strict=True):
        renamed(report, name)
    for command in COMMANDS:
        arguments = [*command, *(reports if command[0] == "ingest" else [])]
        for output in ("table", "markdown", "csv"):
            result = cli(*arguments, "--format", output)
            assert result.code == 0
            if output == "csv":  # data for programs: whole, as it stands
                continue
            harmless(result)
        if command[0] != "pick-reports":
            harmless(cli(*arguments, "--format", "json"))
    if "[bold]loud[/bold] [/]" in names:
        assert "[bold]loud[/bold] [/]" in cli("imbalance", "--by", "host").out, "no markup"


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


def test_kernels_of_any_name(cli: Cli, forged: MakeForged, tmp_path: Path) -> None:
    reports = copied(forged("plain", iterations=12).reports, tmp_path / "reports")
    for report in reports:
        for name in HOSTILES:
            edit(
                report,
                "update StringIds set value = ? where id = (select shortName from "
                "CUPTI_ACTIVITY_KIND_KERNEL k join StringIds s on s.id = k.shortName "
                "where value not like '%nccl%' limit 1)",
                name,
            )
    assert cli("ingest", *reports).code == 0
    harmless(cli("imbalance"))
    assert cli("imbalance", "--format", "json").document["verdict"]["class"] == "balanced"


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


@pytest.mark.slow
def test_hostile_names_in_every_command(cli: Cli, forged: MakeForged, tmp_path: Path) -> None:
    """Of hosts, kernels and ranges, in what is printed and what is written."""
    reports = copied(forged("planted", iterations=12).reports, tmp_path / "reports")
    names = ["\x1b]0;title\x07", "<script>alert(1)</script>|\u202ereversed", "שלום" * 125, BROKEN]
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
    assert "<script>alert" not in (tmp_path / "r.html").read_text("utf-8")
    for written in ("t.json", "t.csv"):
        text = (tmp_path / written).read_text("utf-8")
        assert not {char for char in text if ord(char) < 32 and char != "\n"}
    trace = json.loads((tmp_path / "t.json").read_text("utf-8"))["traceEvents"]
    processes = [each["args"]["name"] for each in trace if each["name"] == "process_name"]
    assert processes
    assert all(name.isprintable() for name in processes)


@pytest.mark.parametrize(
    "command",
    [("imbalance",), ("pick-reports",), ("plot", "heatmap"), ("export", "-o", "t.json"),
     ("diff", "rankscope.duckdb", "rankscope.duckdb"), ("report", "-o", "r.html")],
    ids=lambda command: command[0],
)  # fmt: skip
def test_what_is_not_there_is_refused(cli: Cli, sample: Stored, command: tuple[str, ...]) -> None:
    """An absent metric and a range without iterations."""
    given = [sample.db if word == "rankscope.duckdb" else word for word in command]
    chosen = [] if command[0] == "diff" else ["--db", sample.db]
    empty = cli(*given, *chosen, "--iter-range", "500:600")
    empty.refused(2, "500:600")
    harmless(empty)
    if command[0] != "report":
        absent = cli(*given, *chosen, "--metric", "\x1b[31mspeed" + "y" * 500)
        absent.refused(2, "no such metric")
        harmless(absent)
    assert not [*Path().glob("[tr].*")], "nothing was written"
