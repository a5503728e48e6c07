"""What a new user types instead of the right command, and what it says or does then."""

import os
import shutil
from pathlib import Path

import pytest

from rankscope.history.fleet.collect import databases
from tests.support import SAMPLE, Cli, Stored

NAMED = "Rank 2 (node1)"


def test_imbalance_of_reports_ingests_them_first(cli: Cli) -> None:
    done = cli("imbalance", SAMPLE)
    assert done.code == 0
    assert done.out.startswith(NAMED)
    assert "4 reports (4 read) in rankscope.duckdb" in done.err
    assert Path("rankscope.duckdb").exists()
    assert "4 reports (0 read)" in cli("imbalance", SAMPLE).err, "unchanged ones stay"
    cli("imbalance", SAMPLE.parent, "--db", "other.duckdb").refused(3, "3 runs")
    cli("imbalance", "nowhere").refused(2, "nowhere")
    other = cli("imbalance", SAMPLE, "--db", "other.duckdb", "--phase", "load=Backward Pass")
    assert "5.66 (3)" in other.out, "what --phase names is loading"
    cli("imbalance", "--phase", "load=x").refused(2, "are about reports, and none", "PROFILES --it")


def test_a_folder_without_a_name_in_place_of_a_page(cli: Cli) -> None:
    for path in (".", "/"):
        cli("report", "-o", path).refused(2, f"-o {path}: the name of a page", "-o report.html")


def test_a_folder_that_goes_while_runs_are_searched_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "run.duckdb").touch()
    listed = os.scandir

    def scandir(path: str) -> object:
        if Path(path).name == "gone":
            raise FileNotFoundError(path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert databases([str(tmp_path)]) == [tmp_path / "run.duckdb"]


def test_a_database_in_place_of_reports(cli: Cli, sample: Stored) -> None:
    folder = Path("runs")
    folder.mkdir()
    shutil.copyfile(sample.db, folder / "a.duckdb")
    for word in (folder / "a.duckdb", folder):
        done = cli("imbalance", word)
        assert done.out.startswith(NAMED)
        assert "rankscope pick-reports --db runs/a.duckdb." in done.out, "the next command works"
    hint = "rankscope imbalance --db runs/a.duckdb"
    cli("ingest", folder / "a.duckdb").refused(3, "is a DuckDB database, not a report", hint)
    shutil.copyfile(sample.db, folder / "b.duckdb")
    cli("imbalance", folder).refused(2, "runs/a.duckdb, runs/b.duckdb")


@pytest.mark.parametrize("named", ["", "vm.xplane.pb"])
def test_a_profile_of_jax(cli: Cli, tmp_path: Path, named: str) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "vm.xplane.pb").write_bytes(b"\x0a\x10/host:CPU")
    refused = cli("ingest", folder / named)
    refused.refused(3 if named else 2, "vm.xplane.pb: is a profile of JAX", "rankscope capture")
    assert "export it again" not in refused.err


def test_the_next_command_is_about_the_same_iterations(cli: Cli, sample: Stored) -> None:
    done = cli("imbalance", "--db", sample.db, "--iter-range", "10:15", "--fail-above", "1")
    assert done.out.count("--iter-range 10:15.") == 1
    assert "rankscope pick-reports --db" in done.err
    assert "--iter-range 10:15 to see" in done.err
    cli("imbalance", "--db", sample.db, "--iter-range", "12:12").refused(2, "12:13 is iteration 12")


def test_a_missing_database_names_those_beside_it(cli: Cli, sample: Stored) -> None:
    cli("pick-reports").refused(4, "make it: rankscope ingest PROFILES")
    for name in ("one.duckdb", "two.duckdb"):
        shutil.copyfile(sample.db, name)
    for words in (("pick-reports",), ("diff", "none.duckdb", "two.duckdb")):
        cli(*words).refused(4, "there are one.duckdb, two.duckdb; or make it")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("ingest", "profiles", "-o", "x.duckdb"), "--db FILE names the database"),
        (("imbalance", "-o", "x.json"), "rankscope imbalance > FILE"),
        (("report",), "rankscope report -o FILE"),
        (("pick-reports", "--view"), "see rankscope pick-reports --help"),
        (("pick-reports", "--iteration", "step_(\\d+)"), "rankscope ingest PROFILES --iteration"),
        (("pick-reports", "run.duckdb"), "--db run.duckdb names the database"),
        (("plot", "heatmap", "profiles"), "first rankscope ingest profiles"),
        (("plot", "run.duckdb"), "one of heatmap"),
    ],
)
def test_hints_say_what_was_meant(cli: Cli, words: tuple[str, ...], hint: str) -> None:
    Path("profiles").mkdir()
    cli(*words).refused(2, hint)


def test_an_option_of_reading_is_explained_and_not_guessed_at(cli: Cli, sample: Stored) -> None:
    done = cli("pick-reports", "--db", sample.db, "--phase", "backward=^Compute")
    done.refused(2, "rankscope ingest PROFILES --phase")
    assert "no such option: --phase\n" in done.err, "and no list of possible options"
