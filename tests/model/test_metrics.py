"""The metric registry: one row and one function make a metric that is seen everywhere."""

import re
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace
from rankscope_cli.options import _metrics

import rankscope
from rankscope.compare.comparison import Comparison
from rankscope.errors import ReportBug, UsageError
from rankscope.history.diff.compare import diff_runs
from rankscope.measure.metrics import FUNCTIONS, MetricInputs
from rankscope.model.compared_tables import COMPARED_TABLES, score_column
from rankscope.model.metrics import (
    METRICS,
    Display,
    Metric,
    Need,
    Scope,
    Unit,
    check_metrics,
    leading_metrics,
    metric_in,
)
from rankscope.model.schema import MEASURES
from rankscope.model.tables import TABLES, metric_column, metric_dtype
from rankscope.output.diff_tables import changes_table
from rankscope.output.plots import heatmap
from rankscope.output.plots.grid import excesses
from tests.output.test_html import Page, unpacked
from tests.support import MS, ROOT, Cli, MakeForged

CALLS = Metric(
    "calls",
    "collective calls of the rank",
    Need.COMMUNICATION,
    unit=Unit.COUNT,
    scope=Scope.COLLECTIVES,
    display=Display.LEADING,
)


def calls(inputs: MetricInputs) -> pl.Series:
    """How many collectives the rank calls in each iteration."""
    counts = inputs.collectives.group_by("iteration").len("count")
    joined = inputs.windows.join(counts, on="iteration", how="left", maintain_order="left")
    return joined["count"]


@pytest.fixture
def metric(monkeypatch: pytest.MonkeyPatch) -> Metric:
    """A metric that is a count, registered for one test."""
    dtype = metric_dtype(CALLS)
    monkeypatch.setitem(METRICS, CALLS.name, CALLS)
    monkeypatch.setitem(MEASURES, CALLS.column, dtype)
    monkeypatch.setitem(TABLES["measures"].columns, CALLS.column, metric_column(CALLS))
    of_iterations, of_scores = (COMPARED_TABLES[each] for each in ("rank_iterations", "scores"))
    monkeypatch.setitem(of_iterations.columns, CALLS.column, metric_column(CALLS))
    monkeypatch.setitem(of_scores.columns, CALLS.column, score_column(CALLS))
    monkeypatch.setitem(FUNCTIONS, CALLS.name, calls)
    return CALLS


@pytest.fixture
def run(metric: Metric, forged: MakeForged, tmp_path: Path) -> rankscope.Run:
    """A run that was ingested with the metric."""
    return rankscope.ingest(forged("plain", iterations=12).reports, tmp_path / "run.duckdb", jobs=1)


def test_a_metric_of_another_unit_is_stored_and_explained(
    run: rankscope.Run, metric: Metric
) -> None:
    counted = run.sql(
        "select rank, iteration, count(*) as n from collectives group by all order by all"
    )
    stored = run.sql("select rank, iteration, calls_count as n from rank_iterations order by all")
    assert stored["n"].min() > 0
    assert stored.equals(counted)
    output = run.sql("select comment from duckdb_columns() where column_name = 'calls_count'")
    assert {*output["comment"]} == {"Collective calls of the rank, count"}


@pytest.mark.slow
def test_a_metric_of_another_unit_is_seen_by_every_command(
    run: rankscope.Run, metric: Metric, cli: Cli
) -> None:
    count = run.iterations()["calls_count"].unique().item()  # every rank calls the same
    text = cli("imbalance", "--db", run.db).out
    assert f"calls (count) {count} (0)" in " ".join(text.split())
    assert len(re.findall(r"(?<!\S)calls \(count\)", text)) == 2, (
        "in the table of metrics and in that of ranks"
    )
    document = cli("imbalance", "--db", run.db, "--format", "json").document
    [shown] = [each for each in document["metrics"] if each["metric"] == metric.name]
    assert shown["unit"] == "count"
    assert shown["max"] == {"rank": 0, "value": count}
    assert shown["lost"] == 0
    assert "lost_ns" not in shown
    assert [each["values"]["calls"] for each in document["ranks"]] == [count] * 4
    assert all("calls" not in each["values_ns"] for each in document["ranks"])
    picks = cli("pick-reports", "--db", run.db, "--metric", "calls", "--format", "json").document
    assert {each["value"] for each in picks["picks"]} == {count}
    by_iteration = cli("imbalance", "--db", run.db, "--metric", "calls", "--by", "iteration")
    assert by_iteration.code == 0, by_iteration.err
    same = cli("diff", run.db, run.db, "--metric", "calls", "--format", "json").document
    [change] = [each for each in same["metrics"] if each["metric"] == metric.name]
    assert (change["before"], change["after"]) == (count, count)


@pytest.mark.slow
def test_a_metric_of_another_unit_is_on_the_page(
    run: rankscope.Run, metric: Metric, cli: Cli
) -> None:
    assert cli("report", "--db", run.db, "-o", "page.html").code == 0
    page = Page(Path("page.html").read_text("utf-8")).data
    assert page["metrics"]["calls"] == {
        "name": "calls", "meaning": metric.meaning, "unit": "count", "column": "calls_count",
    }  # fmt: skip
    step = page["cells"]["steps"]["calls"]
    cells = unpacked(page["cells"]["packed"][page["cells"]["columns"]["calls"]])
    count = run.iterations()["calls_count"].unique().item()
    assert {None if cell is None else cell * step for cell in cells} == {count}
    tables = {each["id"]: each for each in page["tables"]}
    assert "calls" in tables["metrics-count"]["values"][0]
    headings = {each["name"]: each for each in tables["ranks"]["columns"]}
    assert headings["calls_count"]["label"] == "calls (count)"
    assert headings["calls_count"]["meaning"] == metric.meaning


def drawn(cli: Cli, run: rankscope.Run) -> str:
    """The texts of a heat map of the metric."""
    done = cli("plot", "heatmap", "--db", run.db, "--metric", "calls", "-o", "map.svg")
    assert done.code == 0, done.err
    return " ".join(re.findall(">([^<]+)<", Path("map.svg").read_text("utf-8")))


@pytest.mark.slow
def test_a_metric_of_another_unit_is_drawn_in_its_unit(run: rankscope.Run, cli: Cli) -> None:
    texts = drawn(cli, run)
    assert "Calls: no rank exceeds the median rank on average" in texts
    assert "excess (count)" in texts
    assert "no excess reaches 5.0 % of the median" in texts
    assert " ms" not in texts


@pytest.mark.slow
def test_the_rank_with_the_most_of_a_count_is_named(
    run: rankscope.Run, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def more_on_rank_1(comparison: Comparison, metric: str) -> pl.DataFrame:
        frame = excesses(comparison, metric)
        return frame.with_columns(pl.col("excess") + 7 * (pl.col("rank") == 1).cast(pl.Int64))

    monkeypatch.setattr(heatmap, "excesses", more_on_rank_1)
    texts = drawn(cli, run)
    assert "Rank 1 has the most calls: on average 7 more than the median" in texts
    assert re.search(r"rank 1, iteration \d+: \+7 ", texts)
    assert " ms" not in texts


def test_changes_of_another_unit_are_compared_and_reported_in_it(metric: Metric) -> None:
    """A change of 7 calls is far below 1 % of the iteration in ns, and still a change."""
    ranks, iterations = 4, 30
    before = pl.DataFrame(
        {
            "rank": [rank for rank in range(ranks) for _ in range(iterations)],
            "iteration": [*range(iterations)] * ranks,
            "iteration_ns": [100 * MS] * ranks * iterations,
            "work_ns": [90 * MS] * ranks * iterations,
            "calls_count": [50] * ranks * iterations,
        }
    )
    more = 7 * (pl.col("rank") == 1).cast(pl.Int64)
    after = before.with_columns(pl.col("calls_count") + more)
    found = diff_runs(before, after, ["calls"], "mean")
    assert "Worse: rank 1 calls +7." in found.sentence
    (certain,) = [each for each in found.ranks if each.certain]
    assert (certain.rank, certain.before_ns, certain.after_ns) == (1, 50, 57)
    few = before.with_columns(pl.col("calls_count").cast(pl.Float64) + more / 20)
    assert not any(each.certain for each in diff_runs(before, few, ["calls"], "mean").ranks)
    changed = tuple(replace(each, after_ns=51.8) for each in found.metrics)
    assert changes_table(changed).rows[-1][:3] == ("calls (count)", "50", "51.8")


def test_completion_and_errors_know_a_new_metric(metric: Metric) -> None:
    assert ("calls", metric.meaning) in _metrics()
    assert check_metrics(["calls"]) == ["calls"]
    with pytest.raises(UsageError) as refused:
        check_metrics(["cals"])
    assert "calls" in refused.value.hint
    assert "calls" in leading_metrics()


def test_a_metric_that_nobody_computes_is_a_clear_error(
    metric: Metric,
    forged: MakeForged,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(FUNCTIONS, metric.name)
    with pytest.raises(ReportBug) as bug:
        rankscope.ingest(forged("plain", iterations=12).reports, tmp_path / "r.duckdb", jobs=1)
    assert re.search(r"metric calls: nothing computes.*CONTRIBUTING\.md", bug.value.details)


@pytest.mark.parametrize(
    ("unit", "column", "key"),
    [
        (Unit.NS, "x_ns", "value_ns"),
        (Unit.COUNT, "x_count", "value"),
        (Unit.BYTES, "x_bytes", "value"),
        (Unit.RATIO, "x_ratio", "value"),
        (Unit.MHZ, "x_mhz", "value"),
    ],
)
def test_columns_and_keys_say_the_unit(unit: Unit, column: str, key: str) -> None:
    metric = Metric("x", "an example", Need.PHASES, unit=unit)
    assert metric.column == column
    assert metric.key("value") == key


def test_columns_lead_back_to_their_metrics() -> None:
    assert [metric_in(each.column) for each in METRICS.values()] == [*METRICS.values()]
    assert metric_in("start_ns") is None


def test_the_table_of_sources_has_each_metric_once() -> None:
    text = (ROOT / "rankscope/docs/FORMATS.md").read_text("utf-8")
    head, *_ = re.findall(r"^\| the report has .*", text, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", head)) == sorted(METRICS)
