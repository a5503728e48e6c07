"""From reports to the suspect: jobs on cards that change their places, and the command line."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import rankscope
from rankscope.errors import ReportError
from rankscope.history.fleet.collect import collect, databases, evidence_of
from rankscope.history.fleet.evidence import RunEvidence
from rankscope.history.fleet.fleet import fleet_of
from tests.docs.test_json_schema import fits
from tests.forge import forge, scene
from tests.forge.job import Plant
from tests.history.fleet.machines import Machine, furnish
from tests.support import PROMTOOL, Cli, assert_exported, change, edit, renamed

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

RUNS, RANKS = 6, 4
BAD = "GPU-2"


def place_of(run: int, rank: int) -> int:
    """The number of the card that a rank of a run computes on."""
    return (rank + run) % RANKS


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six jobs of four ranks; the card GPU-2 is slow, and another rank has it in each job.

    Hosts have a rank each, and are others in every second job.
    """
    folder = tmp_path_factory.mktemp("fleet")
    for run in range(RUNS):
        [slow] = [rank for rank in range(RANKS) if f"GPU-{place_of(run, rank)}" == BAD]
        plant = Plant("persistent", "device", (slow,), factor=1.3)
        job = replace(scene("plain", ranks=RANKS, iterations=10, seed=run), plants=(plant,))
        reports = folder / f"reports{run}"
        forge(job, reports)
        for rank, report in enumerate(sorted(reports.glob("*.sqlite"))):
            furnish(report, Machine((f"GPU-{place_of(run, rank)}",), driver="580.95.05"))
            renamed(report, f"n{(rank + run // 2) % RANKS}")
            late = run * 3_600 * 10**9
            start = "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = utcEpochNs + ?"
            edit(report, start, late)
        (folder / "runs").mkdir(exist_ok=True)
        rankscope.ingest([reports], folder / "runs" / f"run{run}.duckdb", jobs=1)
    return folder / "runs"


def test_a_card_that_changes_places_is_found(runs: Path) -> None:
    collected = collect(databases([str(runs)]))
    assert collected.runs.height == RUNS
    assert collected.evidence["gpu"].n_unique() == RANKS
    assert collected.runs["software"].unique().to_list() == ["driver 580.95.05, CUDA 13.0"]
    answer = fleet_of(collected)
    [suspect] = answer.suspects
    assert (suspect.kind, suspect.id, suspect.follows) == ("gpu", BAD, "card")
    assert (suspect.guilty, suspect.runs) == (RUNS, RUNS)
    verdicts = [rankscope.open_run(path).imbalance().verdict for path in sorted(runs.iterdir())]
    gain = sum(each.gain_ns or 0 for each in verdicts)
    assert suspect.cost_ns == pytest.approx(gain * RANKS, rel=1e-6)


def test_what_is_left_out_is_named(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the error itself names the database or not."""
    first, second, *others = databases([str(runs)])

    def read(path: Path) -> RunEvidence:
        if path in (first, second):
            raise ReportError(f"{first}: is odd" if path == first else "has no step", hint="")
        return evidence_of(path)

    monkeypatch.setattr("rankscope.history.fleet.collect.evidence_of", read)
    [warning] = collect([first, second, *others]).problems
    assert warning.message == (f"2 databases are left out: {first}: is odd; {second}: has no step")


def test_cached_answers_and_new_ones_are_the_same(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = runs / "run1.duckdb"
    cached = evidence_of(path)
    monkeypatch.setattr("rankscope.history.fleet.collect.cached_answers", lambda *_: None)
    made = evidence_of(path)
    assert made.ranks.equals(cached.ranks)
    assert made.run.equals(cached.run)


def test_every_format(cli: Cli, runs: Path) -> None:
    table = cli("fleet", runs)
    assert table.code == 0
    assert f"GPU {BAD}" in table.out.splitlines()[0]
    assert table.out.splitlines()[1].startswith(f"Next: check GPU {BAD}")
    rows = cli("fleet", runs, "--format", "csv").out.splitlines()
    assert rows[0].startswith("kind,id,host")
    assert rows[1].startswith(f"gpu,{BAD}")
    marked = cli("fleet", f"{runs}/*.duckdb", "--format", "markdown").out
    assert re.search(rf"^\| GPU \| {BAD} .* yes \|$", marked, re.MULTILINE)
    assert re.search(r"^\| hardware .* suspect \|$", marked, re.MULTILINE)
    document = json.loads(cli("fleet", runs, "--format", "json").out)
    assert document["format"] == "rankscope/fleet/1"
    assert fits(document) == "fleet"
    assert document["verdict"]["suspects"] == [BAD]
    [suspect] = [each for each in document["hardware"] if each["suspect"]]
    assert suspect["kind"] == "gpu"
    assert suspect["interval"][0] <= suspect["rate"] <= suspect["interval"][1]
    assert [each["ranks"] for each in document["runs"]] == [RANKS] * RUNS
    starts = [each["start"] for each in document["runs"]]
    assert starts == sorted(starts)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", each) for each in starts)


def test_few_runs_accuse_nobody(cli: Cli, runs: Path) -> None:
    said = cli("fleet", runs / "run0.duckdb", runs / "run1.duckdb").out
    assert said.startswith("Nobody beyond chance")
    assert "Next: profile more runs" in said
    assert not re.search(r"^hardware .* suspect", said, re.MULTILINE)


def test_a_ledger_outlives_the_runs(cli: Cli, runs: Path) -> None:
    for path in sorted(runs.iterdir()):
        assert cli("fleet", "--store", "fleet.duckdb", "add", path).code == 0
    kept = cli("fleet", "--store", "fleet.duckdb", "--format", "csv")
    assert kept.out == cli("fleet", runs, "--format", "csv").out
    both = cli("fleet", runs, "--store", "fleet.duckdb", "--format", "csv")
    assert both.out == kept.out


def test_the_file_for_node_exporter(cli: Cli, runs: Path) -> None:
    assert cli("fleet", runs, "--prometheus", "rankscope.prom").code == 0
    text = Path("rankscope.prom").read_text()
    assert text.endswith("\n")
    declared = re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE)
    assert len({*declared}) == len(declared) > 5
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert {re.split(r"[{ ]", line)[0] for line in samples} == {*declared}
    label = rf'rankscope_fleet_hardware_suspect{{kind="gpu",id="{BAD}",host="n[0-3]"}} 1'
    assert re.search(f"^{label}$", text, re.MULTILINE)
    assert "rankscope_fleet_suspects 1\n" in text
    assert f"rankscope_fleet_runs {RUNS}\n" in text


@PROMTOOL
def test_prometheus_accepts_the_file(cli: Cli, runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "hostile.duckdb"
    path.write_bytes((runs / "run0.duckdb").read_bytes())
    change(path, "update ranks set host = 'n\x1b[31m\"\\\n|0'")
    for paths in ([runs], [runs, path]):
        assert cli("fleet", *paths, "--prometheus", "rankscope.prom").code == 0
        assert_exported(Path("rankscope.prom"))


def test_the_page(cli: Cli, runs: Path) -> None:
    done = cli("fleet", runs, "--html", "fleet.html")
    assert done.code == 0
    assert done.out == cli("fleet", runs).out
    assert '<th scope="row" class="suspect"' in Path("fleet.html").read_text("utf-8")


def test_what_cannot_be_read_is_left_out(cli: Cli, runs: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.duckdb"
    bad.write_text("nothing " * 1000)
    result = cli("fleet", runs, bad)
    assert result.code == 0
    assert f"GPU {BAD}" in result.out
    assert "bad.duckdb" in result.err
    cli("fleet", bad).refused(4, "bad.duckdb")


def test_wrong_usage(cli: Cli, runs: Path) -> None:
    cli("fleet").refused(2, "no runs")
    cli("fleet", "none.duckdb").refused(2, "none.duckdb")
    cli("fleet", "add", runs).refused(2, "ledger")
    cli("fleet", "--store", "none.duckdb").refused(4, "none.duckdb")
    cli("fleet", runs, "--prometheus", "no/folder.prom").refused(2, "no/folder.prom")
    cli("fleet", runs, "--html", "page.txt").refused(2, "--html page.html")
    cli("fleet", runs, "--html", "no/page.html").refused(2, "no/page.html")


def test_names_are_harmless_wherever_they_are_shown(cli: Cli, runs: Path, tmp_path: Path) -> None:
    """Host names come from strangers."""
    path = tmp_path / "hostile.duckdb"
    path.write_bytes((runs / "run0.duckdb").read_bytes())
    change(path, "update ranks set host = 'n\x1b[31m\"\\\n|0'")
    for output in ("table", "csv", "markdown", "json"):
        assert "\x1b" not in cli("fleet", path, "--format", output, "--all").out
    assert cli("fleet", path, "--prometheus", "x.prom").code == 0
    lines = Path("x.prom").read_text().splitlines()
    assert all(re.match(r"# |rankscope_fleet_\w+(\{.*\})? [0-9.e+-]+$", line) for line in lines)
