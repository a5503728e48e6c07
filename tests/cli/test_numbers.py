"""Numbers of any size end in an answer or in one line, and take neither memory nor time.

The options are those of the program: a new one that takes a number is tried, too.
"""

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rankscope_cli.main import COMMANDS, program

import rankscope
from rankscope.errors import RankscopeError, UsageError
from rankscope.match.roles import HINT
from rankscope.util.rank_list import MOST_RANKS
from rankscope.view.page_server import PageServer, RunAnswers
from tests.support import SAMPLE, Cli, Result, Stored, mostly_nightly, mostly_slow

NUMBERS = ("1000000000000", "-1", "0", "1e308", "nan", "inf", str(2**63), str(10**30), "9" * 5000)

WORDS: dict[str, tuple[object, ...]] = {
    "check": (SAMPLE,),
    "ingest": (min(SAMPLE.glob("*.sqlite")), "--db", "new.duckdb"),
    "imbalance": ("--db", "{db}"),
    "pick-reports": ("--db", "{db}"),
    "plot": ("timeline", "--db", "{db}", "-o", "t.png"),
    "report": ("--db", "{db}", "-o", "r.html"),
    "capture": ("torchrun",),
    "explain": ("work",),
    "view": ("--db", "{db}"),
    "export": ("--db", "{db}", "-o", "t.csv"),
    "diff": ("{db}", "{db}"),
    "fleet": ("{db}",),
    "watch": (SAMPLE, "--db", "new.duckdb", "--once", "--settle", "0"),
    "mcp": (SAMPLE,),
    "skill": ("--install", "."),
    "recipe": ("--install", "."),
    "scrub": (min(SAMPLE.glob("*.sqlite")), "-o", "s.sqlite"),
}
"""Words with which each command answers."""

LISTS = {
    "--iter-range": (
        *("0:1000000000000", "-1000000000000:", "nan:", "1e9:2e9"),
        *("0:" + "9" * 4000, "9" * 5000 + ":"),
    ),
    "--ranks": ("0:30000000", "999999999999", "-5", "nan", "9" * 5000, ",".join(["0"] * 20_000)),
    "--local-ranks": ("0:30000000", "999999999999", "-5", "nan", "9" * 5000),
    "--roles": (
        "dp=999999999",
        "dp=2,tp=999999999,pp=999999999",
        ",".join(f"d{place}=999999999" for place in range(5000)),
        "dp=0",
        "dp=-1",
        "dp=nan",
        "dp=" + "9" * 5000,
        "/dev/zero",
    ),
}
"""Options whose texts hold numbers."""

LONGEST_S = 20
"""Of processor time for one answer; all of them take a second at most on an idle machine."""


def parameters() -> list[tuple[str, Any]]:
    """Each parameter of each command."""
    commands = typer.main.get_command(program()).commands  # type: ignore[attr-defined]
    return [(name, param) for name, command in commands.items() for param in command.params]


def numeric() -> list[tuple[str, str]]:
    """Command and option, of all options that take one number."""
    return [
        (name, param.opts[0])
        for name, param in parameters()
        if param.type_descriptor.annotation in (int, float)
    ]


def listed() -> list[tuple[str, str]]:
    """Command and option, of all options of LISTS."""
    return [(name, each) for name, param in parameters() for each in param.opts if each in LISTS]


@pytest.fixture
def ask(
    cli: Cli, sample: Stored, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str, str], Result]:
    """`ask(command, option, text)`: what a command says, within bounds."""
    monkeypatch.setattr(PageServer, "serve", lambda _: None)

    def run(command: str, option: str, text: str) -> Result:
        words = [str(word).format(db=sample.db) for word in WORDS[command]]
        begin = time.process_time()
        result = cli(command, *words, option, text)
        assert time.process_time() - begin < LONGEST_S, (command, option, text[:60])
        if result.code == 10:  # --fail-above tells after the answer
            assert "Traceback" not in result.err
        elif result.code:
            result.refused(result.code)
            assert result.code in (2, 3)
        assert len(result.err) < 2000
        return result

    return run


def test_every_command_is_tried() -> None:
    assert {*WORDS} == {*COMMANDS}
    assert len(numeric()) >= 12
    assert {option for _, option in listed()} == {*LISTS}


@pytest.mark.parametrize(("command", "option"), mostly_slow(numeric(), 2))
def test_numbers_of_any_size(
    ask: Callable[[str, str, str], Result], command: str, option: str
) -> None:
    for number in NUMBERS:
        ask(command, option, number)
    assert ask(command, option, "nan").code == 2
    assert ask(command, option, "9" * 5000).code == 2


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option"), mostly_slow(listed(), 1))
def test_lists_and_ranges_of_any_size(
    ask: Callable[[str, str, str], Result], command: str, option: str
) -> None:
    for text in LISTS[option]:
        ask(command, option, text)


def test_roles_of_many_ranks_are_counted_only(sample: Stored) -> None:
    for spec in LISTS["--roles"]:
        with pytest.raises(UsageError) as refused:
            sample.run.imbalance(roles=spec)
        assert len(refused.value.message) < 300
        assert refused.value.hint == HINT


MANY: tuple[Sequence[int], ...] = (range(10**12), range(-(10**30), 0), [10**30], [-1])
"""Ranks and iterations that no run has."""


def of_many(run: rankscope.Run, numbers: Sequence[int]) -> Iterator[Callable[[], object]]:
    """What Python may ask of ranks and iterations that the run has not."""
    yield lambda: run.timeline(ranks=numbers)
    yield lambda: run.timeline(iterations=numbers)
    yield lambda: run.timeline(ranks=[0], iterations=numbers)
    yield lambda: run.plot("timeline", ranks=numbers)
    yield lambda: run.pick_reports(ranks=numbers)


def of_one(run: rankscope.Run) -> Iterator[Callable[[], object]]:
    """What Python may ask with a number of any size."""
    for number, kind in product((10**12, 10**30, -(10**30)), ("timeline", "why", "arrivals")):
        yield lambda number=number, kind=kind: run.plot(kind, iteration=number)
    ranges: tuple[Any, ...] = ((0, 10**30), slice(-(10**30), None), f"0:{10**12}", (10**30, None))
    for each in ranges:
        yield lambda each=each: run.imbalance(iter_range=each)
    for number in (10**12, 10**30, -1):
        yield lambda number=number: rankscope.ingest([run.db], rank=number)
        yield lambda number=number: rankscope.ingest([SAMPLE], run=number)


@pytest.mark.parametrize(
    "questions",
    mostly_slow([partial(of_many, numbers=MANY[0]), of_one], 0)
    + mostly_nightly([partial(of_many, numbers=each) for each in MANY[1:]], 0),
)
def test_python_takes_numbers_of_any_size(
    sample: Stored,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    questions: Callable[[rankscope.Run], Iterator[Callable[[], object]]],
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = 0
    tracemalloc.start()
    try:
        for question in questions(rankscope.open_run(sample.db)):
            try:
                question()
            except RankscopeError as error:
                refused += len(error.message) < 300
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused > 2
    assert peak < 300 * MOST_RANKS


@pytest.mark.slow
@pytest.mark.parametrize("number", mostly_nightly(NUMBERS, 2))
def test_a_served_page_takes_numbers_of_any_size(sample: Stored, number: str) -> None:
    answers = RunAnswers(sample.db, rankscope.Options())
    with pytest.raises(RankscopeError):
        answers.timeline("", "0,1", number if number != "0" else "-7")
    with pytest.raises(RankscopeError):
        answers.timeline("", number if number != "0" else "-7", "5")
    for ask in (
        lambda: answers.states("", number, "5"),
        lambda: answers.states("", "1", number),
        lambda: answers.page(f"0:{number}"),
    ):
        with suppress(RankscopeError):
            ask()
