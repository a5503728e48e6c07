"""Every name that rankscope prints has an entry in its documents, and no entry is orphaned."""

import ast
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rankscope_cli import main
from rankscope_cli.commands.explain import TERM_WIDTH

import rankscope
from rankscope.errors import UsageError
from rankscope.ingestion.check import remedies, single_report
from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.model.metrics import METRICS, Unit
from rankscope.output.explain import entries, explain
from tests.support import Cli

PACKAGE = Path(rankscope.__file__).parent

CODED = ("RunWarning", "CheckWarning", "fault")
"""Calls whose first argument is the code of a warning."""

GATE_EXIT, BUG_EXIT = 10, 1
"""Exit codes that are not constants of `main`."""


def terms(group: str) -> set[str]:
    return {entry.term for entry in entries() if entry.group == group}


@cache
def emitted_codes() -> set[str]:
    """Codes of warnings, collected from the sources."""
    found = {
        *remedies.OF_ANY,
        *remedies.REMEDIES,
        *single_report.CODES.values(),
        *single_report.OWN_HINTS,
    }
    for path in (*PACKAGE.rglob("*.py"), *Path(main.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", None))
            keywords = {each.arg: each.value for each in node.keywords}
            code = node.args[0] if node.args else keywords.get("code")
            if name in CODED and isinstance(code, ast.Constant):
                found.add(str(code.value))
    return found


def exit_codes() -> set[str]:
    codes = {value for name, value in vars(main).items() if name.startswith("EXIT_")}
    return {f"exit {code}" for code in codes | {0, BUG_EXIT, GATE_EXIT}}


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("Metrics", lambda: {*METRICS}),
        ("Verdict classes", lambda: {*map(str, VerdictKind)}),
        ("Causes", lambda: {*map(str, CauseKind)}),
        ("Warning codes", emitted_codes),
        ("Exit codes", exit_codes),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_name_has_an_entry_and_no_entry_is_orphaned(
    group: str, names: Callable[[], set[str]]
) -> None:
    missing, orphaned = names() - terms(group), terms(group) - names()
    assert not missing, f"rankscope/docs/EXPLAIN.md, section {group}: add an entry `### NAME`"
    assert not orphaned, f"rankscope/docs/EXPLAIN.md, section {group}: remove these entries"


def test_the_lists_are_collected_at_all() -> None:
    """What is compared with nothing proves nothing."""
    assert {"missing-ranks", "no-utc", "rank-unknown"} <= emitted_codes()


def test_entries_are_sentences_and_each_is_found_by_its_term() -> None:
    for entry in entries():
        assert entry.markdown, entry.term
        assert entry.summary.endswith("."), entry.term
        assert entry in explain(entry.term).entries


@pytest.mark.parametrize("unit", Unit)
def test_the_column_of_a_metric_is_explained_as_the_metric(unit: Unit) -> None:
    assert explain(f"load_{unit.lower()}") == explain("load")


def test_the_heading_of_a_metric_is_explained_as_the_metric() -> None:
    short = {name: metric.short for name, metric in METRICS.items() if metric.short}
    assert short["exposed_communication"] == "exposed comm."
    for name, heading in short.items():
        assert explain(heading).entries == explain(name).entries


def test_case_dashes_and_leading_words_do_not_matter() -> None:
    assert explain("MISSING_RANKS") == explain("missing-ranks")
    assert [entry.term for entry in explain("communication").entries] == ["communication"] * 2
    assert "exposed_communication" in explain("communication").related


def test_the_beginning_of_a_term_names_it_and_unknown_terms_get_the_nearest() -> None:
    assert explain("exposed").entries[0].term == "exposed_communication"
    with pytest.raises(UsageError) as caught:
        explain("missing-rank")
    assert "missing-ranks" in caught.value.hint


@pytest.mark.parametrize(
    ("words", "term"),
    [
        ("the device is slow", "device_slower"),
        ("the host launches late", "starved"),
        ("gains are upper bounds", "saves"),
        ("the run cannot be replayed", "saves"),
        ("beyond chance", "balanced"),
    ],
)
def test_words_of_the_verdict_lead_to_the_terms_that_say_them(words: str, term: str) -> None:
    with pytest.raises(UsageError) as caught:
        explain(words)
    assert f"nearest: {term}" in caught.value.hint


def test_no_term_is_wider_than_its_column() -> None:
    assert max(len(entry.term) for entry in entries()) < TERM_WIDTH


def test_command_prints_the_paragraph_and_the_list(cli: Cli) -> None:
    assert "work = iteration - exposed_communication" in cli("explain", "work").out
    every = cli("explain").out
    assert all(entry.term in every for entry in entries())


def test_command_writes_json_markdown_and_csv(cli: Cli) -> None:
    document = json.loads(cli("explain", "gain", "--format", "json").out)
    assert document["format"] == "rankscope/explain/1"
    assert document["entries"][0]["term"] == "gain"
    assert cli("explain", "gain", "--format", "markdown").out.startswith("## gain\n")
    assert cli("explain", "gain", "--format", "csv").out.startswith("group,term,text\n")


def test_unknown_term_exits_2_with_a_hint(cli: Cli) -> None:
    cli("explain", "waitz").refused(2, "nearest: wait")
