"""Help of every command, its reference, and completion in a shell."""

import os
import re
from pathlib import Path

import pytest
from rankscope_cli.help import TO_THE_ANSWER
from rankscope_cli.main import COMMANDS

from rankscope.model.kinds import By
from rankscope.model.metrics import METRICS
from rankscope.output.plots import KINDS
from tests.reference import FILE, help_of, reference
from tests.support import python


def test_the_reference_is_what_help_says() -> None:
    assert FILE.read_text("utf-8") == reference(), "python -m tests.readme writes it"


def test_what_everybody_needs_comes_first() -> None:
    first, more = help_of().split("\nMore:\n")
    commands = re.findall(r"(?m)^  (\S+)  +\S", first.split(f"{TO_THE_ANSWER}:\n")[1])
    assert commands == ["check", "ingest", "imbalance", "pick-reports", "plot", "report"]
    rest = re.findall(r"(?m)^  (\S+)  +\S", more)
    assert {*rest} == {*COMMANDS} - {*commands}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_groups_and_fits_a_terminal(command: str) -> None:
    page = help_of(command)
    typed = page[page.index("Examples:") :].split("\n\n")[0].splitlines()[1:]
    assert typed
    assert all(line.startswith(f"  rankscope {command}") for line in typed)
    assert "\nOutput:\n" in page
    assert not re.search("<[a-z]", page), "no names of Python types"
    for line in page.splitlines():
        assert len(line) <= 80 or line in typed


def completed(tmp_path: Path, *words: str, shell: str = "bash") -> str:
    return python(
        "-m",
        "rankscope",
        cwd=tmp_path,
        env={
            **os.environ,
            "_RANKSCOPE_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
            "_TYPER_COMPLETE_ARGS": " ".join(words),
        },
        check=True,
    ).out


@pytest.mark.slow
def test_shells_complete_commands_and_values(tmp_path: Path) -> None:
    assert completed(tmp_path, "rankscope", "").split() == [*COMMANDS]
    assert completed(tmp_path, "rankscope", "plot", "").split() == [*KINDS]
    by = completed(tmp_path, "rankscope", "imbalance", "--by", "")
    assert by.split() == [*By]
    metrics = completed(tmp_path, "rankscope", "pick-reports", "--metric", "ti").split()
    assert metrics == [name for name in METRICS if name.startswith("ti")]
    assert '"load":' in completed(tmp_path, "rankscope", "imbalance", "--metric", "l", shell="zsh")
    assert not list(tmp_path.iterdir())
