"""CONTRACT.md has every option of every command, and every key of every JSON document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rankscope_cli.main import COMMANDS

import rankscope
from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.model.metrics import METRICS, Unit
from rankscope.output.plots import KINDS
from tests.reference import help_of
from tests.support import SAMPLE, Result, Stored

Cli = Callable[..., Result]

CONTRACT = (Path(rankscope.__file__).parent / "docs" / "CONTRACT.md").read_text("utf-8")

CONTRACT_FILE = "rankscope/docs/CONTRACT.md"

EVERYWHERE = {"--help", "--version"}

OPAQUE = {"run.clocks.offsets_ns", "run.clocks.drift_ppm", "rows[]"}
"""Objects whose keys are ranks, or the columns of any table."""


def section(title: str) -> str:
    """The text below a heading, up to the next heading."""
    return re.split(r"^#+ ", CONTRACT.split(f"# {title}\n")[1], flags=re.MULTILINE)[0]


def documented(title: str) -> set[str]:
    """Keys in the first column of a section's table."""
    rows = re.findall(r"^\| (`.+?`) \|", section(title), re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`([^`]+)`", row)}


def in_all_units(known: set[str]) -> set[str]:
    """The keys, and those of metrics that are not times: without `_ns`."""
    of_metric = r"\b(value|lost|values|before|after)_ns\b"
    return known | {re.sub(of_metric, r"\1", key) for key in known}


def keys(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all values that are neither objects nor lists of objects."""
    if isinstance(value, dict) and path not in OPAQUE:
        for name, inner in value.items():
            scores = path.endswith((".values_ns", ".values", ".z"))
            step = "<metric>" if scores and name in METRICS else name
            yield from keys(inner, f"{path}.{step}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from keys(inner, f"{path}[]")
    else:
        yield path


def test_options_are_those_of_the_commands() -> None:
    given = {
        option: {*of.split()}
        for option, of in re.findall(r"^\| `(--[a-z-]+)` \| ([a-z -]+) \|", CONTRACT, re.MULTILINE)
    }
    there: dict[str, set[str]] = {}
    for command in COMMANDS:
        listed = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", help_of(command), re.MULTILINE)
        for option in {*listed} - EVERYWHERE:
            there.setdefault(option, set()).add(command)
    assert given == there


def test_commands_are_those_of_the_program() -> None:
    table = section("Commands")
    assert re.findall(r"^\| `rankscope ([a-z-]+)", table, re.MULTILINE) == [*COMMANDS]


@pytest.mark.parametrize(
    ("arguments", "titles"),
    [
        (("imbalance", "--db", "DB"), ["imbalance"]),
        (("pick-reports", "--db", "DB"), ["pick-reports"]),
        (("check", SAMPLE), ["check"]),
        (("ingest", SAMPLE, "--db", "new.duckdb"), ["ingest"]),
        (
            ("watch", SAMPLE, "--once", "--settle", "0", "--db", "new.duckdb"),
            ["watch", "imbalance"],
        ),
        (("diff", "DB", "DB"), ["diff"]),
        (("fleet", "DB"), ["fleet"]),
        (("plot", "heatmap", "--db", "DB"), ["plot, export, report, explain"]),
        (("export", "-o", "t.json", "--db", "DB"), ["plot, export, report, explain"]),
        (("explain", "work"), ["plot, export, report, explain"]),
        (("capture", "slurm"), ["capture"]),
        (("capture", "slurm", "--for", "DB"), ["capture"]),
    ],
    ids=lambda each: str(each[0]),
)
def test_keys_of_json_are_documented(
    cli: Cli, sample: Stored, arguments: tuple[object, ...], titles: list[str]
) -> None:
    given = [sample.db if each == "DB" else each for each in arguments]
    document = cli(*given, "--format", "json").document
    known = in_all_units(documented("All commands").union(*map(documented, titles)))
    emitted = {*keys(document)}
    verdicts = {key for key in emitted if key.startswith("verdicts.")}
    inner = {re.sub(r"^verdicts\.(before|after)", "verdict", key) for key in verdicts}
    assert inner <= documented("imbalance") | {"verdict.findings", "verdict.findings[]"}
    for key in emitted - verdicts:
        empty = any(other.startswith(f"{key}[]") for other in known)  # a list without elements
        assert key in known or empty, f"{CONTRACT_FILE}, section {titles[0]}: add a row for {key}"


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("verdict.class", VerdictKind),
        ("verdict.findings[].kind", CauseKind),
        ("metrics[].unit", Unit),
    ],
)
def test_closed_sets_of_values_are_those_of_the_code(key: str, names: Iterable[str]) -> None:
    [meaning] = re.findall(rf"^\| `{re.escape(key)}` \| (.+) \|$", CONTRACT, re.MULTILINE)
    listed = {*re.findall(r"`([^`]+)`", meaning)}
    assert listed == {*map(str, names)}, f"{CONTRACT_FILE}, key {key}: list all values"


def test_kinds_of_plots_are_those_of_the_program() -> None:
    [meaning] = re.findall(r"^\| `rankscope plot KIND` \| (.+) \|$", CONTRACT, re.MULTILINE)
    listed = {*re.findall(r"`([a-z]+)`", meaning)}
    assert listed == {*KINDS}, f"{CONTRACT_FILE}, command plot: list all kinds"


def test_documented_keys_of_the_main_answers_exist(cli: Cli, sample: Stored) -> None:
    document = cli("imbalance", "--db", sample.db, "--format", "json").document
    emitted = {*keys(document)}
    for key in documented("imbalance") | documented("All commands"):
        parent = key.rpartition("[].")[0]
        held = any(other.startswith(f"{key}.") for other in emitted)  # an object
        null = key.rpartition(".")[0] in emitted  # an object that is null here
        there = key in emitted or parent in emitted or held or null
        assert there, f"{CONTRACT_FILE}: nothing emits {key}"
