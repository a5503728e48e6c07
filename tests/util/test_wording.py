"""Numbers with their nouns, in the singular and the plural."""

import re

import pytest

from rankscope.util.wording import (
    UNKNOWN,
    agreeing,
    and_more,
    counted,
    interval,
    listed,
    milliseconds,
    ms,
    percent,
    ranks_text,
    relative,
    signed_percent,
    slower_or_faster,
)
from tests.support import ROOT


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 reports"), (1, "1 report"), (2, "2 reports"), (1024, "1,024 reports")],
)
def test_counts(count: int, text: str) -> None:
    assert counted(count, "report") == text


def test_other_plurals() -> None:
    assert counted(2, "entry", "entries") == "2 entries"
    assert counted(1, "entry", "entries") == "1 entry"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([], "no rank"), ([3], "rank 3"), ([3, 1, 2], "ranks 1-3"), ([0, 2, 4, 6], "ranks 0, 2, …")],
)
def test_ranks(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks, most=2) == text


def test_verbs_agree() -> None:
    assert [agreeing(count, "has", "have") for count in (0, 1, 2)] == ["have", "has", "have"]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0.0 %"), (0.0494, "4.9 %"), (0.0996, "10 %"), (0.233, "23 %"), (-0.016, "-1.6 %"),
     (1.61, "161 %"), (None, UNKNOWN)],
)  # fmt: skip
def test_shares(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_changes_have_a_sign() -> None:
    assert [signed_percent(each) for each in (0.0123, -0.5, None)] == ["+1.2 %", "-50.0 %", UNKNOWN]


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "0.00"),
        (1_234_000, "1.23"),
        (9_994_000, "9.99"),
        (9_996_000, "10.0"),
        (-2e6, "-2.00"),
        (1.2345e9, "1,234.5"),
    ],
)
def test_times(time: float, text: str) -> None:
    assert milliseconds(time) == text
    assert ms(time) == f"{text} ms"


HAND_MADE = [
    ("percent() or signed_percent()", r"\{[^{}]*:[+.,\d]*%\}", 'f"{gain:.1%} of"'),
    ("a space before %", r"\b\d%(?= )", '"as 1% of the time"'),
    (
        "counted()",
        r"\{(?:len\([^{}]*\)|\w*count|\w+\.height)(?::,)?\} [a-z]+s\b",
        '"{len(a)} runs"',
    ),
    ("agreeing()", r"""== 1 else f?["']\w+s["']|else ["']s["']""", "{'' if n == 1 else 's'}"),
]
"""A helper to use, a pattern of code that does without it, and an example of such code."""


@pytest.mark.parametrize(("helper", "pattern", "example"), HAND_MADE)
def test_sentences_are_made_with_the_helpers(helper: str, pattern: str, example: str) -> None:
    assert re.search(pattern, example)
    modules = [*(ROOT / "rankscope").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]
    assert len(modules) > 100
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}: use {helper}"
        for path in modules
        for line in path.read_text("utf-8").splitlines()
        if re.search(pattern, line) and path.name != "wording.py"
    ]
    assert not found


def test_large_changes_are_factors() -> None:
    assert [relative(each) for each in (0.012, -0.4, 0.99, 1.0, 289.0, -0.5, -0.9, -1.0)] == [
        "+1.2 %", "-40.0 %", "+99.0 %", "×2.0", "×290.0", "-50.0 %", "-90.0 %", "-100.0 %",
    ]  # fmt: skip
    assert interval(-0.6, 1.5) == "-60.0 % to ×2.5"
    assert slower_or_faster(0.21) == "21.0 % slower"
    assert slower_or_faster(-0.2) == "20.0 % faster"
    assert slower_or_faster(1.3) == "2.3 times as slow"
    assert slower_or_faster(1 / 4.1 - 1) == "4.1 times as fast"


def test_of_many_names_the_rest_is_counted() -> None:
    assert and_more(["a", "b"], 2) == "a, b"
    assert and_more(["a", "b", "c"], 2) == "a, b and 1 more"
    assert and_more(["a", "b", "c"], 1, "; ") == "a; and 2 more"
    assert listed(range(9), 3) == "0, 1, 2, …"
