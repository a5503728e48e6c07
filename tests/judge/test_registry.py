"""A new class of verdict is a kind and a rule: nothing else has to know it."""

import re
from enum import StrEnum
from pathlib import Path
from typing import cast

import pytest

from rankscope.judge import rules
from rankscope.judge.judgement import Judgement
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict
from tests.support import Cli, MakeStored


class Dummy(StrEnum):
    DEGRADING = "degrading"


DEGRADING = cast(VerdictKind, Dummy.DEGRADING)
SENTENCE = "Rank 3 gets slower, work over 17 iterations."


def degrading(judged: Judgement) -> Verdict | None:
    """Finds rank 3 in every run that has it."""
    if 3 not in judged.inputs.hosts:
        return None
    numbers = tuple(judged.inputs.numbers)
    metric = judged.inputs.excess.metric
    return Verdict(
        kind=DEGRADING, ranks=(3,), excess_ns=8_000_000, iterations=numbers, next="cool it",
        sentence=f"Rank 3 gets slower, {metric} over {len(numbers)} iterations",
    )  # fmt: skip


def add_rule(patch: pytest.MonkeyPatch) -> None:
    """Only after an ingest: it stores what the rules say."""
    patch.setattr(rules, "RULES", (degrading, *rules.RULES))


@pytest.mark.slow
def test_a_new_class_is_seen_in_every_output(
    stored: MakeStored, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--iter-range`, for which no answer is cached."""
    db = stored("planted").db
    add_rule(monkeypatch)
    look = ("--db", db, "--iter-range", "3:20")
    verdict = cli("imbalance", *look, "--format", "json").document["verdict"]
    assert (verdict["class"], verdict["ranks"], verdict["next"]) == ("degrading", [3], "cool it")
    assert verdict["sentence"] == SENTENCE
    table = cli("imbalance", *look)
    assert SENTENCE in table.out
    assert "Next: cool it." in table.out
    section = cli("imbalance", *look, "--format", "markdown").out
    assert section.startswith(f"### {SENTENCE.rstrip('.')}\n")
    assert cli("imbalance", *look, "--fail-above", 0).code == 0, "it gave no excess in percent"
    assert cli("report", *look, "-o", "page.html").code == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert '"class":"degrading"' in page
    assert SENTENCE in page
    assert cli("plot", "heatmap", *look, "-o", "map.svg").code == 0
    texts = " ".join(re.findall(">([^<]+)<", Path("map.svg").read_text(encoding="utf-8")))
    assert SENTENCE.rstrip(".") in texts, "without a title of its own, the sentence is the title"


def test_the_last_rule_always_decides(stored: MakeStored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the others every run is balanced."""
    run = stored("planted").run
    monkeypatch.setattr(rules, "RULES", rules.RULES[-1:])
    verdict = run.imbalance(iter_range=slice(3, 20)).verdict
    assert verdict.kind is VerdictKind.BALANCED


def test_every_rule_says_what_it_finds() -> None:
    names = [rule.__name__ for rule in rules.RULES]
    assert len({*names}) == len(names)
    assert all(rule.__doc__ for rule in rules.RULES)
