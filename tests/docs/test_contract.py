"""CONTRACT.md has every command, and every kind of plot."""

import re
from pathlib import Path

from rankscope_cli.main import COMMANDS

import rankscope
from rankscope.output.plots import KINDS

CONTRACT = (Path(rankscope.__file__).parent / "docs" / "CONTRACT.md").read_text("utf-8")

CONTRACT_FILE = "rankscope/docs/CONTRACT.md"


def section(title: str) -> str:
    """The text below a heading, up to the next heading."""
    return re.split(r"^#+ ", CONTRACT.split(f"# {title}\n")[1], flags=re.MULTILINE)[0]


def test_commands_are_those_of_the_program() -> None:
    table = section("Commands")
    assert re.findall(r"^\| `rankscope ([a-z-]+)", table, re.MULTILINE) == [*COMMANDS]


def test_kinds_of_plots_are_those_of_the_program() -> None:
    [meaning] = re.findall(r"^\| `rankscope plot KIND` \| (.+) \|$", CONTRACT, re.MULTILINE)
    listed = {*re.findall(r"`([a-z]+)`", meaning)}
    assert listed == {*KINDS}, f"{CONTRACT_FILE}, command plot: list all kinds"
