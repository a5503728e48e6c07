"""CONTRACT.md has every option of every command."""

import re
from pathlib import Path

from rankscope_cli.main import COMMANDS

import rankscope
from rankscope.output.plots import KINDS
from tests.reference import help_of

CONTRACT = (Path(rankscope.__file__).parent / "docs" / "CONTRACT.md").read_text("utf-8")

CONTRACT_FILE = "rankscope/docs/CONTRACT.md"

EVERYWHERE = {"--help", "--version"}


def section(title: str) -> str:
    """The text below a heading, up to the next heading."""
    return re.split(r"^#+ ", CONTRACT.split(f"# {title}\n")[1], flags=re.MULTILINE)[0]


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


def test_kinds_of_plots_are_those_of_the_program() -> None:
    [meaning] = re.findall(r"^\| `rankscope plot KIND` \| (.+) \|$", CONTRACT, re.MULTILINE)
    listed = {*re.findall(r"`([a-z]+)`", meaning)}
    assert listed == {*KINDS}, f"{CONTRACT_FILE}, command plot: list all kinds"
