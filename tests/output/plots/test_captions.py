"""Titles: the verdict, shortened; names as far as a font can show them."""

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.judge.preconditions import inconclusive
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict
from rankscope.output.plots.captions import finding, on_average
from rankscope.output.plots.style import drawable, text_width

SLOW = replace(
    inconclusive("", ""),
    kind=VerdictKind.PERIODIC,
    ranks=(2,),
    cause="load",
    cause_share=0.9,
    excess_ns=30_000_000,
    iterations=(2, 7, 12),
    period=5,
)


@pytest.mark.parametrize(
    ("verdict", "title"),
    [
        (SLOW, "Rank 2 needs 30.0 ms more in every 5th iteration, 90 % of it in load"),
        (
            replace(SLOW, period=None),
            "Rank 2 needs 30.0 ms more in 3 of 29 iterations, 90 % of it in load",
        ),
        (
            replace(SLOW, period=None, cause="backward", iterations=(18,)),
            "Rank 2 needs 30.0 ms more in iteration 18, 90 % of it in backward",
        ),
        (
            replace(SLOW, ranks=(1, 4), cause=None, period=None, iterations=tuple(range(29))),
            "Ranks 1, 4 need 30.0 ms more over all 29 iterations",
        ),
        (
            replace(SLOW, ranks=(4, 5), hosts=("node1",), period=None, since=12),
            "Host node1 (ranks 4-5) needs 30.0 ms more from iteration 12 on, 90 % of it in load",
        ),
        (inconclusive("too few", "more"), "Inconclusive: too few"),
        (
            inconclusive(f"{'many ranks, ' * 5}of all hosts; {'or others, ' * 20}", "more"),
            f"Inconclusive: {'many ranks, ' * 5}of all hosts",
        ),
        (
            inconclusive(f"either {'rank 3, ' * 12}or the rest is fast, mostly in load", "more"),
            f"Inconclusive: either {'rank 3, ' * 12}or the rest is fast, mostly in load",
        ),
    ],
)
def test_titles(verdict: Verdict, title: str) -> None:
    assert finding(verdict, 29) == title


def test_two_iterations_are_both() -> None:
    verdict = replace(SLOW, cause=None, period=None, iterations=(1, 2))
    assert finding(verdict, 2) == "Rank 2 needs 30.0 ms more in both iterations"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("node1", "node1"),
        ("$x^2$", "$x^2$"),
        ("שלום", "שלום"),
        ("a\x1b[31m", "a<U+001B>[31m"),
        ("\u202egnp", "<U+202E>gnp"),
        ("two\nlines", "two<U+000A>lines"),
        ("节点", "<U+8282><U+70B9>"),
        ("x" * 500, "x" * 19 + "…"),
    ],
)
def test_names_are_shown_as_far_as_the_font_has_letters(name: str, label: str) -> None:
    assert drawable(name, 20) == label


def test_text_is_measured() -> None:
    assert text_width("mmmm", 9) > 2 * text_width("iiii", 9)
    assert text_width("word", 9, "bold") > text_width("word", 9)
    assert text_width("word", 18) == pytest.approx(2 * text_width("word", 9), rel=0.1)


def test_what_may_be_waiting_is_not_called_work() -> None:
    roles, selection = SimpleNamespace(of={}), SimpleNamespace(numbers=(1, 2))
    comparison: Any = SimpleNamespace(roles=roles, selection=selection, of_captures=False)
    comparison.verdict = replace(SLOW, ranks=())
    for excess_ns in (4_000_000, 0):
        frame = pl.DataFrame({"rank": [1], "excess_ns": [excess_ns], "median_ns": [50_000_000]})
        title = on_average(comparison, frame, of_work=False)
        assert " takes " in title
        assert "the median rank on average (waiting included)" in title
        assert "works" in on_average(comparison, frame, of_work=True)


def test_means_accuse_nobody_whom_the_verdict_does_not_name() -> None:
    roles, selection = SimpleNamespace(of={}), SimpleNamespace(numbers=(1, 2))
    comparison: Any = SimpleNamespace(roles=roles, selection=selection, of_captures=False)
    comparison.verdict = SLOW
    frame = pl.DataFrame(
        {"rank": [2, 1], "excess_ns": [9_000_000, 4_000_000], "median_ns": [50_000_000] * 2}
    )
    title = on_average(comparison, frame, of_work=True)
    assert title == "Rank 2 works 9.00 ms longer than the median rank on average"
    for of_work in (True, False):  # the others may wait for it, so that all take as long
        assert on_average(comparison, frame[1:], of_work=of_work) == finding(SLOW, 2)
    comparison.verdict = replace(SLOW, ranks=())
    assert on_average(comparison, frame, of_work=True) == f"{title}, rank 1 4.00 ms"
