"""`rankscope diff`: its JSON, tables, and the gate for CI."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import rankscope
from tests.support import MS, Cli, MakeForged, MakeStored

Pair = tuple[Path, Path]
CHANGE = {"metric", "before_ns", "after_ns", "change"}


@pytest.fixture
def slower(stored: MakeStored) -> Pair:
    """A healthy job, and one whose rank 3 needs 8 ms more for every forward pass."""
    return stored("plain").db, stored("planted", where="forward").db


@pytest.fixture
def document(cli: Cli, slower: Pair, made_once: Callable[..., Any]) -> dict[str, Any]:
    """What changed between the two, as JSON."""
    command = ("diff", *slower, "--format", "json")
    return made_once("the document of a diff", lambda _: cli(*command).document)


def test_its_document(document: dict[str, Any], slower: Pair) -> None:
    answer = document
    assert answer["format"] == "rankscope/diff/1"
    assert answer.keys() >= {"run", "warnings", "metrics", "ranks", "verdicts", "sentence"}
    assert answer["run"]["db"] == str(slower[1])
    assert {each["metric"] for each in answer["metrics"]} >= {"iteration", "work", "forward"}
    for each in [*answer["metrics"], *answer["ranks"]]:
        assert each.keys() >= CHANGE | {"low", "high", "certain"}
        assert type(each["before_ns"]) is type(each["after_ns"])
        assert each["before_ns"] is None or type(each["before_ns"]) is int
    assert {each["rank"] for each in answer["ranks"]} == {0, 1, 2, 3}
    whole = next(each for each in answer["metrics"] if each["metric"] == "iteration")
    assert whole["certain"] is True
    assert whole["low"] <= whole["change"] <= whole["high"]
    assert whole["change"] == pytest.approx(whole["after_ns"] / whole["before_ns"] - 1, rel=1e-6)
    forward = next(
        each for each in answer["ranks"] if (each["rank"], each["metric"]) == (3, "forward")
    )
    assert forward["after_ns"] - forward["before_ns"] == pytest.approx(8 * MS, rel=0.1)
    assert answer["verdicts"]["before"]["class"] == "balanced"
    assert (answer["verdicts"]["after"]["class"], answer["verdicts"]["after"]["ranks"]) == (
        "persistent", [3],
    )  # fmt: skip
    assert answer["sentence"].split()[1:3] == ["%", "slower:"]


def test_phases_stand_above_what_follows_from_them(cli: Cli, slower: Pair) -> None:
    lines = cli("diff", *slower).out.splitlines()
    head = lines.index("Ranks that changed")
    assert lines[head + 3].split()[:2] == ["3", "forward"]
    assert any(" iteration " in line for line in lines[head + 4 :])


def test_a_run_beside_itself(cli: Cli, slower: Pair) -> None:
    answer = cli("diff", slower[0], slower[0], "--format", "json").document
    assert answer["sentence"].startswith("Both are the same run")
    assert not any(each["certain"] for each in [*answer["metrics"], *answer["ranks"]])
    assert {each["change"] for each in answer["metrics"]} <= {0, None}
    same = cli("diff", slower[0], slower[0], "--fail-above", 0)
    assert (same.code, same.out) == (0, "Both are the same run: every number is equal.\n")


def test_certain_is_what_the_interval_says(document: dict[str, Any]) -> None:
    iteration = document["metrics"][0]["before_ns"]
    certain = 0
    for each in [*document["metrics"], *document["ranks"]]:
        if each["low"] is None:
            continue
        assert each["low"] < each["high"], "no interval of zero width"
        beyond = not each["low"] <= 0 <= each["high"]
        large = abs(each["after_ns"] - each["before_ns"]) >= 0.01 * iteration
        assert each["certain"] == (beyond and large), each
        certain += each["certain"]
    assert certain


@pytest.mark.slow
def test_runs_on_different_clocks(cli: Cli, slower: Pair, stored: MakeStored) -> None:
    host = stored("host_only").db
    answer = cli("diff", host, slower[1], "--format", "json").document
    [warned] = [each["message"] for each in answer["warnings"] if each["code"] == "clocks-differ"]
    assert "before is on the host clock, after on the gpu clock" in warned
    assert answer["clock"] == "host"
    assert {each["metric"] for each in answer["metrics"]} == {"iteration", "load"}
    assert answer["run"]["clock"] == "gpu"
    assert answer["verdicts"]["after"]["class"] == "persistent", "each verdict on its own clock"


@pytest.mark.slow
def test_iterations_that_are_a_small_part_of_a_capture(
    cli: Cli, slower: Pair, tmp_path: Path
) -> None:
    """What follows the last one counts, and not the start of the job; nor does `--iter-range`."""
    after = tmp_path / "long.duckdb"
    after.write_bytes(slower[1].read_bytes())
    with duckdb.connect(str(after)) as connection:
        [(first, last)] = connection.execute(
            "select min(start_ns), max(end_ns) from iterations where rank = 0"
        ).fetchall()
        end = first + 20 * (last - first)
        connection.execute("update reports set duration_ns = ?", [end])
    done = cli("diff", slower[0], after)
    assert "the iterations of the run after cover 5.0 % of its capture from the first" in done.err
    with duckdb.connect(str(after)) as connection:
        late = f"{end}::bigint"
        connection.execute(f"update iterations set start_ns = start_ns + {late}")
        connection.execute(f"update iterations set end_ns = end_ns + {late}")
        connection.execute("update reports set duration_ns = ?", [last + end])
    assert "cover" not in cli("diff", slower[0], after).err, "a long start"
    assert "cover" not in cli("diff", *slower, "--iter-range", "5:7").err, "as was asked for"


def test_the_gate(cli: Cli, slower: Pair) -> None:
    before, after = slower
    assert cli("diff", before, after, "--fail-above", 50).code == 0
    failed = cli("diff", before, after, "--fail-above", 5, "--format", "json")
    assert failed.code == 10
    assert json.loads(failed.out)["sentence"], "the answer is there all the same"
    assert "--fail-above 5" in failed.err
    assert cli("diff", after, before, "--fail-above", 0).code == 0, "faster is never too slow"


def test_the_gate_where_it_is_uncertain(cli: Cli, slower: Pair) -> None:
    few = cli("diff", *slower, "--iter-range", "5:8", "--fail-above", 5)
    assert few.code == 3
    assert few.out.startswith("Inconclusive")
    assert "it is uncertain whether" in few.err


@pytest.mark.slow
def test_runs_of_different_jobs(cli: Cli, slower: Pair, stored: MakeStored) -> None:
    short = stored("short_steps", ranks=2, iterations=12)
    result = cli("diff", slower[0], short.db, "--fail-above", 5, "--format", "json")
    assert result.code == 3
    answer = json.loads(result.out)
    assert answer["sentence"].startswith(
        "Inconclusive: these look like different jobs: 4 ranks → 2;"
    )
    assert "times as short" in answer["sentence"]
    assert {each["code"] for each in answer["warnings"]} >= {"jobs-differ", "ranks-differ"}
    assert not any(each["certain"] for each in [*answer["metrics"], *answer["ranks"]])


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_what_changed_comes_first(cli: Cli, slower: Pair, output: str) -> None:
    result = cli("diff", *slower, "--format", output)
    assert result.code == 0, "a change is no error without the gate"
    lines = [line for line in result.out.splitlines() if line]
    assert "slower: " in lines[0]
    assert lines[1].startswith("Before: ")
    assert lines[2].startswith("After: Rank 3")
    assert "forward" in result.out
    assert "\x1b" not in result.out


def test_csv_has_a_row_per_metric_and_rank(cli: Cli, slower: Pair) -> None:
    options = ("--metric", "iteration", "--metric", "load", "--format", "csv")
    rows = cli("diff", *slower, *options).rows
    assert len(rows) == 2 + 2 * 4
    assert rows[0].keys() >= CHANGE | {"rank"}
    assert {row["rank"] for row in rows} == {"", "0", "1", "2", "3"}


@pytest.mark.slow
def test_statistics_and_clocks_are_taken(cli: Cli, slower: Pair) -> None:
    answer = cli("diff", *slower, "--statistic", "p95", "--clock", "host", "--format", "json")
    assert answer.document["run"]["clock"] == "host"
    mean = cli("diff", *slower, "--clock", "host", "--format", "json").document
    assert answer.document["metrics"][0]["before_ns"] > mean["metrics"][0]["before_ns"]


def test_wrong_usage(cli: Cli, slower: Pair, tmp_path: Path) -> None:
    cli("diff", slower[0]).refused(2)
    cli("diff", *slower, "--metric", "wrok").refused(2, "wrok")
    cli("diff", *slower, "--iter-range", "900:").refused(2)
    cli("diff", slower[0], tmp_path / "none.duckdb").refused(4, "none.duckdb")


@pytest.fixture(scope="session")
def baseline(forged: MakeForged, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs of the healthy job, each with a label; their folder."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(1, 5):
        reports = forged("plain", seed=seed).folder
        rankscope.ingest([reports], folder / f"run{seed}.duckdb", label=f"commit-{seed}", jobs=1)
    return folder


@pytest.mark.slow
def test_several_runs_are_a_baseline(cli: Cli, slower: Pair, baseline: Path) -> None:
    answer = cli("diff", "--baseline", baseline, slower[1], "--format", "json").document
    labels = [each["label"] for each in answer["baseline"]]
    assert sorted(labels) == [f"commit-{seed}" for seed in range(1, 5)]
    assert f"Baseline: 4 runs, {labels[0]} to {labels[-1]}." in answer["sentence"], "by start time"
    rank = next(
        each for each in answer["ranks"] if (each["rank"], each["metric"]) == (3, "forward")
    )
    assert rank["certain"] is True
    assert rank["after_ns"] - rank["before_ns"] == pytest.approx(8 * MS, rel=0.15)
    assert cli("diff", *slower, "--format", "json").document["baseline"] == []


@pytest.mark.slow
def test_the_gate_goes_by_the_baseline(cli: Cli, slower: Pair, baseline: Path) -> None:
    assert cli("diff", "--baseline", baseline, slower[1], "--fail-above", 3).code == 10
    assert cli("diff", "--baseline", baseline, slower[0], "--fail-above", 3).code == 0


@pytest.mark.slow
def test_a_pattern_may_be_opened_by_the_shell(cli: Cli, slower: Pair, baseline: Path) -> None:
    """The words that a shell makes of it, before and after the run that is compared."""
    runs, more = sorted(baseline.iterdir()), ("--format", "json")
    expected = cli("diff", "--baseline", f"{baseline}/*.duckdb", slower[1], *more)
    assert expected.code == 0
    for words in (
        ["--baseline", *runs, slower[1], *more],
        [slower[1], "--baseline", *runs, *more],
        [slower[1], *more, "--baseline", *runs],
    ):
        assert cli("diff", *words).out == expected.out


@pytest.mark.slow
def test_wrong_baselines(cli: Cli, slower: Pair, baseline: Path) -> None:
    two = sorted(baseline.iterdir())[:2]
    few = cli("diff", slower[1], "--baseline", *two)
    assert (few.code, "at least 3 runs" in few.err) == (2, True)
    none = cli("diff", *slower, "--baseline", baseline)
    assert (none.code, "2 databases beside --baseline" in none.err) == (2, True)
    one = cli("diff", slower[0])
    assert (one.code, "--baseline" in one.err) == (2, True)
