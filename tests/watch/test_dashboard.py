"""The dashboard for Grafana: its form, and its queries against the file that `watch` writes."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import rankscope
from tests.support import PROMTOOL, Cli, ran
from tests.watch.arriving import Windows, arrive

DASHBOARD = Path(rankscope.__file__).parent / "docs" / "grafana-dashboard.json"

CORE_PANELS = {"stat", "table", "timeseries", "state-timeline"}
"""Panels that each Grafana has, of those used here."""

COLUMNS = 24
"""Width of Grafana's grid."""


@pytest.fixture
def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text("utf-8"))


def queries(dashboard: dict[str, Any]) -> Iterator[str]:
    """The queries of all panels, with a value for the variable."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$instance", "one|two")


def test_it_is_a_dashboard(dashboard: dict[str, Any]) -> None:
    """The classic model, which every Grafana imports and newer ones convert."""
    panels = dashboard["panels"]
    assert dashboard["schemaVersion"] >= 36, "data sources are objects"
    assert "id" not in dashboard, "Grafana gives it when it imports"
    numbers = [panel["id"] for panel in panels]
    assert len({*numbers}) == len(numbers)
    assert {panel["type"] for panel in panels} <= CORE_PANELS
    for panel in panels:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert {"defaults", "overrides"} == panel["fieldConfig"].keys()
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted({*letters})
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
    places = [panel["gridPos"] for panel in panels]
    assert all(at["x"] >= 0 and at["x"] + at["w"] <= COLUMNS for at in places)
    for one, other in combinations(places, 2):
        assert (
            one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        ), "panels overlap"  # fmt: skip
    used = {*re.findall(r"\$\{?([a-z]\w*)", DASHBOARD.read_text("utf-8"))}
    assert used == {variable["name"] for variable in dashboard["templating"]["list"]}


@PROMTOOL
@pytest.mark.slow
def test_each_query_answers_from_what_is_written(
    cli: Cli, folder: Path, windows: Windows, dashboard: dict[str, Any]
) -> None:
    arrive(windows[1], folder)
    given = ("watch", folder, "--once", "--settle", 0, "--jobs", 1, "--prometheus", "x.prom")
    assert cli(*given).code == 0
    samples = [
        line.rpartition(" ") for line in Path("x.prom").read_text().splitlines() if line[0] != "#"
    ]
    written = {re.split(r"\{", name)[0] for name, _, _ in samples}
    asked = {name for query in queries(dashboard) for name in re.findall(r"rankscope_\w+", query)}
    assert asked == written
    scraped = [
        {"series": _of_instance(name, instance), "values": f"{float(value):f}x5"}
        for name, _, value in samples
        for instance in ("one", "two")
    ]
    tests = [
        {"expr": f"count({query}) > bool 0", "eval_time": "2m",
         "exp_samples": [{"labels": "{}", "value": 1}]}
        for query in queries(dashboard)
    ]  # fmt: skip
    rules = {
        "rule_files": [],
        "tests": [{"interval": "1m", "input_series": scraped, "promql_expr_test": tests}],
    }
    Path("queries.yml").write_text(json.dumps(rules))
    done = ran("promtool", "test", "rules", "queries.yml")
    assert done.code == 0, done.out + done.err


def _of_instance(sample: str, instance: str) -> str:
    """A sample with the label that Prometheus adds when it scrapes."""
    name, _, own = sample.partition("{")
    more = f",{own[:-1]}" if own else ""
    return f'{name}{{instance="{instance}"{more}}}'
