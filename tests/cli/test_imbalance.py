"""`rankscope imbalance`: its JSON, tables, ranges, and the gate for CI."""

import json
import re
import shutil
from pathlib import Path

import pytest

from rankscope.model.metrics import METRICS
from rankscope.output import text_tables
from tests.pytorch_job import Job, write
from tests.support import (
    SAMPLE,
    Cli,
    MakeForged,
    MakeStored,
    Stored,
    edit,
    mostly_nightly,
    mostly_slow,
    public,
)


def document(cli: Cli, job: Stored, *options: object) -> dict:
    return cli("imbalance", "--db", job.db, "--format", "json", *options).document


def check_times(value: object, key: str = "") -> None:
    """Every time is an integer or null, wherever it stands; nothing is NaN."""
    if isinstance(value, dict):
        for name, each in value.items():
            check_times(each, key if key in ("values_ns", "offsets_ns") else name)
    elif isinstance(value, list):
        for each in value:
            check_times(each, key)
    elif key.endswith("_ns"):
        assert value is None or type(value) is int, (key, value)


@pytest.mark.parametrize("name", mostly_slow(["sample", "plain", "buckets", "host_only"], 2))
def test_its_document(cli: Cli, sample: Stored, stored: MakeStored, name: str) -> None:
    job = sample if name == "sample" else stored(name)
    answer = document(cli, job)
    check_times(answer)
    run = answer["run"]
    assert run["clock"] in ("gpu", "host")
    assert run["clock_reason"]
    assert run["iterations"]["count"] == len(answer["iterations"])
    assert run["iterations"]["excluded_warmup"][0] == 0
    assert run["iterations"]["matched_by"] == "number"
    assert run["clocks"]["aligned"] is True
    assert {*run["clocks"]["offsets_ns"]} == {*run["clocks"]["drift_ppm"]} == {*"0123"}
    for metric in answer["metrics"]:
        known = METRICS[metric["metric"]]
        assert metric["unit"] == known.unit
        low, middle, high = (metric[key][known.key("value")] for key in ("min", "median", "max"))
        if metric["mean"] is None:
            assert low is middle is high is None
            continue
        assert low <= middle <= high
        assert low <= metric["mean"] <= high
        assert metric[known.key("lost")] >= 0
    for rank in answer["ranks"]:
        values = {key for each in METRICS.values() for key in rank.get(each.key("values"), {})}
        assert values == {*rank["z"]} == {*METRICS}
        assert rank["cost_ns"] >= rank["gain_ns"] >= 0
        assert 0 <= rank["last_arriver_share"] <= 1


def test_unknown_is_null(cli: Cli, sample: Stored) -> None:
    answer = document(cli, sample)
    for rank in answer["ranks"]:
        for name in ("compute", "communication", "idle"):
            assert rank["values_ns"][name] is None
            assert rank["z"][name] is None
    metrics = {each["metric"]: each for each in answer["metrics"]}
    for name in ("compute", "communication", "idle"):
        assert [metrics[name][key] for key in ("mean", "imbalance", "lost_ns")] == [None] * 3
        assert metrics[name]["max"] == {"rank": None, "value_ns": None}


@pytest.mark.parametrize(
    ("text", "first", "last", "count"),
    mostly_nightly(
        [("10:20", 10, 19, 10), ("-10:", 20, 29, 10), (":15", 0, 14, 15), ("12:", 12, 29, 18),
         ("5:1000", 5, 29, 25), ("-1000:10", 0, 9, 10)], 2,
    ),
)  # fmt: skip
def test_iteration_ranges(
    cli: Cli, sample: Stored, text: str, first: int, last: int, count: int
) -> None:
    answer = document(cli, sample, "--iter-range", text)
    iterations = answer["run"]["iterations"]
    assert (iterations["first"], iterations["last"], iterations["count"]) == (first, last, count)
    assert [row["iteration"] for row in answer["iterations"]] == [*range(first, last + 1)]
    assert iterations["excluded_warmup"] == [], "who asks for iterations gets them"


def test_warm_up_can_be_kept(cli: Cli, sample: Stored) -> None:
    answer = document(cli, sample, "--include-warmup")["run"]["iterations"]
    assert (answer["first"], answer["count"], answer["excluded_warmup"]) == (0, 30, [])


@pytest.mark.parametrize(
    ("by", "keys", "rows"),
    mostly_slow(
        [("rank", {"rank", "work_ns"}, 4), ("collective", {"operation", "wait_ns"}, 2),
         ("iteration", {"iteration", "spread_ns", "slowest_rank", "cause"}, 29),
         ("phase", {"phase", "mean_ns"}, 6), ("host", {"host", "ranks", "work_ns"}, 2)], 3,
    ),
)  # fmt: skip
def test_tables_by(cli: Cli, sample: Stored, by: str, keys: set[str], rows: int) -> None:
    answer = document(cli, sample, "--by", by)["rows"]
    assert len(answer) == rows
    assert answer[0].keys() >= keys
    as_csv = cli("imbalance", "--db", sample.db, "--by", by, "--format", "csv").rows
    assert len(as_csv) == rows
    assert as_csv[0].keys() >= keys
    shown = cli("imbalance", "--db", sample.db, "--by", by).out
    assert " GB/s" not in shown, "columns that are unknown in all rows"


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_the_verdict_comes_first(cli: Cli, sample: Stored, output: str) -> None:
    result = cli("imbalance", "--db", sample.db, "--format", output)
    assert result.code == 0
    lines = result.out.splitlines()
    heading = {"table": "", "markdown": "### "}[output]
    assert lines[0].startswith(f"{heading}Rank 2 (node1)")
    assert "work" in result.out
    assert "node1" in result.out
    assert "\x1b" not in result.out, "plain when piped"
    assert not result.err


def test_csv_is_a_table_of_ranks(cli: Cli, sample: Stored) -> None:
    rows = cli("imbalance", "--db", sample.db, "--format", "csv").rows
    assert [row["rank"] for row in rows] == ["0", "1", "2", "3"]
    assert rows[0]["idle_ns"] == "", "unknown is empty"
    assert int(rows[2]["load_ns"]) > 2 * int(rows[0]["load_ns"])


def test_every_row_where_nothing_is_cut(cli: Cli, sample: Stored) -> None:
    text = cli("imbalance", "--db", sample.db, "--by", "iteration", "--all").out
    first = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert [word for word in first if word.isdigit() and int(word) in range(1, 30)][-29:] == [
        str(i) for i in range(1, 30)
    ]


def test_the_gate(cli: Cli, sample: Stored, stored: MakeStored) -> None:
    gate = ("imbalance", "--fail-above")
    gain = 100 * document(cli, sample)["verdict"]["gain"]
    assert cli(*gate, 5, "--db", sample.db).code == 10
    assert cli(*gate, gain - 0.1, "--db", sample.db, "--format", "json").code == 10
    assert cli(*gate, gain + 0.1, "--db", sample.db).code == 0
    assert cli(*gate, 0, "--db", stored("plain").db).code == 0, "balanced"
    lone = cli(*gate, 5, "--db", stored("plain", ranks=1).db)
    assert lone.code == 3
    assert "inconclusive" in lone.err
    assert re.search(r"^exposed_communication +\d", lone.out, re.MULTILINE), "as of several ranks"
    failed = cli(*gate, 5, "--db", sample.db, "--format", "json")
    assert json.loads(failed.out)["verdict"]["ranks"] == [2], "the answer is there all the same"


def test_clocks_can_be_chosen(cli: Cli, stored: MakeStored) -> None:
    job = stored("buckets")
    assert document(cli, job)["run"]["clock"] == "gpu"
    host = document(cli, job, "--clock", "host")
    assert host["run"]["clock"] == "host"
    assert host["ranks"][0]["values_ns"]["work"] is None
    assert host["verdict"]["class"] == "inconclusive"


def test_efficiency_is_reported(cli: Cli, stored: MakeStored) -> None:
    answer = document(cli, stored("planted", where="forward"))
    shares = answer["efficiency"]
    assert all(0 < share <= 1 for share in shares.values())
    assert shares["parallel"] == pytest.approx(shares["load_balance"] * shares["communication"])
    works = [rank["values_ns"]["work"] for rank in answer["ranks"]]
    assert shares["load_balance"] == pytest.approx(sum(works) / len(works) / max(works), rel=1e-6)
    assert document(cli, stored("plain"), "--clock", "host")["efficiency"] is None


@pytest.mark.slow
def test_what_if_is_reported(cli: Cli, stored: MakeStored, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = document(cli, stored("planted", where="forward"))
    rows = {(row["kind"], row["name"]): row for row in answer["what_if"]}
    assert {kind for kind, _ in rows} >= {"all", "verdict", "rank", "phase"}
    for row in rows.values():
        share = row["gain_ns"] / (row["gain_ns"] + row["time_ns"])
        assert row["gain"] == pytest.approx(share, abs=1e-6)
    assert rows["rank", "rank 3"]["gain_ns"] > 0.9 * answer["verdict"]["gain_ns"]
    db = stored("planted", where="forward").db
    hidden = cli("imbalance", "--db", db).out
    assert "role's median (by replay" not in hidden
    assert "Parallel efficiency" not in hidden
    text = cli("imbalance", "--gain", "--db", db).out
    assert "Parallel efficiency" in text
    assert "if one thing took as long as its role's median" in text
    assert "No table of gains" not in text
    monkeypatch.setattr(text_tables, "LEAST_SAVED", 1.0)
    assert "No table of gains: " in cli("imbalance", "--gain", "--db", db).out


def test_a_verdict_says_what_is_in_the_phase(cli: Cli, stored: MakeStored) -> None:
    answer = document(cli, stored("planted", where="forward"))["verdict"]
    assert answer["findings"]
    for each in answer["findings"]:
        assert type(each["excess_ns"]) is int
        assert 0 < each["share"] <= 1
        assert each["kind"] == each["suspect"] == "device_slower"
        assert each["phase"] == answer["cause"]
        assert each["evidence"] == ["activities"]
    assert answer["since"] is None


def test_rows_by_kernel(cli: Cli, stored: MakeStored) -> None:
    job = stored("planted", where="forward")
    rows = document(cli, job, "--by", "kernel")["rows"]
    worst = rows[0]
    assert (worst["phase"], worst["kind"], worst["slowest_rank"]) == ("forward", "kernel", 3)
    assert worst["excess_ns"] == max(row["excess_ns"] for row in rows)
    assert worst["slowest_ns"] > worst["mean_ns"] > 0
    text = cli("imbalance", "--db", job.db, "--by", "kernel").out
    assert worst["name"] in text
    table = cli("imbalance", "--db", job.db, "--by", "kernel", "--format", "csv").rows
    assert len(table) == len(rows)


@pytest.mark.slow
def test_operations_of_no_length_have_no_share(cli: Cli, tmp_path: Path) -> None:
    """A trace in whole microseconds has copies of 0 ns: their share without collectives is null."""
    db = tmp_path / "run.duckdb"
    trace = public("kineto/hta_gpu_user_annotation.json.gz")
    assert cli("ingest", trace, "--db", db).code == 0
    rows = cli("imbalance", "--db", db, "--by", "kernel", "--format", "json").document["rows"]
    [copies] = [row for row in rows if row["kind"] == "copy" and row["mean_ns"] == 0]
    assert copies["clear_share"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "what", "advice"),
    mostly_slow(
        [
            ("kernel", "device work", "rankscope capture"),
            ("collective", "collectives", "ingest the reports of all ranks"),
        ]
    ),
)
def test_a_table_without_rows_says_why(
    cli: Cli, stored: MakeStored, by: str, what: str, advice: str
) -> None:
    job = stored("host_only", ranks=1)
    for output in ("table", "markdown", "csv", "json"):
        answer = cli("imbalance", "--db", job.db, "--by", by, "--format", output)
        said = answer.out if output in ("table", "markdown") else answer.err
        assert what in said
        assert advice in " ".join(said.split())
    warnings = " ".join(answer.err.split())
    assert "no other rank to compare" not in warnings, "the job is of one rank"


def test_iterations_are_clustered(cli: Cli, sample: Stored) -> None:
    rows = document(cli, sample, "--by", "iteration")["iterations"]
    answer = {row["iteration"]: row["cluster"] for row in rows}
    slow = {number: cluster for number, cluster in answer.items() if cluster != "normal"}
    assert {number for number in slow if number % 5 == 2} == {2, 7, 12, 17, 22, 27}
    assert {slow[number] for number in slow if number % 5 == 2} == {"slow: load of rank 2"}


@pytest.mark.slow
def test_roles_are_shown_and_used(cli: Cli, stored: MakeStored) -> None:
    job = stored("pipeline", ranks=8, slow="stage", factor=1.5)
    answer = document(cli, job, "--roles", "pp=4,dp=2")
    assert [rank["role"] for rank in answer["ranks"]] == [f"pp={rank % 4}" for rank in range(8)]
    assert (answer["verdict"]["class"], answer["verdict"]["roles"]) == ("structural", ["pp=3"])
    assert "roles-inferred" not in {each["code"] for each in answer["warnings"]}
    assert "role" in {row["kind"] for row in answer["what_if"]}
    inferred = document(cli, job)
    assert "roles-inferred" in {each["code"] for each in inferred["warnings"]}


@pytest.mark.slow
def test_roles_from_a_file(cli: Cli, stored: MakeStored, tmp_path: Path) -> None:
    job = stored("buckets")
    table = tmp_path / "roles.csv"
    rows = "".join(f"{rank},stage {rank % 2}\n" for rank in range(4))
    table.write_text(f"rank,role\n{rows}")
    answer = document(cli, job, "--roles", table)
    assert [each["role"] for each in answer["ranks"]] == ["stage 0", "stage 1"] * 2
    table.write_text("rank,role\n0,a\n")
    cli("imbalance", "--db", job.db, "--roles", table).refused(2, table, "rank 1")


@pytest.mark.slow
def test_cost_is_said_to_go_by_arrivals_where_groups_are_nested(
    cli: Cli, stored: MakeStored
) -> None:
    chain = "the rank may itself have waited before"
    nested = cli("imbalance", "--db", stored("tensor_parallel", ranks=4, iterations=12).db)
    assert chain in " ".join(nested.out.split())
    assert chain not in cli("imbalance", "--db", stored("plain").db).out


@pytest.mark.slow
def test_rows_of_some_ranks_are_those_of_all(cli: Cli, sample: Stored) -> None:
    whole = cli("imbalance", "--db", sample.db, "--format", "json").document
    some = cli("imbalance", "--db", sample.db, "--ranks", "3,1", "--format", "json").document
    assert some["ranks"] == [each for each in whole["ranks"] if each["rank"] in (1, 3)]
    assert some["verdict"] == whole["verdict"]
    table = cli("imbalance", "--db", sample.db).out.splitlines()
    limited = cli("imbalance", "--db", sample.db, "--ranks", "3,1").out.splitlines()
    assert [line for line in table if line not in limited] == [
        line for line in table if line.startswith(("   0 ", "   2 "))
    ]
    cli("imbalance", "--db", sample.db, "--ranks", "7").refused(2, "rank 7 is not in this run")
    refused = cli("imbalance", "--db", sample.db, "--ranks", "1", "--by", "iteration")
    refused.refused(2, "--ranks", "--by rank")


@pytest.mark.slow
def test_it_says_what_a_mean_is_of(cli: Cli, ingested: MakeStored) -> None:
    torch = ingested(SAMPLE.parent / "torch_profiler_2ranks")
    count = document(cli, torch)["run"]["iterations"]["count"]
    text = cli("imbalance", "--db", torch.db).out
    assert f"over fewer than the {count} iterations: load 21" in text


def test_no_row_that_says_nothing(cli: Cli, stored: MakeStored) -> None:
    """Metrics in which ranks hardly differ are one line; what the verdict names stays."""
    job = stored("planted", where="forward")
    text = cli("imbalance", "--db", job.db).out
    rows = {line.split()[0] for line in text.splitlines() if re.match(r"[a-z_]+ .*\(\d+\) ", line)}
    assert {"forward", "work"} <= rows
    assert rows.isdisjoint({"iteration", "load", "optimizer", "other"})
    assert "ranks differ by less than 1.0 % of the iteration in: iteration " in text
    whole = cli("imbalance", "--db", job.db, "--all").out
    assert {"iteration", "load", "optimizer", "other"} <= {
        line.split()[0] for line in whole.splitlines() if line
    }


@pytest.mark.parametrize("phase", ["other", "backward"])
def test_the_table_of_ranks_has_the_phase_of_the_verdict(
    cli: Cli, tmp_path: Path, phase: str
) -> None:
    folder = write(tmp_path / "job", Job(slow_in=phase))
    text = cli("imbalance", folder, "--db", tmp_path / "run.duckdb").out
    assert f"of it in {phase}" in text.splitlines()[0]
    heading = text.partition("By rank")[2].splitlines()[1].split()
    assert ("other" in heading) == (phase == "other")
    assert phase in heading


def test_no_table_that_says_nothing(cli: Cli, forged: MakeForged, tmp_path: Path) -> None:
    """Of ranks of which only the length of iterations is known, in which they are alike."""
    for report in forged("plain", 2).reports:
        copy = Path(shutil.copy(report, tmp_path))
        edit(copy, "DELETE FROM NVTX_EVENTS")
        names = "SELECT id FROM StringIds WHERE value LIKE 'nccl%'"
        edit(copy, f"DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName IN ({names})")
    cli("ingest", tmp_path, "--db", tmp_path / "run.duckdb")
    text = cli("imbalance", "--db", tmp_path / "run.duckdb").out
    assert re.search(r"^iteration .*\(0\)", text, re.MULTILINE), "a table of differences has a row"
    assert "By rank" not in text, "nothing is known but their numbers"
